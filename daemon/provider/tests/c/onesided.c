/* Tests of one-sided communication: fence, lock, post-start, large operations, accumulates, dynamic windows. */
#include "check.h"

enum { MIB = 1 << 20, MANY = 16 };

static void fence(void) {
    int *base;
    MPI_Win win;
    MPI_Win_allocate((size + 1) * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    memset(base, 0xff, (size + 1) * sizeof(int));
    MPI_Win_fence(0, win);
    for (int to = 0; to < size; to++) {
        int value = rank * 100 + to;
        MPI_Put(&value, 1, MPI_INT, to, rank, 1, MPI_INT, win);
        MPI_Win_fence(0, win);
    }
    for (int from = 0; from < size; from++) CHECK(base[from] == from * 100 + rank, "put of %d: %d", from, base[from]);
    int got = -1;
    MPI_Get(&got, 1, MPI_INT, (rank + 1) % size, rank, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    CHECK(got == rank * 100 + (rank + 1) % size, "got %d", got);
    MPI_Win_free(&win);
}

/* Every rank has sixteen 1 MiB puts, then gets, to its neighbour in progress at a time. */
static void many_large(void) {
    unsigned char *base, *local = allocate((size_t)MANY * MIB);
    MPI_Win win;
    MPI_Win_allocate((size_t)MANY * MIB, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) fill(local + (size_t)i * MIB, rank * 50 + i + round, MIB);
        MPI_Win_fence(0, win);
        for (int i = 0; i < MANY; i++)
            MPI_Put(local + (size_t)i * MIB, MIB, MPI_BYTE, to, (MPI_Aint)i * MIB, MIB, MPI_BYTE, win);
        MPI_Win_fence(0, win);
        for (int i = 0; i < MANY; i++) verify(base + (size_t)i * MIB, from * 50 + i + round, MIB, "put");
        memset(local, 0, (size_t)MANY * MIB);
        MPI_Win_fence(0, win);
        for (int i = 0; i < MANY; i++)
            MPI_Get(local + (size_t)i * MIB, MIB, MPI_BYTE, to, (MPI_Aint)i * MIB, MIB, MPI_BYTE, win);
        MPI_Win_fence(0, win);
        for (int i = 0; i < MANY; i++) verify(local + (size_t)i * MIB, rank * 50 + i + round, MIB, "get");
    }
    MPI_Win_free(&win);
    free(local);
}

static void passive(void) {
    long *base;
    MPI_Win win;
    MPI_Win_allocate(2 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    base[0] = base[1] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 20; i++) {
        long value;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Get(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, win);
        MPI_Win_flush(0, win);
        value++;
        MPI_Put(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, win);
        MPI_Win_unlock(0, win);
    }
    long one = 1, before;
    MPI_Win_lock_all(0, win);
    for (int i = 0; i < 20; i++) {
        MPI_Accumulate(&one, 1, MPI_LONG, 0, 1, 1, MPI_LONG, MPI_SUM, win);
        MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 1, MPI_SUM, win);
        MPI_Win_flush(0, win);
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        CHECK(base[0] == 20l * size && base[1] == 40l * size, "counted %ld and %ld", base[0], base[1]);
        MPI_Win_unlock(0, win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&win);
}

static void post_start(void) {
    int *base, right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Win win;
    MPI_Group all, to, from;
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &right, &to);
    MPI_Group_incl(all, 1, &left, &from);
    for (int i = 0; i < 50; i++) {
        int value = rank * 1000 + i;
        MPI_Win_post(from, 0, win);
        MPI_Win_start(to, 0, win);
        MPI_Put(&value, 1, MPI_INT, right, 0, 1, MPI_INT, win);
        MPI_Win_complete(win);
        MPI_Win_wait(win);
        CHECK(*base == left * 1000 + i, "round %d: %d", i, *base);
    }
    MPI_Group_free(&all);
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Win_free(&win);
}

static void dynamic_and_vector(void) {
    enum { ROWS = 500 };
    int *memory = allocate(ROWS * 4 * sizeof(int)), *remote = allocate(ROWS * sizeof(int));
    for (int i = 0; i < ROWS * 4; i++) memory[i] = rank * 10000 + i;
    MPI_Win win;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_attach(win, memory, ROWS * 4 * sizeof(int));
    MPI_Aint mine, *all = allocate(size * sizeof *all);
    MPI_Get_address(memory, &mine);
    MPI_Allgather(&mine, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
    MPI_Datatype column;
    MPI_Type_vector(ROWS, 1, 4, MPI_INT, &column);
    MPI_Type_commit(&column);
    int to = (rank + 1) % size;
    MPI_Win_lock_all(0, win);
    MPI_Get(remote, ROWS, MPI_INT, to, all[to], 1, column, win);
    MPI_Win_unlock_all(win);
    for (int i = 0; i < ROWS; i++) CHECK(remote[i] == to * 10000 + 4 * i, "row %d: %d", i, remote[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_detach(win, memory);
    MPI_Type_free(&column);
    MPI_Win_free(&win);
    free(memory);
    free(remote);
    free(all);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    static const struct {
        const char *name;
        void (*run)(void);
    } stages[] = {{"fence", fence},
                  {"many large", many_large},
                  {"passive", passive},
                  {"post-start", post_start},
                  {"dynamic", dynamic_and_vector}};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        printf("%s\n", stages[i].name);
        fflush(stdout);
        stages[i].run();
        MPI_Barrier(MPI_COMM_WORLD);
    }
    printf("all passed\n");
    MPI_Finalize();
    return 0;
}
