/* Tests of point-to-point semantics: sizes, order, matching, probes, cancelling, truncation, self, types. */
#include "check.h"

enum { BIG = 3 << 20 };

static MPI_Comm world;

static void all_sizes(void) {
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    static const int around[] = {0, 1, 64, 4096, 8064, 8128, 16384, 65536, 131072, 262144, 1 << 20, BIG};
    for (size_t i = 0; i < sizeof around / sizeof *around; i++)
        for (int bytes = around[i] > 1 ? around[i] - 1 : around[i]; bytes <= around[i] + 1; bytes++) {
            unsigned char *out = allocate(bytes), *in = allocate(bytes);
            fill(out, rank * 7 + bytes, bytes);
            MPI_Request requests[2];
            MPI_Irecv(in, bytes, MPI_BYTE, left, 1, world, &requests[0]);
            MPI_Isend(out, bytes, MPI_BYTE, right, 1, world, &requests[1]);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
            verify(in, left * 7 + bytes, bytes, "posted");
            MPI_Barrier(world);
            MPI_Isend(out, bytes, MPI_BYTE, right, 2, world, &requests[1]);
            MPI_Barrier(world); /* the message arrives before its receive */
            memset(in, 0, bytes);
            MPI_Recv(in, bytes, MPI_BYTE, left, 2, world, MPI_STATUS_IGNORE);
            MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
            verify(in, left * 7 + bytes, bytes, "unexpected");
            free(out);
            free(in);
        }
}

static void reverse_order_and_windows(void) {
    enum { COUNT = 48 };
    int peer = rank ^ 1;
    if (peer >= size) return;
    for (int bytes = 16; bytes <= 1 << 20; bytes *= 16) {
        MPI_Request requests[2 * COUNT];
        unsigned char *out[COUNT], *in[COUNT];
        for (int i = 0; i < COUNT; i++) {
            out[i] = allocate(bytes);
            in[i] = allocate(bytes);
            fill(out[i], rank * 1000 + i, bytes);
            MPI_Isend(out[i], bytes, MPI_BYTE, peer, 100 + i, world, &requests[i]);
        }
        for (int i = COUNT - 1; i >= 0; i--)
            MPI_Irecv(in[i], bytes, MPI_BYTE, peer, 100 + i, world, &requests[COUNT + i]);
        MPI_Waitall(2 * COUNT, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < COUNT; i++) {
            verify(in[i], peer * 1000 + i, bytes, "reverse order");
            free(out[i]);
            free(in[i]);
        }
    }
}

/* Messages of one sender with one tag must not overtake each other, not even short ones long ones. */
static void no_overtaking(void) {
    enum { COUNT = 200 };
    int peer = rank ^ 1;
    if (peer >= size) return;
    static const int lengths[] = {4, 300000, 8, 9000, 70000, 4, 4, 1000000};
    int longest = 1000000;
    if (rank & 1) {
        unsigned char *out = allocate(longest);
        for (int i = 0; i < COUNT; i++) {
            int bytes = lengths[i % 8];
            memcpy(out, &i, sizeof i);
            MPI_Send(out, bytes, MPI_BYTE, peer, 9, world);
        }
        free(out);
    } else {
        unsigned char *in = allocate(longest);
        for (int i = 0; i < COUNT; i++) {
            MPI_Status status;
            int number, count;
            MPI_Recv(in, longest, MPI_BYTE, i % 3 ? peer : MPI_ANY_SOURCE, i % 2 ? 9 : MPI_ANY_TAG, world, &status);
            memcpy(&number, in, sizeof number);
            MPI_Get_count(&status, MPI_BYTE, &count);
            CHECK(number == i && count == lengths[i % 8], "got %d (%d bytes) instead of %d", number, count, i);
        }
        free(in);
    }
}

