/* A synthetic parallel program, in the manner of testbed (paper 000) 5.3: grains of computing, and communication between.
 *
 * Each step every rank computes for a grain of processor time, longer or shorter by chance (--imbalance) and by its
 * speed (--speed), and then communicates by --pattern. Every message names its sender and its step, and is checked. Prints one
 * JSON line: steps, seconds, and the mean time that a step took and that rank 0 waited in it. */
#include "support.h"
#include <math.h>

enum { TAG = 7 };

struct plan {
    double grain, imbalance, speed;
    long bytes;
    unsigned long random;
};

/* In 0..1; a generator of 64 bits (Knuth's constants), the same on every machine. */
static double chance(struct plan *plan) {
    plan->random = plan->random * 6364136223846793005UL + 1442695040888963407UL;
    return (double)(plan->random >> 11) / 9007199254740992.0;
}

static void stamp(long *message, long words, long step) {
    for (long word = 0; word < words; word++) message[word] = world_rank() * 1000003L + step + word;
}

static int is_stamped(const long *message, long words, int sender, long step) {
    for (long word = 0; word < words; word++)
        if (message[word] != sender * 1000003L + step + word) return 0;
    return 1;
}

/* To the next rank, from the one before. */
static int to_neighbour(long *out, long *in, long words, long step) {
    int size = world_size(), next = (world_rank() + 1) % size, before = (world_rank() + size - 1) % size;
    stamp(out, words, step);
    MPI_Sendrecv(out, (int)words, MPI_LONG, next, TAG, in, (int)words, MPI_LONG, before, TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    return is_stamped(in, words, before, step);
}

static int to_all(long *out, long *in, long words, long step) {
    int right = 1;
    for (int peer = 0; peer < world_size(); peer++) stamp(out + peer * words, words, step);
    MPI_Alltoall(out, (int)words, MPI_LONG, in, (int)words, MPI_LONG, MPI_COMM_WORLD);
    for (int peer = 0; peer < world_size(); peer++) right &= is_stamped(in + peer * words, words, peer, step);
    return right;
}

static int in_barrier(long *out, long *in, long words, long step) {
    long sum, mine = world_rank() + step;
    (void)out, (void)in, (void)words;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return sum == step * world_size() + (long)world_size() * (world_size() - 1) / 2;
}

static int not_at_all(long *out, long *in, long words, long step) {
    (void)out, (void)in, (void)words, (void)step;
    return 1;
}

static const struct pattern {
    const char *name;
    int (*communicate)(long *out, long *in, long words, long step);
} PATTERNS[] = {{"neighbour", to_neighbour}, {"all", to_all}, {"barrier", in_barrier}, {"none", not_at_all}};

static const struct pattern *find(const char *name) {
    for (size_t i = 0; i < sizeof PATTERNS / sizeof *PATTERNS; i++)
        if (strcmp(PATTERNS[i].name, name) == 0) return &PATTERNS[i];
    usage_error("--pattern %s: known are neighbour, all, barrier, none", name);
}

/* The speed of this rank in a list such as 1,0.5; the last one is that of all further ranks. */
static double speed_in(const char *list) {
    double speed = 1;
    for (int rank = 0; rank <= world_rank(); rank++) {
        char *end;
        speed = strtod(list, &end);
        if (end == list || (*end && *end != ',') || !(speed > 0)) usage_error("--speed: cannot read %s", list);
        if (!*end) break;
        list = end + 1;
    }
    return speed;
}

int main(int argc, char **argv) {
    struct plan plan = {.grain = 0.001, .bytes = 1024};
    double percent = 0, limit = 10;
    long steps = 0, seed = 1;
    const char *pattern_name = "neighbour", *speeds = "1";
    MPI_Init(&argc, &argv);
    parse_options(argc, argv, "grains of computing, and communication between them",
                  (struct cli_option[]){
                      {"grain", CLI_SECONDS, &plan.grain, "processor time of a step (0.001)"},
                      {"pattern", CLI_TEXT, &pattern_name, "neighbour, all, barrier or none (neighbour)"},
                      {"bytes", CLI_BYTES, &plan.bytes, "size of a message (1KiB)"},
                      {"imbalance", CLI_SECONDS, &percent, "a grain is longer or shorter by up to so many percent (0)"},
                      {"speed", CLI_TEXT, &speeds, "of each rank, as 1,0.5; the last one is that of all further ranks (1)"},
                      {"steps", CLI_COUNT, &steps, "steps to make; --seconds if 0 (0)"},
                      {"seconds", CLI_SECONDS, &limit, "processor time of rank 0 (10)"},
                      {"seed", CLI_COUNT, &seed, "of the imbalance (1)"},
                      {NULL, 0, NULL, NULL}});
    const struct pattern *pattern = find(pattern_name);
    plan.imbalance = fmin(percent, 100) / 100;
    plan.speed = speed_in(speeds);
    plan.random = (unsigned long)seed * 1000003UL + (unsigned long)world_rank();
    long words = (plan.bytes + (long)sizeof(long) - 1) / (long)sizeof(long), step = 0;
    if (words > 1L << 24) usage_error("--bytes: a message has at most 128 MiB");
    long *out = allocate(world_size() * words * sizeof *out), *in = allocate(world_size() * words * sizeof *in);
    int right = 1;
    double begun = seconds_now(), waited = 0;
    struct work work = work_of(limit);
    for (int done = 0; !done; step++) {
        compute(plan.grain / plan.speed * (1 + plan.imbalance * (2 * chance(&plan) - 1)));
        double since = seconds_now();
        right &= pattern->communicate(out, in, words, step);
        waited += seconds_now() - since;
        work_count(&work);
        /* Without messages no rank waits for another one, so each counts its own time. */
        if (steps) done = step + 1 >= steps;
        else if (pattern->communicate == not_at_all) done = work.used >= limit;
        else if (step % 64 == 63) done = work_is_done(&work);
    }
    if (world_rank() == 0) {
        double took = seconds_now() - begun;
        printf("{\"steps\": %ld, \"seconds\": %.6f, \"step_us\": %.3f, \"wait_us\": %.3f}\n", step, took,
               took / (double)step * 1e6, waited / (double)step * 1e6);
    }
    int verdict = conclude("grains", right);
    MPI_Finalize();
    return verdict;
}
