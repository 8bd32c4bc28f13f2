/* Message rate, one-sided operations and collectives, each small and large. Prints one JSON line.
 *
 * Messages and one-sided operations go from rank 0 to the last rank, and the others wait; all ranks take part in the
 * collectives. A time is the median over windows or calls. Every answer is checked once. */
#include "support.h"

enum { SMALL = 8, LARGE = 1 << 20, WINDOW = 64, LARGE_WINDOW = 4, WARM_UP = 10, BLOCK = 64 << 10 };

struct bench {
    int first, peer, last; /* whether this is rank 0; its or the last rank's partner */
    double *buffer;        /* LARGE_WINDOW times LARGE bytes */
    MPI_Win window;
};

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Microseconds of one of the `count` operations that a call of `act` makes: median over `calls`. */
static double median_us(void (*act)(struct bench *, int), struct bench *bench, int bytes, long calls, int count) {
    double *samples = allocate(calls * sizeof *samples);
    MPI_Barrier(MPI_COMM_WORLD);
    for (long i = -WARM_UP; i < calls; i++) {
        double begin = seconds_now();
        act(bench, bytes);
        if (i >= 0) samples[i] = (seconds_now() - begin) * 1e6 / count;
    }
    qsort(samples, calls, sizeof *samples, by_value);
    double median = samples[calls / 2];
    free(samples);
    MPI_Barrier(MPI_COMM_WORLD);
    return median;
}

static void send_window(struct bench *b, int bytes) {
    MPI_Request requests[WINDOW];
    char answer = 0;
    if (!b->first && !b->last) return;
    for (int i = 0; i < WINDOW; i++)
        if (b->first) MPI_Isend(b->buffer, bytes, MPI_BYTE, b->peer, 1, MPI_COMM_WORLD, &requests[i]);
        else MPI_Irecv(b->buffer + i, bytes, MPI_BYTE, b->peer, 1, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    if (b->first) MPI_Recv(&answer, 1, MPI_BYTE, b->peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else MPI_Send(&answer, 1, MPI_BYTE, b->peer, 2, MPI_COMM_WORLD);
}

/* One operation and its completion at the target for a small one, a few for a large one. */
static int operations_of(int bytes) { return bytes == SMALL ? 1 : LARGE_WINDOW; }

static void put(struct bench *b, int bytes) {
    if (!b->first) return;
    for (int i = 0; i < operations_of(bytes); i++)
        MPI_Put(b->buffer, bytes / 8, MPI_DOUBLE, b->peer, 0, bytes / 8, MPI_DOUBLE, b->window);
    MPI_Win_flush(b->peer, b->window);
}

static void get(struct bench *b, int bytes) {
    if (!b->first) return;
    for (int i = 0; i < operations_of(bytes); i++)
        MPI_Get(b->buffer, bytes / 8, MPI_DOUBLE, b->peer, 0, bytes / 8, MPI_DOUBLE, b->window);
    MPI_Win_flush(b->peer, b->window);
}

static void accumulate(struct bench *b, int bytes) {
    if (!b->first) return;
    for (int i = 0; i < operations_of(bytes); i++)
        MPI_Accumulate(b->buffer, bytes / 8, MPI_DOUBLE, b->peer, 0, bytes / 8, MPI_DOUBLE, MPI_SUM, b->window);
    MPI_Win_flush(b->peer, b->window);
}

static void allreduce(struct bench *b, int bytes) {
    MPI_Allreduce(MPI_IN_PLACE, b->buffer, bytes / 8, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static void alltoall(struct bench *b, int bytes) {
    MPI_Alltoall(b->buffer, bytes, MPI_BYTE, (char *)b->buffer + LARGE, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

/* What was put is got back with what was added, and a reduction finds the largest rank. */
static int is_right(struct bench *b) {
    double number = world_rank() + 1, back = 0, largest;
    int good = 1;
    if (b->first) {
        MPI_Put(&number, 1, MPI_DOUBLE, b->peer, 0, 1, MPI_DOUBLE, b->window);
        MPI_Win_flush(b->peer, b->window);
        MPI_Accumulate(&number, 1, MPI_DOUBLE, b->peer, 0, 1, MPI_DOUBLE, MPI_SUM, b->window);
        MPI_Win_flush(b->peer, b->window);
        MPI_Get(&back, 1, MPI_DOUBLE, b->peer, 0, 1, MPI_DOUBLE, b->window);
        MPI_Win_flush(b->peer, b->window);
        good = back == 2 * number;
    }
    MPI_Allreduce(&number, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    good &= largest == world_size();
    MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    return good;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    long calls = 200;
    const struct cli_option options[] = {
        {"iterations", CLI_COUNT, &calls, "samples of small operations (default 200); of large ones a tenth"},
        {0},
    };
    parse_options(argc, argv, "rates of messages, one-sided and collective operations, as one line of JSON", options);
    if (world_size() < 2 || world_size() > LARGE / BLOCK) usage_error("operations needs 2 to 16 ranks");
    if (calls < 10) usage_error("--iterations must be at least 10");
    struct bench b = {.first = world_rank() == 0, .last = world_rank() == world_size() - 1};
    b.peer = b.first ? world_size() - 1 : 0;
    b.buffer = allocate(LARGE_WINDOW * LARGE);
    memset(b.buffer, 0, LARGE_WINDOW * LARGE);
    double *target;
    MPI_Win_allocate(LARGE, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &target, &b.window);
    MPI_Win_lock_all(0, b.window);
    static const struct {
        const char *name;
        void (*act)(struct bench *, int);
        int bytes, count;
    } KINDS[] = {
        {"message", send_window, SMALL, WINDOW},  {"put", put, SMALL, 1},
        {"get", get, SMALL, 1},                   {"accumulate", accumulate, SMALL, 1},
        {"large_put", put, LARGE, LARGE_WINDOW},  {"large_get", get, LARGE, LARGE_WINDOW},
        {"large_accumulate", accumulate, LARGE, LARGE_WINDOW},
        {"allreduce", allreduce, SMALL, 1},       {"large_allreduce", allreduce, LARGE, 1},
        {"alltoall", alltoall, SMALL, 1},         {"large_alltoall", alltoall, BLOCK, 1},
    };
    if (b.first) printf("{\"program\": \"operations\", \"ranks\": %d", world_size());
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        long samples = KINDS[i].bytes == SMALL ? calls : calls / 10;
        double us = median_us(KINDS[i].act, &b, KINDS[i].bytes, samples, KINDS[i].count);
        if (b.first)
            printf(", \"%s\": {\"bytes\": %d, \"median_us\": %.3f}", KINDS[i].name, KINDS[i].bytes, us);
    }
    int good = is_right(&b);
    if (b.first) printf(", \"verified\": %s}\n", good ? "true" : "false");
    MPI_Win_unlock_all(b.window);
    MPI_Win_free(&b.window);
    MPI_Finalize();
    return good ? EXIT_VERIFIED : EXIT_UNVERIFIED;
}
