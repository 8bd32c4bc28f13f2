/* hostile: a rank that attacks its node. The suite tests/hostile.rs runs each attack beside jobs that verify
 * their results.
 *
 * `hostile --list` prints the attacks, one line each, in columns separated by tabs: name, group, what it
 * needs, how the job must end, why, and what is tried. `hostile --attack NAME` is the command of a job.
 *
 * A rank has: its PMI socket, the descriptor of its segment, its output files, the network of its node, and
 * what its user may do. The attacks know the layout of the segment (daemon/ring/src/layout.rs), not its
 * driver. */
#include "hostile.h"

#include <errno.h>
#include <time.h>

static const struct group {
    const char *name;
    const struct attack *attacks;
} GROUPS[] = {
    {"segment", SEGMENT_ATTACKS}, {"messages", MESSAGE_ATTACKS}, {"pmi", PMI_ATTACKS},
    {"process", PROCESS_ATTACKS}, {"files", FILE_ATTACKS},       {"network", NETWORK_ATTACKS},
};
enum { GROUP_COUNT = sizeof GROUPS / sizeof *GROUPS };

double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void rest(double seconds) {
    struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    while (nanosleep(&time, &time) == -1 && errno == EINTR) {}
}

void cannot(const char *what) {
    fprintf(stderr, "error: cannot %s: %s\n", what, strerror(errno));
    exit(2);
}

long variable(const char *name) {
    const char *value = getenv(name);
    if (!value) {
        fprintf(stderr, "error: %s is not set: this is no rank of a job\n", name);
        exit(2);
    }
    return strtol(value, NULL, 10);
}

int repeat(double seconds, void (*act)(void)) {
    for (double end = now() + seconds; now() < end; rest(0.001)) act();
    return 0;
}

static void list(void) {
    static const char *const NEEDS[] = {"nothing", "user", "limits"};
    static const char *const ENDS[] = {"fails", "ends-well", "either"};
    for (int group = 0; group < GROUP_COUNT; group++)
        for (const struct attack *attack = GROUPS[group].attacks; attack->name; attack++)
            printf("%s\t%s\t%s\t%s\t%s\t%s\n", attack->name, GROUPS[group].name, NEEDS[attack->needs],
                   ENDS[attack->end], attack->reason, attack->what);
}

static const struct attack *find(const char *name) {
    for (int group = 0; group < GROUP_COUNT; group++)
        for (const struct attack *attack = GROUPS[group].attacks; attack->name; attack++)
            if (!strcmp(attack->name, name)) return attack;
    fprintf(stderr, "error: no attack is called %s; --list names all of them\n", name);
    exit(2);
}

/* Whether this process has a PID namespace of its own, where signals stay. */
static int is_confined(void) {
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    int namespaces = 0;
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "NSpid:", 6))
            for (char *word = strtok(line + 6, " \t\n"); word; word = strtok(NULL, " \t\n")) namespaces++;
    if (status) fclose(status);
    return namespaces > 1;
}

/* The rank itself goes on as ring-check, which lies beside this program. */
static void __attribute__((noreturn)) exchange_messages(const char *own_path) {
    char path[4096];
    const char *slash = strrchr(own_path, '/');
    snprintf(path, sizeof path, "%.*sring-check", slash ? (int)(slash + 1 - own_path) : 0, own_path);
    execl(path, "ring-check", "--rounds", "100", "--timeout", "10", "--max-bytes", "256KiB", (char *)NULL);
    cannot("execute ring-check");
}

/* Until this rank has sent something, or 20 seconds. */
static void await_traffic(void) {
    map_segment();
    uint32_t local = (uint32_t)variable("COSWITCH_LOCAL");
    double end = now() + 20;
    while (now() < end && *(volatile uint64_t *)out_ring(local).tail == 0) rest(0.001);
    rest(0.1);
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        list();
        return 0;
    }
    if (argc != 3 || strcmp(argv[1], "--attack")) {
        fprintf(stderr, "usage: hostile --list | --attack NAME\n");
        return 2;
    }
    const struct attack *attack = find(argv[2]);
    if (!is_confined()) {
        fprintf(stderr, "error: this process has no PID namespace of its own: it is no rank of a job\n");
        return 2;
    }
    if (attack->needs == USER && geteuid() == 0) {
        fprintf(stderr, "error: root may do what %s tries: run it as an ordinary user\n", attack->name);
        return 2;
    }
    int is_attacker = attack->place == ALL_RANKS || variable("COSWITCH_RANK") == 0;
    if (attack->place == IN_TRAFFIC) {
        if (is_attacker && fork() == 0) {
            await_traffic();
            exit(attack->run());
        }
        exchange_messages(argv[0]);
    }
    if (!is_attacker) {
        rest(3);
        return 0;
    }
    return attack->run();
}
