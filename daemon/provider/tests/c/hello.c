/* A minimal MPI program: passes messages of growing length around a ring and checks them. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int len = 0; len <= 4 << 20; len = len ? len * 3 : 1) {
        unsigned char *out = malloc(len + 1), *in = malloc(len + 1);
        memset(out, rank + len, len + 1);
        int right = (rank + 1) % size, left = (rank + size - 1) % size;
        MPI_Sendrecv(out, len, MPI_BYTE, right, 5, in, len, MPI_BYTE, left, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < len; i++)
            if (in[i] != (unsigned char)(left + len)) {
                printf("rank %d: wrong byte %d of %d\n", rank, i, len);
                MPI_Abort(MPI_COMM_WORLD, 3);
            }
        free(out);
        free(in);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d of %d: hello\n", rank, size);
    MPI_Finalize();
    return 0;
}
