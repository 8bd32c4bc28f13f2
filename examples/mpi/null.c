/* Does nothing between MPI_Init and MPI_Finalize, to measure the cost of a launch. */
#include <mpi.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    return MPI_Finalize() == MPI_SUCCESS ? 0 : 1;
}
