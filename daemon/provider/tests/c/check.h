/* Shared by the test programs: a check that ends the job, and payloads that depend on sender and message. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define CHECK(condition, ...)                                                                                         \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            printf("rank %d, %s:%d: %s: ", rank, __FILE__, __LINE__, #condition);                                     \
            printf(__VA_ARGS__);                                                                                      \
            printf("\n");                                                                                             \
            fflush(stdout);                                                                                           \
            MPI_Abort(MPI_COMM_WORLD, 3);                                                                             \
        }                                                                                                             \
    } while (0)

static inline void *allocate(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    CHECK(memory, "%zu bytes", bytes);
    return memory;
}

static inline unsigned char pattern(uint64_t seed, size_t place) {
    return (unsigned char)((seed * 0x9e3779b97f4a7c15ull + place * 0x2545f491ull) >> 21);
}

static inline void fill(void *memory, uint64_t seed, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) ((unsigned char *)memory)[i] = pattern(seed, i);
}

static inline void verify(const void *memory, uint64_t seed, size_t bytes, const char *what) {
    for (size_t i = 0; i < bytes; i++)
        CHECK(((const unsigned char *)memory)[i] == pattern(seed, i), "%s: byte %zu of %zu", what, i, bytes);
}

#endif
