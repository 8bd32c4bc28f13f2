/* The contents of messages: a header with sequence number and checksum, then a pseudo-random body that the
 * receiver can recompute. A message shorter than a header is body only; its contents still depend on its
 * sequence number. */
#include "ring.h"

#define MAGIC 0x72696e672d63686bull
enum { COMPLAINTS_PRINTED = 20, COMPLAINTS_FATAL = 1000 };

struct header {
    uint64_t magic, sequence, bytes, checksum;
    int32_t source, target, tag, unused;
};

void complain(struct run *run, const char *format, ...) {
    if (run->tally.errors++ >= COMPLAINTS_PRINTED) {
        if (run->tally.errors > COMPLAINTS_FATAL) MPI_Abort(MPI_COMM_WORLD, EXIT_UNVERIFIED);
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "ring-check: rank %d, round %llu: ", run->rank, (unsigned long long)run->round);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

static uint64_t body_key(const struct run *run, const struct planned *planned) {
    uint64_t channel = (uint64_t)planned->source * RANKS_MAX + planned->target;
    return mix(run->seed ^ mix(channel ^ mix(planned->sequence + 1)));
}

static uint64_t body_word(uint64_t key, size_t index) { return mix(key + index * 0x9e3779b97f4a7c15ull); }

/* Two running sums; the second depends on the order of the words. */
static uint64_t checksum_of(const char *body, size_t bytes) {
    uint64_t sum = bytes, sum_of_sums = 0, word;
    for (; bytes; body += sizeof word, bytes -= sizeof word) {
        word = 0;
        size_t part = bytes < sizeof word ? bytes : sizeof word;
        memcpy(&word, body, part);
        sum += word;
        sum_of_sums += sum;
        if (part < sizeof word) break;
    }
    return mix(sum) ^ sum_of_sums;
}

static void fill_body(uint64_t key, char *body, size_t bytes) {
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t word = body_word(key, at / sizeof word);
        memcpy(body + at, &word, bytes - at < sizeof word ? bytes - at : sizeof word);
    }
}

/* Offset of the first byte that differs from the sent one; `bytes` if none does. */
static size_t first_difference(uint64_t key, const char *body, size_t bytes) {
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t word = body_word(key, at / sizeof word);
        size_t part = bytes - at < sizeof word ? bytes - at : sizeof word;
        if (memcmp(body + at, &word, part) == 0) continue;
        const char *expected = (const char *)&word;
        while (body[at] == *expected) at++, expected++;
        return at;
    }
    return bytes;
}

void fill_message(const struct run *run, char *buffer, const struct planned *planned) {
    size_t lead = planned->bytes < sizeof(struct header) ? 0 : sizeof(struct header);
    fill_body(body_key(run, planned), buffer + lead, planned->bytes - lead);
    if (!lead) return;
    struct header header = {
        .magic = MAGIC,
        .sequence = planned->sequence,
        .bytes = planned->bytes,
        .checksum = checksum_of(buffer + lead, planned->bytes - lead),
        .source = planned->source,
        .target = planned->target,
        .tag = planned->tag,
    };
    memcpy(buffer, &header, sizeof header);
}

static void check_header(struct run *run, const char *buffer, const struct planned *planned) {
    struct header header;
    memcpy(&header, buffer, sizeof header);
    if (header.magic != MAGIC)
        complain(run, "corrupted header of message %llu from %d", (unsigned long long)planned->sequence,
                 planned->source);
    else if (header.source != planned->source || header.target != planned->target)
        complain(run, "misrouted: a message %d -> %d came as %d -> %d", header.source, header.target,
                 planned->source, planned->target);
    else if (header.sequence < planned->sequence)
        complain(run, "duplicated or reordered: message %llu from %d came in place of %llu",
                 (unsigned long long)header.sequence, planned->source, (unsigned long long)planned->sequence);
    else if (header.sequence > planned->sequence)
        complain(run, "lost or reordered: message %llu from %d came in place of %llu",
                 (unsigned long long)header.sequence, planned->source, (unsigned long long)planned->sequence);
    else if (header.bytes != planned->bytes || header.tag != planned->tag)
        complain(run, "corrupted length or tag of message %llu from %d", (unsigned long long)header.sequence,
                 planned->source);
    else if (header.checksum != checksum_of(buffer + sizeof header, planned->bytes - sizeof header))
        complain(run, "wrong checksum of message %llu from %d", (unsigned long long)header.sequence,
                 planned->source);
}

/* Compares received contents with the plan; `status` is NULL for contents without one (one-sided,
 * collective). */
void check_message(struct run *run, const char *buffer, const struct planned *planned,
                   const MPI_Status *status) {
    if (status) {
        int bytes;
        MPI_Get_count(status, MPI_BYTE, &bytes);
        if (status->MPI_SOURCE != planned->source || status->MPI_TAG != planned->tag)
            complain(run, "matched (source %d, tag %d) where (%d, %d) was due", status->MPI_SOURCE,
                     status->MPI_TAG, planned->source, planned->tag);
        if ((size_t)bytes != planned->bytes) {
            complain(run, "message %llu from %d has %d bytes instead of %zu",
                     (unsigned long long)planned->sequence, planned->source, bytes, planned->bytes);
            return;
        }
    }
    size_t lead = planned->bytes < sizeof(struct header) ? 0 : sizeof(struct header),
           errors = run->tally.errors;
    if (lead) check_header(run, buffer, planned);
    size_t difference = first_difference(body_key(run, planned), buffer + lead, planned->bytes - lead);
    if (difference < planned->bytes - lead && errors == run->tally.errors)
        complain(run, "corrupted: message %llu from %d differs at byte %zu of %zu",
                 (unsigned long long)planned->sequence, planned->source, lead + difference, planned->bytes);
    run->tally.bytes += planned->bytes;
}
