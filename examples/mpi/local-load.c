/* The work of local users, in the manner of the thesis (paper 001, ch. 4): tasks that come at random and only compute. Does
 * not use MPI.
 *
 * Tasks begin at exponential intervals (--every) and need an exponential processor time (--work), from --seed. Each is a process.
 * After --seconds no more tasks come; when all have ended it prints one JSON line: their number, and the time from the
 * beginning to the end of a task, on average, 95 % of them, and divided by its processor time. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, TASKS_MAX = 65536, AT_ONCE_MAX = 64 };

struct task {
    double response, work;
};

static double read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* In 0..1; a generator of 64 bits (Knuth's constants), the same on every machine. */
static double chance(unsigned long *random) {
    *random = *random * 6364136223846793005UL + 1442695040888963407UL;
    return (double)(*random >> 11) / 9007199254740992.0;
}

static double exponential(unsigned long *random, double mean) { return -mean * log1p(-chance(random)); }

/* Of processor time: time stopped or parked does not count. */
static void compute(double seconds) {
    volatile double sink = 1;
    while (read_clock(CLOCK_PROCESS_CPUTIME_ID) < seconds)
        for (int i = 0; i < 1000; i++) sink = sink * 1.0000001;
}

static void rest_until(double then) {
    for (double left; (left = then - read_clock(CLOCK_MONOTONIC)) > 0;) {
        struct timespec time = {.tv_sec = (time_t)left, .tv_nsec = (long)(1e9 * (left - (double)(time_t)left))};
        nanosleep(&time, NULL);
    }
}

static void reap(int *present, int options) {
    while (*present > 0) {
        pid_t ended = waitpid(-1, NULL, options);
        if (ended > 0) --*present;
        else if (ended == 0 || errno != EINTR) return;
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const struct task *tasks, long count) {
    double *responses = malloc((size_t)(count ? count : 1) * sizeof *responses), sum = 0, stretch = 0;
    if (!responses) exit(EXIT_FAILED);
    for (long task = 0; task < count; task++) {
        sum += responses[task] = tasks[task].response;
        stretch += tasks[task].response / fmax(tasks[task].work, 1e-6);
    }
    qsort(responses, (size_t)count, sizeof *responses, by_value);
    double tasks_or_1 = (double)(count ? count : 1);
    printf("{\"tasks\": %ld, \"response_ms\": %.3f, \"p95_ms\": %.3f, \"slowdown\": %.3f}\n", count, 1e3 * sum / tasks_or_1,
           count ? 1e3 * responses[(count * 95 - 1) / 100] : 0, stretch / tasks_or_1);
    free(responses);
}

static void usage(const char *option) {
    fprintf(stderr, "error: %s\nusage: local-load [--every T] [--work T] [--seconds T] [--seed N], times in seconds\n", option);
    exit(EXIT_USAGE);
}

int main(int argc, char **argv) {
    double every = 0.1, work = 0.02, seconds = 10, seed = 1;
    const struct { const char *name; double *value; } options[] = {
        {"--every", &every}, {"--work", &work}, {"--seconds", &seconds}, {"--seed", &seed}};
    for (int at = 1; at < argc; at += 2) {
        double *value = NULL;
        for (size_t i = 0; i < sizeof options / sizeof *options; i++)
            if (strcmp(argv[at], options[i].name) == 0) value = options[i].value;
        char *end = NULL;
        if (!value) usage(argv[at]);
        if (at + 1 == argc || (*value = strtod(argv[at + 1], &end), end == argv[at + 1] || *end || !(*value > 0)))
            usage("an option needs a number above 0");
    }
    struct task *tasks = mmap(NULL, TASKS_MAX * sizeof *tasks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tasks == MAP_FAILED) return EXIT_FAILED;
    unsigned long random = (unsigned long)seed * 1000003UL;
    chance(&random);
    double begun = read_clock(CLOCK_MONOTONIC), next = begun;
    long count = 0;
    int present = 0;
    while (count < TASKS_MAX) {
        next += exponential(&random, every);
        double needs = exponential(&random, work);
        if (next > begun + seconds) break;
        rest_until(next);
        reap(&present, present >= AT_ONCE_MAX ? 0 : WNOHANG);
        double came = read_clock(CLOCK_MONOTONIC);
        pid_t child = fork();
        if (child < 0) return EXIT_FAILED;
        if (child == 0) {
            compute(needs);
            tasks[count] = (struct task){.response = read_clock(CLOCK_MONOTONIC) - came, .work = needs};
            _exit(EXIT_DONE);
        }
        present++;
        count++;
    }
    reap(&present, 0);
    print(tasks, count);
    return EXIT_DONE;
}
