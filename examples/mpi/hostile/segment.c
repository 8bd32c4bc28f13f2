/* Attacks on the shared segment while messages go through it. */
#define _GNU_SOURCE
#include "hostile.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { PREFIX = 4096, RANK_BLOCK = 384, RING_CONTROL = 256, PAGE = 4096 };
enum { WAIT_POLICY = 64, DAEMON_BELL = 128, LAUNCHER_BELL = 192, SCHEDULER_BELL = 256 };
enum { COUNTERS = 64, ACTIVITY = 256 };

struct shape {
    uint64_t magic;
    uint32_t version, world, locals, ring, direct, chunk, chunks, message;
    uint64_t bytes;
};

struct segment segment;
static struct shape shape;
static uint64_t rank_rings, message_rings;

static uint64_t lines(uint64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

void map_segment(void) {
    if (segment.base) return;
    segment.fd = (int)variable("COSWITCH_SEGMENT");
    if (pread(segment.fd, &shape, sizeof shape, 0) != (ssize_t)sizeof shape) cannot("read the segment");
    segment.bytes = shape.bytes;
    segment.base = mmap(NULL, segment.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment.fd, 0);
    if (segment.base == MAP_FAILED) cannot("map the segment");
    segment.world = shape.world;
    segment.locals = shape.locals;
    segment.chunks = shape.chunks;
    segment.states_bytes = 2 * shape.locals * lines(4ull * shape.chunks);
    segment.rank_blocks = PREFIX + lines(4ull * shape.locals) + lines(4ull * shape.world);
    segment.states = segment.rank_blocks + (uint64_t)shape.locals * RANK_BLOCK;
    message_rings = segment.states + segment.states_bytes;
    rank_rings = message_rings + 2 * (RING_CONTROL + (uint64_t)shape.message);
}

static struct ring ring_at(uint64_t offset, uint64_t capacity) {
    char *control = segment.base + offset;
    struct ring ring = {(uint64_t *)control, (uint64_t *)(control + 64), control + RING_CONTROL, capacity};
    return ring;
}

struct ring out_ring(uint32_t local) {
    return ring_at(rank_rings + 2ull * local * (RING_CONTROL + shape.ring), shape.ring);
}

struct ring in_ring(uint32_t local) {
    return ring_at(rank_rings + (2ull * local + 1) * (RING_CONTROL + shape.ring), shape.ring);
}

struct ring message_ring(int to_daemon) {
    return ring_at(message_rings + (to_daemon ? 0 : RING_CONTROL + (uint64_t)shape.message), shape.message);
}

static void ring_bell(uint64_t offset) {
    uint32_t *bell = (uint32_t *)(segment.base + offset);
    __atomic_store_n(bell + 1, 0, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(bell, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void forge(struct ring ring, const void *header, const void *payload, uint32_t bytes) {
    uint64_t tail = *ring.tail, need = 64 + lines(bytes);
    /* Not over the end: an honest writer fills that with a pad. */
    if (ring.capacity - tail % ring.capacity < need) return;
    char *place = ring.data + tail % ring.capacity;
    memcpy(place, header, 64);
    memcpy(place + 64, payload, bytes);
    __atomic_store_n(ring.tail, tail + need, __ATOMIC_RELEASE);
    ring_bell(DAEMON_BELL);
    ring_bell(LAUNCHER_BELL);
}

/* The file. */

static int cut_to(uint64_t bytes) {
    if (ftruncate(segment.fd, (off_t)bytes)) cannot("cut the segment");
    return 0;
}

static int cut_to_nothing(void) {
    return cut_to(0);
}

static int cut_to_half(void) {
    return cut_to(segment.bytes / 2 / PAGE * PAGE);
}

static int cut_to_the_prefix(void) {
    return cut_to(PREFIX);
}

static int cut_and_grow(void) {
    for (int nth = 0; nth < 200; nth++) {
        cut_to(0);
        cut_to(segment.bytes);
        rest(0.005);
    }
    return 0;
}

static int grow(void) {
    return cut_to(2 * segment.bytes);
}

static void punch(void) {
    fallocate(segment.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)segment.bytes);
}

static int holes(void) {
    punch();
    return 0;
}

static int holes_always(void) {
    return repeat(2, punch);
}

static int change_mode(void) {
    fchmod(segment.fd, 0777);
    return 0;
}

/* Indexes. */

static void set_tails(uint64_t (*value)(uint64_t tail, uint64_t capacity)) {
    for (uint32_t local = 0; local < segment.locals; local++) {
        struct ring ring = out_ring(local);
        *ring.tail = value(*ring.tail, ring.capacity);
    }
    ring_bell(DAEMON_BELL);
}

static uint64_t greatest(uint64_t tail, uint64_t capacity) {
    (void)tail, (void)capacity;
    return UINT64_MAX;
}

static uint64_t beyond(uint64_t tail, uint64_t capacity) {
    return tail + 2 * capacity;
}

static uint64_t unaligned(uint64_t tail, uint64_t capacity) {
    (void)capacity;
    return tail + 1;
}

static uint64_t backwards(uint64_t tail, uint64_t capacity) {
    return tail > capacity ? tail - capacity : 0;
}

static void tails_greatest(void) {
    set_tails(greatest);
}

static void tails_beyond(void) {
    set_tails(beyond);
}

static void tails_unaligned(void) {
    set_tails(unaligned);
}

static void tails_backwards(void) {
    set_tails(backwards);
}

static int tail_greatest(void) {
    return repeat(2, tails_greatest);
}

static int tail_beyond(void) {
    return repeat(2, tails_beyond);
}

static int tail_unaligned(void) {
    return repeat(2, tails_unaligned);
}

static int tail_backwards(void) {
    return repeat(2, tails_backwards);
}

static void heads_greatest(void) {
    for (uint32_t local = 0; local < segment.locals; local++) *in_ring(local).head = UINT64_MAX;
}

static int head_greatest(void) {
    return repeat(2, heads_greatest);
}

static void message_indexes_greatest(void) {
    *message_ring(1).tail = UINT64_MAX;
    ring_bell(DAEMON_BELL);
}

static int message_tail_greatest(void) {
    return repeat(2, message_indexes_greatest);
}

/* Records. Words of a header: source, destination, length, slot; then the kind. */

static void forge_record(uint32_t to, uint32_t bytes, uint32_t slot, uint16_t kind) {
    uint32_t header[16] = {0, to, bytes, slot, kind};
    forge(out_ring(0), header, "", 0);
}

enum { OTHER_NODE = 1 };
#define NO_CHUNK UINT32_MAX

static void long_record(void) {
    forge_record(OTHER_NODE, UINT32_MAX, NO_CHUNK, 1);
}

static void far_chunk(void) {
    forge_record(OTHER_NODE, 9000, UINT32_MAX - 1, 1);
}

static void free_chunk(void) {
    forge_record(OTHER_NODE, 9000, segment.chunks - 1, 1);
}

static void long_chunk(void) {
    uint32_t *states = (uint32_t *)(segment.base + segment.states);
    states[0] = 2;
    forge_record(OTHER_NODE, UINT32_MAX, 0, 1);
}

static void to_own_node(void) {
    forge_record(0, 0, NO_CHUNK, 1);
}

static void to_nobody(void) {
    forge_record(UINT32_MAX, 0, NO_CHUNK, 1);
}

static void pads(void) {
    forge_record(OTHER_NODE, 0, NO_CHUNK, UINT16_MAX);
}

static void unknown_kind(void) {
    forge_record(OTHER_NODE, 0, NO_CHUNK, 999);
}

#define REPEATED(name, act) \
    static int name(void) { \
        return repeat(2, act); \
    }
REPEATED(record_length, long_record)
REPEATED(record_far_chunk, far_chunk)
REPEATED(record_free_chunk, free_chunk)
REPEATED(record_long_chunk, long_chunk)
REPEATED(record_to_own_node, to_own_node)
REPEATED(record_to_nobody, to_nobody)
REPEATED(record_pads, pads)
REPEATED(record_unknown_kind, unknown_kind)

/* Contents. */

static uint64_t draw(void) {
    static uint64_t state = 88172645463325252ull;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static void random_words(void) {
    for (int nth = 0; nth < 20000; nth++) {
        uint64_t word = draw();
        memcpy(segment.base + draw() % (segment.bytes / 8) * 8, &word, 8);
    }
    ring_bell(DAEMON_BELL);
}

static int random_once(void) {
    for (uint64_t at = 0; at + 8 <= segment.bytes; at += 8) {
        uint64_t word = draw();
        memcpy(segment.base + at, &word, 8);
    }
    ring_bell(DAEMON_BELL);
    return 0;
}

REPEATED(random_always, random_words)

static void set_states(uint32_t state) {
    uint32_t *states = (uint32_t *)(segment.base + segment.states);
    for (uint64_t at = 0; at < segment.states_bytes / 4; at++) states[at] = state;
}

static void states_free(void) {
    set_states(0);
}

static void states_leased(void) {
    set_states(1);
}

static void states_published(void) {
    set_states(2);
}

static void states_unknown(void) {
    set_states(UINT32_MAX);
}

REPEATED(chunks_free, states_free)
REPEATED(chunks_leased, states_leased)
REPEATED(chunks_published, states_published)
REPEATED(chunks_unknown, states_unknown)

static int bell_storm(void) {
    for (double end = now() + 2; now() < end;)
        for (int nth = 0; nth < 1000; nth++) ring_bell(nth % 3 ? DAEMON_BELL : SCHEDULER_BELL);
    return 0;
}

static void random_bells(void) {
    for (uint64_t at = DAEMON_BELL; at < SCHEDULER_BELL + 64; at += 8) {
        uint64_t word = draw();
        memcpy(segment.base + at, &word, 8);
    }
}

REPEATED(bell_words, random_bells)

static void fill_blocks(uint64_t from, uint64_t bytes, int byte) {
    for (uint32_t local = 0; local < segment.locals; local++)
        memset(segment.base + segment.rank_blocks + (uint64_t)local * RANK_BLOCK + from, byte, bytes);
}

static void counters_greatest(void) {
    fill_blocks(COUNTERS, 64, 0xff);
}

static void activity_unknown(void) {
    fill_blocks(ACTIVITY, 128, 0xff);
}

static void activity_of_init(void) {
    for (uint32_t local = 0; local < segment.locals; local++) {
        uint32_t init = 1;
        memcpy(segment.base + segment.rank_blocks + (uint64_t)local * RANK_BLOCK + ACTIVITY, &init, 4);
    }
}

static void tables(void) {
    memset(segment.base + PREFIX, 0xa5, segment.rank_blocks - PREFIX);
}

static void prefix(void) {
    memset(segment.base, 0x5a, WAIT_POLICY);
}

static void policy(void) {
    memset(segment.base + WAIT_POLICY, 0xff, 16);
}

REPEATED(counters, counters_greatest)
REPEATED(activity, activity_unknown)
REPEATED(activity_init, activity_of_init)
REPEATED(locality_tables, tables)
REPEATED(shape_words, prefix)
REPEATED(wait_policy, policy)

#define CUT "segment|signal 7|SIGBUS"
const struct attack SEGMENT_ATTACKS[] = {
    {"cut-to-nothing", IN_TRAFFIC, NOTHING, FAILS, CUT,
     "cuts the segment to 0 bytes: the job ends", cut_to_nothing},
    {"cut-to-half", IN_TRAFFIC, NOTHING, FAILS, "", "cuts the segment in two: the job ends", cut_to_half},
    {"cut-to-prefix", IN_TRAFFIC, NOTHING, FAILS, CUT,
     "leaves one page of the segment: the job ends", cut_to_the_prefix},
    {"cut-and-grow", IN_TRAFFIC, NOTHING, FAILS, "",
     "cuts the segment and lets it grow, in turns: the job ends", cut_and_grow},
    {"grow", IN_TRAFFIC, NOTHING, EITHER, "", "doubles the file: nobody needs what is there", grow},
    {"holes", IN_TRAFFIC, NOTHING, FAILS, "", "punches all pages out of the segment: the job ends", holes},
    {"holes-always", IN_TRAFFIC, NOTHING, FAILS, "", "does so for two seconds: the job ends", holes_always},
    {"change-mode", IN_TRAFFIC, NOTHING, EITHER, "",
     "gives everybody access to its own segment", change_mode},
    {"tail-greatest", IN_TRAFFIC, NOTHING, FAILS, "",
     "sets the tails of the out rings to 2^64-1", tail_greatest},
    {"tail-beyond", IN_TRAFFIC, NOTHING, FAILS, "", "sets the tails beyond the rings", tail_beyond},
    {"tail-unaligned", IN_TRAFFIC, NOTHING, FAILS, "", "sets the tails beside a cache line", tail_unaligned},
    {"tail-backwards", IN_TRAFFIC, NOTHING, FAILS, "", "sets the tails before the heads", tail_backwards},
    {"head-greatest", IN_TRAFFIC, NOTHING, EITHER, "",
     "sets the heads of the in rings to 2^64-1", head_greatest},
    {"message-tail", IN_TRAFFIC, NOTHING, FAILS, "damaged its segment",
     "sets the tail of the launcher's ring to 2^64-1", message_tail_greatest},
    {"record-length", IN_TRAFFIC, NOTHING, FAILS, "", "sends a record of 4 GiB", record_length},
    {"record-far-chunk", IN_TRAFFIC, NOTHING, FAILS, "", "names a chunk outside the slab", record_far_chunk},
    {"record-free-chunk", IN_TRAFFIC, NOTHING, FAILS, "",
     "names a chunk that is not published", record_free_chunk},
    {"record-long-chunk", IN_TRAFFIC, NOTHING, FAILS, "", "names 4 GiB in a chunk", record_long_chunk},
    {"record-to-own-node", IN_TRAFFIC, NOTHING, FAILS, "",
     "sends to a rank of its own node by the daemon", record_to_own_node},
    {"record-to-nobody", IN_TRAFFIC, NOTHING, FAILS, "", "sends to rank 2^32-1", record_to_nobody},
    {"record-pads", IN_TRAFFIC, NOTHING, FAILS, "",
     "sends pads where there is no end of a ring", record_pads},
    {"record-unknown-kind", IN_TRAFFIC, NOTHING, FAILS, "",
     "sends records that no driver knows", record_unknown_kind},
    {"random-once", IN_TRAFFIC, NOTHING, FAILS, "", "fills the segment with random bytes", random_once},
    {"random-always", IN_TRAFFIC, NOTHING, FAILS, "", "writes random bytes for two seconds", random_always},
    {"chunks-free", IN_TRAFFIC, NOTHING, EITHER, "", "frees all chunks again and again", chunks_free},
    {"chunks-leased", IN_TRAFFIC, NOTHING, EITHER, "", "leases all chunks again and again", chunks_leased},
    {"chunks-published", IN_TRAFFIC, NOTHING, EITHER, "",
     "publishes all chunks again and again", chunks_published},
    {"chunks-unknown", IN_TRAFFIC, NOTHING, EITHER, "",
     "sets the states of all chunks to 2^32-1", chunks_unknown},
    {"bell-storm", IN_TRAFFIC, NOTHING, EITHER, "", "rings the daemon without end", bell_storm},
    {"bell-words", IN_TRAFFIC, NOTHING, EITHER, "", "writes random words into the bells", bell_words},
    {"counters", IN_TRAFFIC, NOTHING, EITHER, "", "sets the counters of the driver to 2^64-1", counters},
    {"activity", IN_TRAFFIC, NOTHING, EITHER, "", "tells the node scheduler nonsense", activity},
    {"activity-init", IN_TRAFFIC, NOTHING, EITHER, "",
     "tells the node scheduler that it is process 1", activity_init},
    {"tables", IN_TRAFFIC, NOTHING, EITHER, "", "overwrites the tables of ranks", locality_tables},
    {"shape", IN_TRAFFIC, NOTHING, EITHER, "", "overwrites the shape of the segment", shape_words},
    {"wait-policy", IN_TRAFFIC, NOTHING, EITHER, "", "overwrites how ranks wait", wait_policy},
    {NULL, 0, 0, 0, NULL, NULL, NULL},
};
