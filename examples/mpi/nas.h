/* Shared by the three NAS kernels: the pseudo-random generator of the specification (NAS-95-020,
 * section 2.2), the class option, and the loop that repeats, times and verifies a kernel. */
#ifndef COSWITCH_EXAMPLES_NAS_H
#define COSWITCH_EXAMPLES_NAS_H

#include "support.h"

/* x' = a x mod 2^46 with a = 5^13. Unsigned 64-bit products wrap modulo 2^64, of which 2^46 is a divisor, so
 * the low 46 bits of the product are exact and no splitting into halves is needed. */
#define NAS_MULTIPLIER 1220703125ull
#define NAS_MASK ((1ull << 46) - 1)

static inline uint64_t nas_step(uint64_t state, uint64_t multiplier) {
    return (state * multiplier) & NAS_MASK;
}

/* The state after `steps` steps from `seed`, in a logarithmic number of products. */
static inline uint64_t nas_jump(uint64_t seed, uint64_t steps) {
    uint64_t power = NAS_MULTIPLIER;
    for (; steps; steps >>= 1, power = nas_step(power, power))
        if (steps & 1) seed = nas_step(seed, power);
    return seed;
}

static inline double nas_uniform(uint64_t *state) {
    *state = nas_step(*state, NAS_MULTIPLIER);
    return (double)*state * 0x1p-46;
}

/* Index of the class in a table ordered S, W, A, B. */
static inline int nas_class_index(const char *name) {
    const char *found = strlen(name) == 1 ? strchr("SWAB", name[0]) : NULL;
    if (!found) usage_error("--class %s: choose S, W, A or B", name);
    return (int)(found - "SWAB");
}

struct nas_options {
    const char *class_name;
    long repeat;
    double seconds;
};

static inline struct nas_options nas_options(int argc, char **argv, const char *about) {
    struct nas_options chosen = {.class_name = "S"};
    const struct cli_option options[] = {
        {"class", CLI_TEXT, &chosen.class_name, "problem size S, W, A or B (default S)"},
        {"repeat", CLI_COUNT, &chosen.repeat, "repetitions of the timed part, each verified (default 1)"},
        {"seconds", CLI_SECONDS, &chosen.seconds, "repeat until this much processor time is used instead"},
        {0},
    };
    parse_options(argc, argv, about, options);
    if (chosen.repeat && chosen.seconds > 0) usage_error("give --repeat or --seconds, not both");
    if (!chosen.repeat && !(chosen.seconds > 0)) chosen.repeat = 1;
    return chosen;
}

static struct work nas_work;

/* A kernel may take longer than a slot: it calls this in its inner loops. */
static inline void nas_count(void) { work_count(&nas_work); }

/* Runs `kernel` `--repeat` times or for `--seconds`. The kernel returns whether its result is the official one.
 * Collective. */
static inline int nas_repeat(const char *name, const struct nas_options *chosen, int (*kernel)(void *),
                             void *problem) {
    int verified = 1;
    nas_work = work_of(chosen->seconds);
    for (long i = 1;; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = seconds_now();
        int good = kernel(problem), last = chosen->repeat ? i == chosen->repeat : work_is_done(&nas_work);
        verified &= good;
        if (world_rank() == 0) {
            printf("%s: class %s on %d ranks, ", name, chosen->class_name, world_size());
            if (chosen->repeat) printf("%ld of %ld", i, chosen->repeat);
            else printf("%.1f of %.1f s", nas_work.used, chosen->seconds);
            printf(": %s, %.3f s\n", good ? "verified" : "WRONG", seconds_now() - begin);
            fflush(stdout);
        }
        if (last) return verified;
    }
}

#endif
