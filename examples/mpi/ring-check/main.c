/* ring-check: options, the sequence of rounds, and the totals. ring.h describes the method. */
#include "ring.h"

enum { AUDIT_EVERY = 32 }; /* rounds */

struct kind {
    const char *family, *doing;
    int weight;
    void (*round)(struct run *, struct draws *);
};

static const struct kind KINDS[] = {
    {"p2p", "a window of messages", 8, window_round},
    {"p2p", "reception from any source", 8, any_source_round},
    {"p2p", "a burst of small messages", 2, burst_round},
    {"p2p", "a shift round the ring", 4, shift_round},
    {"p2p", "a token of synchronous sends", 2, token_round},
    {"collective", "a collective operation", 6, collective_round},
    {"one-sided", "one-sided operations", 4, one_sided_round},
};
enum { KIND_COUNT = sizeof KINDS / sizeof *KINDS };

/* One rank in four computes for a while without entering MPI, so that messages arrive at a rank that does not
 * poll. */
void pause_computing(struct run *run, struct draws *draws) {
    int busy[RANKS_MAX];
    uint64_t length[RANKS_MAX];
    for (int rank = 0; rank < run->size; rank++) {
        busy[rank] = draw_below(draws, 4) == 0;
        length[rank] = draw_below(draws, run->pause_ms * 1000 + 1);
    }
    if (!busy[run->rank]) return;
    volatile uint64_t sink = 0;
    double end = seconds_now() + 1e-6 * (double)length[run->rank];
    while (seconds_now() < end)
        for (int i = 0; i < 1000; i++) sink += mix(sink + i);
}

static const struct kind *choose_kind(struct draws *draws, const char *only) {
    int total = 0, at = 0;
    for (int i = 0; i < KIND_COUNT; i++)
        if (strstr(only, KINDS[i].family)) total += KINDS[i].weight;
    if (!total) usage_error("--only %s: choose among p2p, collective, one-sided", only);
    int ticket = (int)draw_below(draws, total);
    for (;; at++) {
        if (!strstr(only, KINDS[at].family)) continue;
        if (ticket < KINDS[at].weight) return &KINDS[at];
        ticket -= KINDS[at].weight;
    }
}

static void play_round(struct run *run, const char *only) {
    struct draws draws = {mix(run->seed ^ mix(run->round))};
    const struct kind *kind = choose_kind(&draws, only);
    watchdog_progress(kind->doing);
    if (draw_below(&draws, 8) == 0) pause_computing(run, &draws);
    kind->round(run, &draws);
}

/* Between two barriers no message can be in flight: a message that a probe finds here is a duplicate or
 * late. */
static void audit(struct run *run) {
    MPI_Comm communicators[] = {MPI_COMM_WORLD, run->any_source};
    watchdog_progress("the audit");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) {
        int found;
        MPI_Status status;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicators[i], &found, &status);
        if (found)
            complain(run, "duplicated: a message from %d that no rank sent has arrived", status.MPI_SOURCE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static struct tally total_of(const struct run *run) {
    struct tally total;
    MPI_Allreduce(&run->tally, &total, sizeof total / sizeof(uint64_t), MPI_UINT64_T, MPI_SUM,
                  MPI_COMM_WORLD);
    return total;
}

static void report_progress(const struct run *run, double begin) {
    static double last;
    struct tally total = total_of(run);
    double now = seconds_now();
    if (run->rank != 0 || now - last < 1) return;
    last = now;
    printf("ring-check: round %llu, %llu messages, %llu errors, %.1f s\n", (unsigned long long)run->round,
           (unsigned long long)total.messages, (unsigned long long)total.errors, now - begin);
    fflush(stdout);
}

static void run_rounds(struct run *run, long rounds, double seconds, const char *only) {
    double begin = seconds_now();
    struct work work = work_of(seconds);
    int go_on = 1;
    while (go_on) {
        play_round(run, only);
        run->round++;
        go_on = rounds ? run->round < (uint64_t)rounds : !work_is_done(&work);
        if (run->round % AUDIT_EVERY == 0 || !go_on) {
            audit(run);
            report_progress(run, begin);
        }
    }
    audit(run);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    static struct run run = {.max_bytes = 4 << 20, .pause_ms = 5};
    long seed = 1, rounds = 0, timeout = 120;
    double seconds = 0;
    const char *only = "p2p,collective,one-sided";
    const struct cli_option options[] = {
        {"seed", CLI_COUNT, &seed, "seed of the traffic plan (default 1)"},
        {"rounds", CLI_COUNT, &rounds, "rounds of traffic (default 500)"},
        {"seconds", CLI_SECONDS, &seconds, "play until this much processor time is used instead"},
        {"max-bytes", CLI_BYTES, &run.max_bytes, "largest message (default 4MiB)"},
        {"pause-ms", CLI_COUNT, &run.pause_ms, "longest computing pause (default 5)"},
        {"only", CLI_TEXT, &only, "kinds of p2p,collective,one-sided (default all)"},
        {"timeout", CLI_COUNT, &timeout,
         "seconds of running without progress that fail it (default 120, 0: never)"},
        {0},
    };
    parse_options(argc, argv, "random traffic in which every message is known beforehand and checked",
                  options);
    run.rank = world_rank();
    run.size = world_size();
    run.seed = mix((uint64_t)seed);
    if (run.size > RANKS_MAX) usage_error("ring-check takes at most %d ranks", RANKS_MAX);
    if (run.max_bytes < 64 || run.max_bytes > 1 << 28) usage_error("--max-bytes must be from 64 to 256MiB");
    if (rounds && seconds > 0) usage_error("give --rounds or --seconds, not both");
    if (!rounds && !(seconds > 0)) rounds = 500;
    watchdog_start(&run, timeout);
    MPI_Comm_dup(MPI_COMM_WORLD, &run.any_source);
    open_window(&run);
    run_rounds(&run, rounds, seconds, only);
    struct tally total = total_of(&run);
    close_window(&run);
    MPI_Comm_free(&run.any_source);
    if (run.rank == 0) {
        printf("ring-check: %llu rounds, %llu collectives, %llu one-sided operations, %.1f MB checked\n",
               (unsigned long long)run.round, (unsigned long long)total.collectives,
               (unsigned long long)total.one_sided, 1e-6 * (double)total.bytes);
        printf("ring-check: %llu messages, %llu errors\n", (unsigned long long)total.messages,
               (unsigned long long)total.errors);
    }
    int code = conclude("ring-check", total.errors == 0);
    MPI_Finalize();
    return code;
}
