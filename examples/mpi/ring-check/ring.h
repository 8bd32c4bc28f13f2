/* ring-check: seeded random traffic in which every rank knows all messages that any rank will send.
 *
 * Every rank draws the same plan of a round from (seed, round): the sender, receiver, size, tag, mode and
 * sequence number of each message. A receiver therefore knows which messages must arrive, and reports each
 * that is lost, duplicated, reordered, shortened or damaged by name; a lost one causes a stall.
 *
 *   main.c        options, rounds, totals       watchdog.c    ends a stalled run
 *   message.c     contents and their check      p2p.c         point-to-point rounds
 *   plan.c        messages of a round           collective.c, onesided.c */
#ifndef COSWITCH_EXAMPLES_RING_H
#define COSWITCH_EXAMPLES_RING_H

#include "support.h"

enum { RANKS_MAX = 64, PLAN_MAX = 1024 };

/* splitmix64: small, seedable, and its n-th number can be had directly (see message.c). */
struct draws {
    uint64_t state;
};
uint64_t mix(uint64_t value);
uint64_t draw(struct draws *draws);
uint64_t draw_below(struct draws *draws, uint64_t bound);

struct tally {
    uint64_t messages, collectives, one_sided, bytes, errors;
};

struct run {
    uint64_t seed, round;
    int rank, size;
    long max_bytes, pause_ms;
    uint64_t sequence[RANKS_MAX]
                     [RANKS_MAX]; /* next number of each channel [source][target], the same on all ranks */
    struct tally tally;           /* of this rank */
    MPI_Comm any_source;          /* for rounds that receive from any source, see p2p.c */
    struct window *window;        /* see onesided.c */
};

/* plan.c */
struct planned {
    int source, target, tag;
    int synchronous; /* MPI_Issend rather than MPI_Isend */
    size_t bytes;
    uint64_t sequence;
};
struct plan {
    int count;
    struct planned messages[PLAN_MAX];
};
size_t draw_size(struct draws *draws, size_t most);
void plan_messages(struct run *run, struct draws *draws, struct plan *plan, int most, size_t most_bytes,
                   int unique_tags);

/* message.c: `sequence` and the end points determine the contents. */
void fill_message(const struct run *run, char *buffer, const struct planned *planned);
void check_message(struct run *run, const char *buffer, const struct planned *planned,
                   const MPI_Status *status);
void __attribute__((format(printf, 2, 3))) complain(struct run *run, const char *format, ...);

/* The kinds of rounds. Each is collective and leaves nothing in flight. */
void window_round(struct run *run, struct draws *draws);
void any_source_round(struct run *run, struct draws *draws);
void burst_round(struct run *run, struct draws *draws);
void shift_round(struct run *run, struct draws *draws);
void token_round(struct run *run, struct draws *draws);
void collective_round(struct run *run, struct draws *draws);
void one_sided_round(struct run *run, struct draws *draws);
void open_window(struct run *run);
void close_window(struct run *run);
void pause_computing(struct run *run, struct draws *draws);

/* watchdog.c */
void watchdog_start(const struct run *run, long seconds);
void watchdog_progress(const char *doing);

#endif
