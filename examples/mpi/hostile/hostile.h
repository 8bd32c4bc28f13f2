/* hostile: a rank that attacks what it can reach. See main.c. */
#ifndef COSWITCH_EXAMPLES_HOSTILE_H
#define COSWITCH_EXAMPLES_HOSTILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* What an attack needs so that it can do no harm to the machine of the test; it refuses to begin without. */
enum needs {
    NOTHING,
    /* An ordinary user: root may do what is tried. */
    USER,
    /* A limit of processes and memory for the job. */
    LIMITS,
};

/* How the job of the attacker ends. */
enum end {
    /* It fails, with a reason. */
    FAILS,
    /* All its ranks end well: what is tried hurts nobody, or is refused. */
    ENDS_WELL,
    /* Either: it depends on the moment, or hurts only the results of the job. */
    EITHER,
};

/* Where the attack happens. */
enum place {
    /* Rank 0 attacks from a second process while all ranks exchange messages. */
    IN_TRAFFIC,
    /* Rank 0 attacks; the others wait for a while and end. */
    ALONE,
    /* Every rank attacks, at the same time. */
    ALL_RANKS,
};

struct attack {
    const char *name;
    enum place place;
    enum needs needs;
    enum end end;
    /* Part of the reason for which the job fails, where that is always the same; words are separated by |. */
    const char *reason;
    /* What it tries, and what must happen. */
    const char *what;
    /* Returns the exit code of the rank, or does not return. */
    int (*run)(void);
};

extern const struct attack SEGMENT_ATTACKS[], MESSAGE_ATTACKS[], PMI_ATTACKS[], PROCESS_ATTACKS[],
    FILE_ATTACKS[], NETWORK_ATTACKS[];

/* rseq.c */
int take_over_checkpointer(void);

double now(void);
void rest(double seconds);
/* Ends this process with a message: the attack could not be made. */
void __attribute__((noreturn)) cannot(const char *what);
long variable(const char *name);
/* Calls `act` again and again, for so many seconds. */
int repeat(double seconds, void (*act)(void));

/* The segment (segment.c). */
struct ring {
    uint64_t *tail, *head;
    char *data;
    uint64_t capacity;
};

struct segment {
    int fd;
    char *base;
    uint64_t bytes;
    uint32_t world, locals, chunks;
    uint64_t rank_blocks, states, states_bytes;
};

extern struct segment segment;
void map_segment(void);
struct ring out_ring(uint32_t local), in_ring(uint32_t local), message_ring(int to_daemon);
/* Writes a record behind the last one: a header of 64 bytes and `bytes` of payload. */
void forge(struct ring ring, const void *header, const void *payload, uint32_t bytes);

#endif
