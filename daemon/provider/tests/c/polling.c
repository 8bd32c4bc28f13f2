/* Rank 1 asks for a message after each piece of work of about a microsecond, for half a second in which none comes.
   It prints how many pieces it does in that time, and how many without asking. */
#include "check.h"
#include <time.h>

static volatile unsigned long work;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* How many steps take a microsecond on this machine. */
static long steps_of_a_microsecond(void) {
    long steps = 1000000;
    double before = now();
    for (long step = 0; step < steps; step++) work++;
    return (long)(steps * 1e-6 / (now() - before)) + 1;
}

static double pieces_per_second(long steps, MPI_Request *request) {
    double before = now();
    long pieces = 0;
    int came = 0;
    while (now() - before < 0.5) {
        for (int piece = 0; piece < 64; piece++, pieces++) {
            for (long step = 0; step < steps; step++) work++;
            if (request && !came) MPI_Test(request, &came, MPI_STATUS_IGNORE);
        }
    }
    return pieces / (now() - before);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int value = 0, other = 1 - rank;
    if (rank == 1) {
        MPI_Request request;
        long steps = steps_of_a_microsecond();
        double alone = pieces_per_second(steps, NULL);
        MPI_Irecv(&value, 1, MPI_INT, other, 0, MPI_COMM_WORLD, &request);
        double asking = pieces_per_second(steps, &request);
        MPI_Send(&value, 1, MPI_INT, other, 1, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        printf("%.0f %.0f\n", alone, asking);
    } else {
        MPI_Recv(&value, 1, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&value, 1, MPI_INT, other, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
