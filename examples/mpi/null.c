/* Does nothing between MPI_Init and MPI_Finalize: what launching costs. */
#include <mpi.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    return MPI_Finalize() == MPI_SUCCESS ? 0 : 1;
}
