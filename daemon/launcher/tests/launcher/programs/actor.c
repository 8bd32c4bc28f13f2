/* An MPI program that behaves as its argument says: well | abort | leave. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, size, sum;
    const char *act = argc > 1 ? argv[1] : "well";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d: sum %d\n", rank, size, sum);
    fflush(stdout);
    if (strcmp(act, "abort") == 0 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 7);
    if (strcmp(act, "leave") == 0 && rank == 1) _Exit(0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return sum == size * (size - 1) / 2 ? 0 : 1;
}
