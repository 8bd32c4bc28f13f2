/* A faulty network for faults.rs: loaded into a program with LD_PRELOAD, it damages one message of rank 0.
 *
 * FAULT is the kind of damage (flip, drop, duplicate, shorten), FAULT_AT the number of the MPI_Isend from
 * which on the first message with at least a hundred elements and a real target is damaged. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static int is(const char *kind) { return strcmp(getenv("FAULT"), kind) == 0; }

static int due(int count, int target) {
    static int sends, done;
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank != 0 || done || ++sends < atoi(getenv("FAULT_AT")) || count < 100 || target < 0) return 0;
    return done = 1;
}

/* The copy is never freed: the send may still be reading it. */
static void *flipped(const void *buffer, int count, MPI_Datatype type) {
    int size;
    PMPI_Type_size(type, &size);
    size_t bytes = (size_t)count * size;
    char *copy = malloc(bytes);
    memcpy(copy, buffer, bytes);
    copy[bytes - 1] ^= 4;
    return copy;
}

int MPI_Isend(const void *buffer, int count, MPI_Datatype type, int target, int tag, MPI_Comm comm,
              MPI_Request *request) {
    if (!due(count, target)) return PMPI_Isend(buffer, count, type, target, tag, comm, request);
    if (is("drop")) {
        *request = MPI_REQUEST_NULL;
        return MPI_SUCCESS;
    }
    if (is("flip")) buffer = flipped(buffer, count, type);
    if (is("shorten")) count -= 8;
    if (is("duplicate")) {
        MPI_Request extra;
        PMPI_Isend(buffer, count, type, target, tag, comm, &extra);
        MPI_Request_free(&extra);
    }
    return PMPI_Isend(buffer, count, type, target, tag, comm, request);
}
