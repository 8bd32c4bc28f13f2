/* Collective rounds. Blocks carry the same checked contents as messages; reductions use integers, so results
 * are exact. */
#include "ring.h"

enum { NUMBERS_MAX = 4096 };

/* The contribution of `source` to `target` in this round; a block for all ranks is addressed to `source`
 * itself. */
static struct planned block_of(const struct run *run, int source, int target, size_t bytes) {
    return (struct planned){.source = source, .target = target, .bytes = bytes, .sequence = run->round << 20};
}

static size_t block_size(struct draws *draws, const struct run *run) {
    return draw_size(draws, run->max_bytes / run->size);
}

static void broadcast(struct run *run, struct draws *draws, int non_blocking) {
    struct planned planned = block_of(run, 0, 0, draw_size(draws, run->max_bytes));
    planned.source = planned.target = (int)draw_below(draws, run->size);
    char *buffer = allocate(planned.bytes);
    if (planned.source == run->rank) fill_message(run, buffer, &planned);
    if (non_blocking) {
        MPI_Request request;
        MPI_Ibcast(buffer, (int)planned.bytes, MPI_BYTE, planned.source, MPI_COMM_WORLD, &request);
        pause_computing(run, draws);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Bcast(buffer, (int)planned.bytes, MPI_BYTE, planned.source, MPI_COMM_WORLD);
    }
    check_message(run, buffer, &planned, NULL);
    free(buffer);
}

static void gather(struct run *run, struct draws *draws, int to_all) {
    size_t bytes = block_size(draws, run);
    int root = (int)draw_below(draws, run->size), receives = to_all || root == run->rank;
    char *mine = allocate(bytes), *all = allocate(bytes * run->size);
    struct planned planned = block_of(run, run->rank, run->rank, bytes);
    fill_message(run, mine, &planned);
    if (to_all) MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
    else MPI_Gather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
    for (int source = 0; source < run->size && receives; source++) {
        planned = block_of(run, source, source, bytes);
        check_message(run, all + source * bytes, &planned, NULL);
    }
    free(mine);
    free(all);
}

static void scatter(struct run *run, struct draws *draws) {
    size_t bytes = block_size(draws, run);
    int root = (int)draw_below(draws, run->size);
    char *mine = allocate(bytes), *all = allocate(root == run->rank ? bytes * run->size : 1);
    for (int target = 0; target < run->size && root == run->rank; target++) {
        struct planned planned = block_of(run, root, target, bytes);
        fill_message(run, all + target * bytes, &planned);
    }
    MPI_Scatter(all, (int)bytes, MPI_BYTE, mine, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
    struct planned planned = block_of(run, root, run->rank, bytes);
    check_message(run, mine, &planned, NULL);
    free(mine);
    free(all);
}

/* Every pair of ranks exchanges a block of its own size. */
static void all_to_all(struct run *run, struct draws *draws) {
    static size_t sizes[RANKS_MAX][RANKS_MAX];
    int out_counts[RANKS_MAX], in_counts[RANKS_MAX], out_at[RANKS_MAX], in_at[RANKS_MAX], out_bytes = 0,
                                                                                          in_bytes = 0;
    for (int source = 0; source < run->size; source++)
        for (int target = 0; target < run->size; target++) sizes[source][target] = block_size(draws, run);
    for (int peer = 0; peer < run->size; peer++) {
        out_at[peer] = out_bytes;
        in_at[peer] = in_bytes;
        out_bytes += out_counts[peer] = (int)sizes[run->rank][peer];
        in_bytes += in_counts[peer] = (int)sizes[peer][run->rank];
    }
    char *out = allocate(out_bytes), *in = allocate(in_bytes);
    for (int peer = 0; peer < run->size; peer++) {
        struct planned planned = block_of(run, run->rank, peer, out_counts[peer]);
        fill_message(run, out + out_at[peer], &planned);
    }
    MPI_Alltoallv(out, out_counts, out_at, MPI_BYTE, in, in_counts, in_at, MPI_BYTE, MPI_COMM_WORLD);
    for (int peer = 0; peer < run->size; peer++) {
        struct planned planned = block_of(run, peer, run->rank, in_counts[peer]);
        check_message(run, in + in_at[peer], &planned, NULL);
    }
    free(out);
    free(in);
}

static int64_t contribution(const struct run *run, int rank, int index) {
    return (int64_t)(mix(run->seed ^ mix(run->round * RANKS_MAX + rank) ^ index) >> 20);
}

/* Sum of the contributions of ranks 0 .. last. */
static int64_t expected_sum(const struct run *run, int last, int index) {
    int64_t sum = 0;
    for (int rank = 0; rank <= last; rank++) sum += contribution(run, rank, index);
    return sum;
}

enum reduction { ALLREDUCE, REDUCE, SCAN, IALLREDUCE, REDUCE_SCATTER, REDUCTIONS };

static void reduce(struct run *run, struct draws *draws, enum reduction kind) {
    static int64_t mine[NUMBERS_MAX], result[NUMBERS_MAX];
    int count = (int)draw_below(draws, NUMBERS_MAX / run->size) + 1, root = (int)draw_below(draws, run->size),
        offset = 0;
    int contributed = kind == REDUCE_SCATTER ? count * run->size : count;
    for (int i = 0; i < contributed; i++) mine[i] = contribution(run, run->rank, i);
    MPI_Request request;
    switch (kind) {
    case ALLREDUCE: MPI_Allreduce(mine, result, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD); break;
    case REDUCE: MPI_Reduce(mine, result, count, MPI_INT64_T, MPI_SUM, root, MPI_COMM_WORLD); break;
    case SCAN: MPI_Scan(mine, result, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD); break;
    case IALLREDUCE:
        MPI_Iallreduce(mine, result, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD, &request);
        pause_computing(run, draws);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    default:
        MPI_Reduce_scatter_block(mine, result, count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
        offset = run->rank * count;
    }
    if (kind == REDUCE && root != run->rank) return;
    for (int i = 0; i < count; i++)
        if (result[i] != expected_sum(run, kind == SCAN ? run->rank : run->size - 1, offset + i)) {
            complain(run, "reduction kind %d is wrong at element %d", kind, i);
            return;
        }
}

/* Also checks that all ranks are in the same round. */
static void barrier(struct run *run, struct draws *draws) {
    pause_computing(run, draws);
    uint64_t arrived = run->round, least;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(&arrived, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    if (least != run->round) complain(run, "a rank is still in round %llu", (unsigned long long)least);
}

void collective_round(struct run *run, struct draws *draws) {
    switch (draw_below(draws, 8)) {
    case 0: broadcast(run, draws, 0); break;
    case 1: broadcast(run, draws, 1); break;
    case 2: gather(run, draws, 0); break;
    case 3: gather(run, draws, 1); break;
    case 4: scatter(run, draws); break;
    case 5: all_to_all(run, draws); break;
    case 6: barrier(run, draws); break;
    default: reduce(run, draws, draw_below(draws, REDUCTIONS)); break;
    }
    run->tally.collectives++;
}
