/* Attacks on the conversation of launcher and daemon: forged messages in their rings.
 *
 * A message is a record whose payload begins with 0, where it is whole, or 1, where more follow. What follows
 * is encoded with postcard: the number of the variant, then its fields; numbers as LEB128, signed ones in
 * zigzag. */
#include "hostile.h"

enum { READY, FENCE, RANK_EXITED, ABORT, ALL_EXITED, BROKE };
enum { EXITED = 0 };
enum { WHOLE = 0, MORE = 1 };

static void say(int to_daemon, const void *bytes, uint32_t count) {
    uint32_t header[16] = {0, 0, count, UINT32_MAX};
    forge(message_ring(to_daemon), header, bytes, count);
}

#define SAY(...) \
    do { \
        static const unsigned char bytes[] = {__VA_ARGS__}; \
        say(1, bytes, sizeof bytes); \
    } while (0)

static int wrong_fence(void) {
    SAY(WHOLE, FENCE, 99, 0);
    return 0;
}

static int last_fence(void) {
    SAY(WHOLE, FENCE, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0);
    return 0;
}

static int long_fence(void) {
    SAY(WHOLE, FENCE, 9, 0xff, 0xff, 0xff, 0xff, 0x0f);
    return 0;
}

static int exit_elsewhere(void) {
    SAY(WHOLE, RANK_EXITED, 1, EXITED, 0);
    return 0;
}

static int exit_of_nobody(void) {
    SAY(WHOLE, RANK_EXITED, 0xff, 0xff, 0xff, 0xff, 0x0f, EXITED, 0);
    return 0;
}

static int exit_twice(void) {
    SAY(WHOLE, RANK_EXITED, 0, EXITED, 0);
    SAY(WHOLE, RANK_EXITED, 0, EXITED, 0);
    return 0;
}

static int abort_elsewhere(void) {
    SAY(WHOLE, ABORT, 1, 14, 0);
    return 0;
}

static int all_exited(void) {
    SAY(WHOLE, ALL_EXITED);
    return 0;
}

/* The daemon takes the job at its word, and waits for the end of the launcher. */
static int all_exited_in_order(void) {
    SAY(WHOLE, RANK_EXITED, 0, EXITED, 0);
    SAY(WHOLE, ALL_EXITED);
    return 0;
}

static int broke_elsewhere(void) {
    SAY(WHOLE, BROKE, 1, 1, 'x');
    return 0;
}

static int unknown_event(void) {
    SAY(WHOLE, 77);
    return 0;
}

static int unknown_part(void) {
    SAY(9, READY);
    return 0;
}

static int empty_part(void) {
    say(1, "", 0);
    return 0;
}

/* Where there is room, so that all of it is heard. */
static void flood_with(unsigned char kind, uint32_t bytes) {
    static unsigned char part[1 << 16];
    part[0] = kind;
    struct ring ring = message_ring(1);
    for (double end = now() + 3; now() < end;) {
        uint64_t tail = *ring.tail, head = *(volatile uint64_t *)ring.head;
        uint64_t to_end = ring.capacity - tail % ring.capacity, need = 64 + (bytes + 63) / 64 * 64;
        if (tail - head + (to_end < need ? to_end : need) > ring.capacity) continue;
        if (to_end < need) {
            uint32_t pad[16] = {0, 0, 0, UINT32_MAX, UINT16_MAX};
            memcpy(ring.data + tail % ring.capacity, pad, sizeof pad);
            *ring.tail = tail + to_end;
            continue;
        }
        say(1, part, bytes);
    }
}

static int flood(void) {
    flood_with(WHOLE, 2);
    return 0;
}

static int parts_without_end(void) {
    flood_with(MORE, 65000);
    return 0;
}

static int to_launcher(void) {
    static const unsigned char junk[] = {WHOLE, 0xff, 0xff};
    say(0, junk, sizeof junk);
    return 0;
}

static int fence_done(void) {
    static const unsigned char done[] = {WHOLE, 0, 50, 0};
    say(0, done, sizeof done);
    return 0;
}

#define FORGED "forged or damaged"
const struct attack MESSAGE_ATTACKS[] = {
    {"fence-wrong", IN_TRAFFIC, NOTHING, FAILS, FORGED,
     "tells of a fence that is not the next one", wrong_fence},
    {"fence-last", IN_TRAFFIC, NOTHING, FAILS, FORGED, "tells of fence 2^64-1", last_fence},
    {"fence-long", IN_TRAFFIC, NOTHING, FAILS, FORGED, "tells of a fence with 2^32-1 puts", long_fence},
    {"exit-elsewhere", IN_TRAFFIC, NOTHING, FAILS, FORGED,
     "tells of the end of a rank of another node", exit_elsewhere},
    {"exit-of-nobody", IN_TRAFFIC, NOTHING, FAILS, FORGED, "tells of the end of rank 2^32-1", exit_of_nobody},
    {"exit-twice", IN_TRAFFIC, NOTHING, FAILS, FORGED, "tells twice of its own end", exit_twice},
    {"abort-elsewhere", IN_TRAFFIC, NOTHING, FAILS, FORGED,
     "tells of an abort of a rank of another node", abort_elsewhere},
    {"end-of-all", IN_TRAFFIC, NOTHING, FAILS, FORGED,
     "tells of the end of all ranks, which compute", all_exited},
    {"end-in-order", IN_TRAFFIC, NOTHING, EITHER, "",
     "tells of its own end and that of all, and goes on", all_exited_in_order},
    {"broke-elsewhere", IN_TRAFFIC, NOTHING, FAILS, FORGED, "blames a rank of another node", broke_elsewhere},
    {"event-unknown", IN_TRAFFIC, NOTHING, FAILS, FORGED,
     "tells of something that there is not", unknown_event},
    {"part-unknown", IN_TRAFFIC, NOTHING, FAILS, FORGED, "sends a part of an unknown kind", unknown_part},
    {"part-empty", IN_TRAFFIC, NOTHING, FAILS, FORGED, "sends an empty part", empty_part},
    {"parts-without-end", IN_TRAFFIC, NOTHING, FAILS, "",
     "sends a message without an end: 200 MB and more", parts_without_end},
    {"message-flood", IN_TRAFFIC, NOTHING, EITHER, "", "sends messages as fast as they are read", flood},
    {"launcher-junk", IN_TRAFFIC, NOTHING, FAILS, "launcher",
     "sends its launcher what is no command", to_launcher},
    {"fence-done", IN_TRAFFIC, NOTHING, EITHER, "",
     "tells its launcher of the end of a fence that nobody waits for", fence_done},
    {NULL, 0, 0, 0, NULL, NULL, NULL},
};
