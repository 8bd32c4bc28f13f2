/* Tests of MPI_THREAD_MULTIPLE: four threads per rank, each with its own communicator, exchange with their peers. */
#include "check.h"
#include <pthread.h>
#include <time.h>

enum { THREADS = 4, ROUNDS = 300 };

static MPI_Comm comms[THREADS];

static void *work(void *argument) {
    int thread = (int)(intptr_t)argument, peer = rank ^ 1;
    static const int lengths[] = {4, 3000, 20000, 100000};
    unsigned char *out = allocate(100000), *in = allocate(100000);
    for (int i = 0; i < ROUNDS && peer < size; i++) {
        int bytes = lengths[(i + thread) % 4];
        fill(out, rank * 100 + thread + i, bytes);
        MPI_Sendrecv(out, bytes, MPI_BYTE, peer, thread, in, bytes, MPI_BYTE, peer, thread, comms[thread],
                     MPI_STATUS_IGNORE);
        verify(in, peer * 100 + thread + i, bytes, "threads");
    }
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comms[thread]);
    CHECK(sum == size * (size - 1) / 2, "sum %d", sum);
    free(out);
    free(in);
    return NULL;
}

/* One thread waits in MPI for a message that the other thread sends later. */
static void *wait_for_other(void *argument) {
    int value = -1;
    (void)argument;
    MPI_Recv(&value, 1, MPI_INT, rank, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(value == 78, "got %d", value);
    return NULL;
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(provided == MPI_THREAD_MULTIPLE, "provided %d", provided);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 20; i++) {
        int value = 78;
        pthread_create(&threads[0], NULL, wait_for_other, NULL);
        struct timespec pause = {0, 3000000};
        nanosleep(&pause, NULL);
        MPI_Send(&value, 1, MPI_INT, rank, 77, MPI_COMM_WORLD);
        pthread_join(threads[0], NULL);
    }
    for (int i = 0; i < THREADS; i++) MPI_Comm_free(&comms[i]);
    printf("all passed\n");
    MPI_Finalize();
    return 0;
}
