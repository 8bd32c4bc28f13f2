/* Rank 0 makes the other ranks wait for a second, in three ways. Each prints the processor time that its wait took. */
#include "check.h"
#include <sys/resource.h>
#include <time.h>

static double processor_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void pause_for(double seconds) {
    struct timespec time = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    while (nanosleep(&time, &time)) continue;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    static const char *const ways[] = {"receive", "probe", "barrier"};
    for (int way = 0; way < 3; way++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double before = processor_seconds();
        int value = 0;
        if (rank == 0) pause_for(1);
        if (rank == 0 && way < 2)
            for (int to = 1; to < size; to++) MPI_Send(&value, 1, MPI_INT, to, way, MPI_COMM_WORLD);
        if (rank > 0 && way == 1) MPI_Probe(0, way, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank > 0 && way < 2) MPI_Recv(&value, 1, MPI_INT, 0, way, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (way == 2) MPI_Barrier(MPI_COMM_WORLD);
        if (rank > 0) printf("%s %.3f\n", ways[way], processor_seconds() - before);
    }
    MPI_Finalize();
    return 0;
}