static void any_source_any_tag(void) {
    enum { EACH = 50 };
    if (rank == 0) {
        int seen[64] = {0};
        for (int i = 0; i < EACH * (size - 1); i++) {
            int value;
            MPI_Status status;
            MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, world, &status);
            CHECK(status.MPI_TAG == 200 + seen[status.MPI_SOURCE], "tag %d from %d", status.MPI_TAG, status.MPI_SOURCE);
            CHECK(value == status.MPI_SOURCE * 1000 + seen[status.MPI_SOURCE], "value %d", value);
            seen[status.MPI_SOURCE]++;
        }
    } else {
        for (int i = 0; i < EACH; i++) {
            int value = rank * 1000 + i;
            MPI_Send(&value, 1, MPI_INT, 0, 200 + i, world);
        }
    }
}

static void probes(void) {
    int peer = rank ^ 1;
    if (peer >= size) return;
    for (int bytes = 1; bytes <= 1 << 20; bytes *= 32) {
        unsigned char *out = allocate(bytes), *in = allocate(bytes);
        fill(out, rank + bytes, bytes);
        for (int way = 0; way < 4; way++) {
            MPI_Request request;
            MPI_Status status;
            MPI_Message message;
            int found = 0, count;
            MPI_Isend(out, bytes, MPI_BYTE, peer, 300 + way, world, &request);
            if (way == 0) MPI_Probe(peer, 300, world, &status);
            if (way == 1)
                while (!found) MPI_Iprobe(MPI_ANY_SOURCE, 301, world, &found, &status);
            if (way == 2) MPI_Mprobe(peer, 302, world, &message, &status);
            if (way == 3)
                while (!found) MPI_Improbe(peer, MPI_ANY_TAG, world, &found, &message, &status);
            MPI_Get_count(&status, MPI_BYTE, &count);
            CHECK(count == bytes && status.MPI_SOURCE == peer && status.MPI_TAG == 300 + way, "probed %d", count);
            memset(in, 0, bytes);
            if (way < 2) MPI_Recv(in, bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, world, &status);
            else MPI_Mrecv(in, bytes, MPI_BYTE, &message, &status);
            verify(in, peer + bytes, bytes, "probed");
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        free(out);
        free(in);
    }
    int found;
    MPI_Iprobe(peer, 399, world, &found, MPI_STATUS_IGNORE);
    CHECK(!found, "no rank sent that message");
}

static void cancelling(void) {
    int value = 0, cancelled;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 400, world, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    CHECK(cancelled, "nothing was sent");
}

static void truncation(void) {
    int pair;
    MPI_Comm careful;
    MPI_Comm_split(world, rank / 2, rank, &careful);
    MPI_Comm_size(careful, &pair);
    MPI_Comm_set_errhandler(careful, MPI_ERRORS_RETURN);
    int peer = 1 - rank % 2;
    static const int lengths[] = {64, 20000, 100000, 2000000};
    for (int i = 0; i < 4 && pair == 2; i++)
        for (int late = 0; late < 2; late++) {
            int bytes = lengths[i], capacity = bytes / 2;
            unsigned char *out = allocate(bytes), *in = allocate(bytes);
            fill(out, rank + i, bytes);
            memset(in, 0xee, bytes);
            MPI_Request send, receive;
            if (!late) MPI_Irecv(in, capacity, MPI_BYTE, peer, 500, careful, &receive);
            MPI_Barrier(careful);
            MPI_Isend(out, bytes, MPI_BYTE, peer, 500, careful, &send);
            MPI_Barrier(careful);
            if (late) MPI_Irecv(in, capacity, MPI_BYTE, peer, 500, careful, &receive);
            int error = MPI_Wait(&receive, MPI_STATUS_IGNORE), class = 0;
            MPI_Error_class(error, &class);
            CHECK(class == MPI_ERR_TRUNCATE, "%d bytes into %d gave class %d", bytes, capacity, class);
            for (int b = capacity; b < bytes; b++) CHECK(in[b] == 0xee, "byte %d beyond the receive was written", b);
            MPI_Wait(&send, MPI_STATUS_IGNORE);
            free(out);
            free(in);
        }
    MPI_Comm_free(&careful);
}

/* A synchronous send is complete only when its receive has begun. */
static void synchronous(void) {
    int peer = rank ^ 1, value = rank, got = -1, done = 0;
    if (peer >= size) return;
    MPI_Request request;
    MPI_Issend(&value, 1, MPI_INT, peer, 600, world, &request);
    for (int i = 0; i < 1000; i++) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        CHECK(!done, "the receive has not begun");
    }
    MPI_Sendrecv(NULL, 0, MPI_INT, peer, 601, NULL, 0, MPI_INT, peer, 601, world, MPI_STATUS_IGNORE);
    MPI_Recv(&got, 1, MPI_INT, peer, 600, world, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(got == peer, "got %d", got);
}

static void self(void) {
    for (int bytes = 0; bytes <= BIG; bytes = bytes ? bytes * 8 : 1)
        for (int late = 0; late < 2; late++) {
            unsigned char *out = allocate(bytes), *in = allocate(bytes);
            fill(out, bytes, bytes);
            MPI_Request send, receive;
            if (!late) MPI_Irecv(in, bytes, MPI_BYTE, rank, 700, world, &receive);
            MPI_Isend(out, bytes, MPI_BYTE, rank, 700, world, &send);
            if (late) MPI_Irecv(in, bytes, MPI_BYTE, MPI_ANY_SOURCE, 700, world, &receive);
            MPI_Wait(&send, MPI_STATUS_IGNORE);
            MPI_Wait(&receive, MPI_STATUS_IGNORE);
            verify(in, bytes, bytes, "self");
            free(out);
            free(in);
        }
}

static void derived_types(void) {
    int peer = rank ^ 1;
    if (peer >= size) return;
    for (int blocks = 2; blocks <= 40000; blocks *= 12) {
        MPI_Datatype column;
        MPI_Type_vector(blocks, 3, 7, MPI_INT, &column);
        MPI_Type_commit(&column);
        int *out = allocate(blocks * 7 * sizeof(int)), *in = allocate(blocks * 7 * sizeof(int));
        for (int i = 0; i < blocks * 7; i++) out[i] = rank * 1000000 + i, in[i] = -1;
        MPI_Sendrecv(out, 1, column, peer, 800, in, 1, column, peer, 800, world, MPI_STATUS_IGNORE);
        for (int i = 0; i < blocks * 7; i++)
            CHECK(in[i] == (i % 7 < 3 ? peer * 1000000 + i : -1), "element %d is %d", i, in[i]);
        MPI_Type_free(&column);
        free(out);
        free(in);
    }
}

static void persistent_and_communicators(void) {
    MPI_Comm half;
    MPI_Comm_split(world, rank % 2, -rank, &half);
    int my, n;
    MPI_Comm_rank(half, &my);
    MPI_Comm_size(half, &n);
    int out, in;
    MPI_Request requests[2];
    MPI_Send_init(&out, 1, MPI_INT, (my + 1) % n, 0, half, &requests[0]);
    MPI_Recv_init(&in, 1, MPI_INT, (my + n - 1) % n, 0, half, &requests[1]);
    for (int i = 0; i < 100; i++) {
        out = my * 1000 + i;
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(in == (my + n - 1) % n * 1000 + i, "got %d", in);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    world = MPI_COMM_WORLD;
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    static const struct {
        const char *name;
        void (*run)(void);
    } stages[] = {
        {"sizes", all_sizes},           {"windows", reverse_order_and_windows}, {"order", no_overtaking},
        {"any", any_source_any_tag},    {"probes", probes},                     {"cancel", cancelling},
        {"truncation", truncation},     {"ssend", synchronous},                 {"self", self},
        {"types", derived_types},       {"persistent", persistent_and_communicators},
    };
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        printf("%s\n", stages[i].name);
        fflush(stdout);
        stages[i].run();
        MPI_Barrier(world);
    }
    printf("all passed\n");
    MPI_Finalize();
    return 0;
}
