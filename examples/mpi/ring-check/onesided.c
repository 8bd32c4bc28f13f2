/* One-sided rounds on one window that lives as long as the run: put and get under fences, accumulate under
 * fences and under shared locks, fetch-and-add under exclusive locks. At most one transfer of a rank is
 * outstanding at a time. */
#include "ring.h"

enum { SLOT_MAX = 256 << 10 };

/* Memory of each rank: a counter per origin and a common one, a slot per origin for puts, and a slot for
 * gets. */
struct window {
    MPI_Win handle;
    char *base;
    size_t slot_bytes;
    int64_t counters[RANKS_MAX]
                    [RANKS_MAX + 1]; /* expected counters of each rank, equal on all ranks */
};

static MPI_Aint slot_at(const struct run *run, int slot) {
    return (RANKS_MAX + 1) * (MPI_Aint)sizeof(int64_t) + (MPI_Aint)run->window->slot_bytes * slot;
}

void open_window(struct run *run) {
    struct window *window = run->window = allocate(sizeof *window);
    memset(window->counters, 0, sizeof window->counters);
    window->slot_bytes = run->max_bytes < SLOT_MAX ? run->max_bytes : SLOT_MAX;
    MPI_Aint bytes = slot_at(run, run->size + 1);
    MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window->base, &window->handle);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, run->rank, 0, window->handle);
    memset(window->base, 0, bytes);
    MPI_Win_unlock(run->rank, window->handle);
    MPI_Barrier(MPI_COMM_WORLD);
}

void close_window(struct run *run) {
    MPI_Win_free(&run->window->handle);
    free(run->window);
}

static struct planned transfer(const struct run *run, int source, int target, size_t bytes) {
    return (struct planned){.source = source, .target = target, .bytes = bytes, .sequence = run->round << 20};
}

/* Every rank puts into its slot at the rank `distance` on. */
static void put(struct run *run, int distance, size_t bytes) {
    struct window *w = run->window;
    int target = (run->rank + distance) % run->size, source = (run->rank + run->size - distance) % run->size;
    char *buffer = allocate(bytes);
    struct planned out = transfer(run, run->rank, target, bytes),
                   in = transfer(run, source, run->rank, bytes);
    fill_message(run, buffer, &out);
    MPI_Win_fence(0, w->handle);
    MPI_Put(buffer, (int)bytes, MPI_BYTE, target, slot_at(run, run->rank), (int)bytes, MPI_BYTE, w->handle);
    MPI_Win_fence(0, w->handle);
    check_message(run, w->base + slot_at(run, source), &in, NULL);
    free(buffer);
}

/* Every rank fills its last slot; the rank `distance` behind gets it. */
static void get(struct run *run, int distance, size_t bytes) {
    struct window *w = run->window;
    int target = (run->rank + distance) % run->size;
    char *buffer = allocate(bytes);
    struct planned own = transfer(run, run->rank, run->rank, bytes),
                   in = transfer(run, target, target, bytes);
    fill_message(run, w->base + slot_at(run, run->size), &own);
    MPI_Win_fence(0, w->handle);
    MPI_Get(buffer, (int)bytes, MPI_BYTE, target, slot_at(run, run->size), (int)bytes, MPI_BYTE, w->handle);
    MPI_Win_fence(0, w->handle);
    check_message(run, buffer, &in, NULL);
    free(buffer);
}

static MPI_Aint counter_at(int index) { return index * (MPI_Aint)sizeof(int64_t); }

static int64_t amount(const struct run *run, int origin) {
    return (int64_t)(mix(run->seed ^ mix(run->round ^ origin)) >> 40);
}

/* Every rank adds its amount to its own counter and to the common one of `target`. */
static void accumulate(struct run *run, int target, int with_locks) {
    struct window *w = run->window;
    int64_t mine = amount(run, run->rank);
    if (with_locks) MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w->handle);
    else MPI_Win_fence(0, w->handle);
    MPI_Accumulate(&mine, 1, MPI_INT64_T, target, counter_at(run->rank), 1, MPI_INT64_T, MPI_SUM, w->handle);
    MPI_Accumulate(&mine, 1, MPI_INT64_T, target, counter_at(RANKS_MAX), 1, MPI_INT64_T, MPI_SUM, w->handle);
    if (with_locks) MPI_Win_unlock(target, w->handle);
    else MPI_Win_fence(0, w->handle);
}

/* The common counter returns values between the old total and the new one, none twice (amounts are
 * positive). */
static void fetch_and_add(struct run *run, int target) {
    struct window *w = run->window;
    int64_t mine = amount(run, run->rank), before, before_common;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, w->handle);
    MPI_Fetch_and_op(&mine, &before, MPI_INT64_T, target, counter_at(run->rank), MPI_SUM, w->handle);
    MPI_Fetch_and_op(&mine, &before_common, MPI_INT64_T, target, counter_at(RANKS_MAX), MPI_SUM, w->handle);
    MPI_Win_unlock(target, w->handle);
    if (before != w->counters[target][run->rank])
        complain(run, "fetch-and-add at %d returned a wrong old value", target);
    if (before_common < w->counters[target][RANKS_MAX])
        complain(run, "fetch-and-add at %d went back", target);
}

static void check_counters(struct run *run, int target) {
    struct window *w = run->window;
    int64_t found[RANKS_MAX + 1];
    for (int origin = 0; origin < run->size; origin++) {
        w->counters[target][origin] += amount(run, origin);
        w->counters[target][RANKS_MAX] += amount(run, origin);
    }
    MPI_Barrier(MPI_COMM_WORLD); /* all ranks have added */
    MPI_Win_lock(MPI_LOCK_SHARED, target, 0, w->handle);
    MPI_Get(found, RANKS_MAX + 1, MPI_INT64_T, target, 0, RANKS_MAX + 1, MPI_INT64_T, w->handle);
    MPI_Win_unlock(target, w->handle);
    if (memcmp(found, w->counters[target], sizeof found) != 0)
        complain(run, "counters of rank %d are wrong", target);
    MPI_Barrier(MPI_COMM_WORLD); /* all ranks have checked */
}

void one_sided_round(struct run *run, struct draws *draws) {
    int target = (int)draw_below(draws, run->size);
    size_t bytes = draw_size(draws, run->window->slot_bytes);
    uint64_t kind = draw_below(draws, 5);
    if (kind == 0) put(run, target, bytes);
    else if (kind == 1) get(run, target, bytes);
    else if (kind == 2) fetch_and_add(run, target);
    else accumulate(run, target, kind == 3);
    if (kind >= 2) check_counters(run, target);
    run->tally.one_sided++;
}
