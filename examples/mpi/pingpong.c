/* Latency and bandwidth between rank 0 and the last rank; the others wait. Prints one JSON line.
 *
 * Without options: one-way time of 1 byte and bandwidth of 1 MiB messages, medians. With --size one size is
 * measured.
 * --stream sends windows of messages one way and waits for one short answer per window. */
#include "support.h"

enum { WINDOW = 16, WARM_UP = 10 };

struct measurement {
    double median_us, least_us, p99_us, mean_us;
};

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct measurement summarise(double *samples, long count) {
    double sum = 0;
    for (long i = 0; i < count; i++) sum += samples[i];
    qsort(samples, count, sizeof *samples, by_value);
    return (struct measurement){samples[count / 2] * 1e6, samples[0] * 1e6, samples[count * 99 / 100] * 1e6,
                                sum / count * 1e6};
}

static void round_trip(char *buffer, int bytes, int first, int peer) {
    if (first) MPI_Send(buffer, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
    MPI_Recv(buffer, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!first) MPI_Send(buffer, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
}

static void window(char *buffer, int bytes, int first, int peer) {
    MPI_Request requests[WINDOW];
    for (int i = 0; i < WINDOW; i++)
        if (first) MPI_Isend(buffer, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[i]);
        else MPI_Irecv(buffer + (size_t)i * bytes, bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    char answer = 0;
    if (first) MPI_Recv(&answer, 1, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else MPI_Send(&answer, 1, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
}

/* One-way seconds of a message, per sample: half a round trip, or a window over its messages. */
static struct measurement measure(char *buffer, int bytes, int stream, long iterations) {
    int first = world_rank() == 0, peer = first ? world_size() - 1 : 0;
    double *samples = allocate(iterations * sizeof *samples);
    for (long i = -WARM_UP; i < iterations; i++) {
        double begin = seconds_now();
        if (stream) window(buffer, bytes, first, peer);
        else round_trip(buffer, bytes, first, peer);
        if (i >= 0) samples[i] = (seconds_now() - begin) / (stream ? WINDOW : 2);
    }
    struct measurement result = summarise(samples, iterations);
    free(samples);
    return result;
}

/* Bytes per microsecond is the same as MB/s. */
static void print_figures(const char *name, long bytes, struct measurement m) {
    printf(", \"%s\": {\"bytes\": %ld, \"median_us\": %.3f, \"min_us\": %.3f, \"p99_us\": %.3f, \"mean_us\": "
           "%.3f, \"mb_per_s\": %.1f}",
           name, bytes, m.median_us, m.least_us, m.p99_us, m.mean_us, (double)bytes / m.median_us);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    long size = -1, iterations = 0;
    int stream = 0;
    const struct cli_option options[] = {
        {"size", CLI_BYTES, &size, "measure this message size only (default: 1 byte and 1 MiB)"},
        {"iterations", CLI_COUNT, &iterations, "samples (default 2000 up to 64 KiB, 200 above)"},
        {"stream", CLI_FLAG, &stream, "windows of 16 messages one way instead of ping-pong"},
        {0},
    };
    parse_options(argc, argv, "point-to-point latency and bandwidth, as one line of JSON", options);
    if (world_size() < 2) usage_error("pingpong needs at least 2 ranks");
    if (size > 1 << 27) usage_error("--size is at most 128MiB");
    long sizes[] = {size < 0 ? 1 : size, 1 << 20};
    const char *names[] = {size < 0 ? "latency" : "transfer", "bandwidth"};
    int measurements = size < 0 ? 2 : 1;
    if (world_rank() == 0)
        printf("{\"program\": \"pingpong\", \"ranks\": %d, \"mode\": \"%s\"", world_size(),
               stream ? "stream" : "pingpong");
    for (int i = 0; i < measurements; i++) {
        char *buffer = allocate((size_t)sizes[i] * WINDOW);
        memset(buffer, 1, (size_t)sizes[i] * WINDOW);
        long samples = iterations ? iterations : sizes[i] <= 65536 ? 2000 : 200;
        MPI_Barrier(MPI_COMM_WORLD);
        if (world_rank() == 0)
            print_figures(names[i], sizes[i], measure(buffer, (int)sizes[i], stream, samples));
        else if (world_rank() == world_size() - 1) measure(buffer, (int)sizes[i], stream, samples);
        free(buffer);
    }
    if (world_rank() == 0) printf("}\n");
    MPI_Finalize();
    return EXIT_VERIFIED;
}
