/* Tests of collectives: blocking and non-blocking, small and large, several at a time. */
#include "check.h"

static void reductions(int count) {
    double *out = allocate(count * sizeof *out), *in = allocate(count * sizeof *in);
    for (int i = 0; i < count; i++) out[i] = rank + i;
    MPI_Allreduce(out, in, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        CHECK(in[i] == size * (size - 1) / 2.0 + (double)size * i, "sum %d is %f", i, in[i]);
    MPI_Reduce(out, in, count, MPI_DOUBLE, MPI_MAX, size - 1, MPI_COMM_WORLD);
    if (rank == size - 1)
        for (int i = 0; i < count; i++) CHECK(in[i] == size - 1 + i, "maximum %d is %f", i, in[i]);
    MPI_Scan(out, in, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++)
        CHECK(in[i] == rank * (rank + 1) / 2.0 + (rank + 1.0) * i, "prefix sum %d is %f", i, in[i]);
    free(out);
    free(in);
}

static void exchanges(int bytes) {
    unsigned char *out = allocate((size_t)bytes * size), *in = allocate((size_t)bytes * size);
    for (int to = 0; to < size; to++) fill(out + (size_t)to * bytes, rank * 100 + to, bytes);
    MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++) verify(in + (size_t)from * bytes, from * 100 + rank, bytes, "alltoall");
    MPI_Allgather(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++) verify(in + (size_t)from * bytes, from * 100, bytes, "allgather");
    for (int root = 0; root < size; root++) {
        fill(in, rank, bytes);
        MPI_Bcast(in, bytes, MPI_BYTE, root, MPI_COMM_WORLD);
        verify(in, root, bytes, "bcast");
    }
    free(out);
    free(in);
}

static void several_at_a_time(void) {
    enum { COUNT = 16, LENGTH = 30000 };
    static int out[COUNT][LENGTH], in[COUNT][LENGTH];
    MPI_Request requests[COUNT + 1];
    for (int i = 0; i < COUNT; i++) {
        for (int j = 0; j < LENGTH; j++) out[i][j] = rank + i * j;
        if (i % 2) MPI_Iallreduce(out[i], in[i], LENGTH, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
        else {
            memcpy(in[i], out[i], sizeof in[i]);
            MPI_Ibcast(in[i], LENGTH, MPI_INT, i % size, MPI_COMM_WORLD, &requests[i]);
        }
    }
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[COUNT]);
    MPI_Waitall(COUNT + 1, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < LENGTH; j++) {
            int expected = i % 2 ? size * (size - 1) / 2 + size * i * j : i % size + i * j;
            CHECK(in[i][j] == expected, "collective %d element %d is %d", i, j, in[i][j]);
        }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int count = 1; count <= 300000; count = count * 7 + 1) reductions(count);
    for (int bytes = 1; bytes <= 1 << 20; bytes = bytes * 9 + 1) exchanges(bytes);
    for (int i = 0; i < 5; i++) several_at_a_time();
    for (int i = 0; i < 500; i++) MPI_Barrier(MPI_COMM_WORLD);
    printf("all passed\n");
    MPI_Finalize();
    return 0;
}
