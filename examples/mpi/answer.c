/* How long a rank that computes keeps a message waiting: rank 0 sends to rank 1, which computes for each message.
 *
 * Rank 1 takes each message, reads the clock, computes for --work, and answers; then rank 0 rests for --rest. Prints one JSON line:
 * the time from the send to the clock, as both ranks are on one machine, and the share of a processor that rank 1 had.
 * With --only-compute all ranks compute instead, and the last one prints its share. */
#include "support.h"

enum { MESSAGES_MAX = 1000000 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void rest(double seconds) {
    struct timespec left = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&left, NULL);
}

/* Sends the time of each message, and a negative one at the end. */
static void ask(double seconds, double between) {
    for (double until = seconds_now() + seconds; seconds_now() < until; rest(between)) {
        double now = seconds_now();
        MPI_Send(&now, 1, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(&now, 1, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    double end = -1;
    MPI_Send(&end, 1, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD);
}

static long answer(double work, double *waited) {
    for (long count = 0;; count += count < MESSAGES_MAX - 1) {
        double sent;
        MPI_Recv(&sent, 1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        waited[count] = seconds_now() - sent;
        if (sent < 0) return count;
        compute(work);
        MPI_Send(&sent, 1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    double seconds = 10, between = 0.0075, work = 0.003;
    int only_compute = 0;
    MPI_Init(&argc, &argv);
    parse_options(argc, argv, "how long a rank that computes keeps a message waiting",
                  (struct cli_option[]){
                      {"seconds", CLI_SECONDS, &seconds, "length of the run (10)"},
                      {"rest", CLI_SECONDS, &between, "time between an answer and the next message (0.0075)"},
                      {"work", CLI_SECONDS, &work, "processor time of rank 1 for each message (0.003)"},
                      {"only-compute", CLI_FLAG, &only_compute, "no messages"},
                      {NULL, 0, NULL, NULL}});
    if (!only_compute && world_size() != 2) usage_error("one rank sends, one answers: run it with 2 ranks");
    double *waited = allocate(MESSAGES_MAX * sizeof *waited), begun = seconds_now(), used = processor_seconds();
    long count = 0;
    if (only_compute)
        while (seconds_now() < begun + seconds) compute(0.001);
    else if (world_rank() == 0) ask(seconds, between);
    else count = answer(work, waited);
    used = (processor_seconds() - used) / (seconds_now() - begun);
    if (world_rank() == world_size() - 1) {
        qsort(waited, count, sizeof *waited, by_value);
        double median = count ? waited[count / 2] : 0, p90 = count ? waited[count * 9 / 10] : 0;
        printf("{\"messages\": %ld, \"median_us\": %.1f, \"p90_us\": %.1f, \"share\": %.4f}\n", count, median * 1e6,
               p90 * 1e6, used);
        fflush(stdout);
    }
    int verdict = conclude("answer", only_compute || world_rank() == 0 || count > 0);
    MPI_Finalize();
    return verdict;
}
