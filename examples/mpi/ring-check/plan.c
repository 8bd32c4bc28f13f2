/* Plan of a round: messages of random size, tag, mode and end points, within a budget of bytes. */
#include "ring.h"

uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
}

uint64_t draw(struct draws *draws) { return mix(draws->state += 0x9e3779b97f4a7c15ull); }

uint64_t draw_below(struct draws *draws, uint64_t bound) { return draw(draws) % bound; }

/* Half of the sizes are spread evenly over the powers of two; the others are near sizes at which transports
 * change their protocol. */
size_t draw_size(struct draws *draws, size_t most) {
    static const size_t EDGES[] = {0, 64, 256, 4096, 8192, 16384, 65536, 131072, 262144, 1048576};
    size_t size;
    if (draw_below(draws, 4) == 0) {
        size = EDGES[draw_below(draws, sizeof EDGES / sizeof *EDGES)] + draw_below(draws, 3);
        size -= size > 1;
    } else if (draw_below(draws, 3) == 0) {
        size = draw_below(draws, 200);
    } else {
        int bits = 0;
        while (bits < 40 && (1ull << (bits + 1)) <= most) bits++;
        size = 1ull << draw_below(draws, bits + 1);
        size += draw_below(draws, size);
    }
    return size < most ? size : most;
}

/* Appends up to `most` messages of at most `most_bytes` in all; an any-tag round repeats tags, a window round
 * must not. */
void plan_messages(struct run *run, struct draws *draws, struct plan *plan, int most, size_t most_bytes,
                   int unique_tags) {
    int wanted = 1 + (int)draw_below(draws, most);
    size_t left = most_bytes;
    for (plan->count = 0; plan->count < wanted && plan->count < PLAN_MAX; plan->count++) {
        struct planned *planned = &plan->messages[plan->count];
        planned->source = (int)draw_below(draws, run->size);
        planned->target = (int)draw_below(draws, run->size);
        planned->tag = unique_tags ? plan->count : (int)draw_below(draws, 5);
        planned->synchronous = draw_below(draws, 4) == 0;
        planned->bytes = draw_size(draws, left < (size_t)run->max_bytes ? left : (size_t)run->max_bytes);
        planned->sequence = run->sequence[planned->source][planned->target]++;
        left -= planned->bytes;
    }
}
