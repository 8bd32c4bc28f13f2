/* In which order messages are received that may come in any: rank 0 takes one message of each other rank in each round, from
 * MPI_ANY_SOURCE.
 *
 * Before it sends, a rank computes for a time that differs from run to run, up to --work. Prints one JSON line: the rounds, and the
 * order of the senders in all of them as one number, the same for the same order. */
#include "support.h"
#include <unistd.h>

enum { TAG = 7 };

/* FNV-1a, of 64 bits. */
static unsigned long mixed(unsigned long hash, int rank) { return (hash ^ (unsigned long)rank) * 1099511628211UL; }

/* In 0..1, from this moment and process. */
static double chance(unsigned long *random) {
    *random = *random * 6364136223846793005UL + 1442695040888963407UL;
    return (double)(*random >> 11) / 9007199254740992.0;
}

/* Each sender comes once in a round, with its number. */
static int take(long round, unsigned long *order) {
    int right = 1, size = world_size();
    char *has_sent = allocate((size_t)size);
    memset(has_sent, 0, (size_t)size);
    for (int taken = 1; taken < size; taken++) {
        long said;
        MPI_Status status;
        MPI_Recv(&said, 1, MPI_LONG, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &status);
        right &= said == round * size + status.MPI_SOURCE && !has_sent[status.MPI_SOURCE];
        has_sent[status.MPI_SOURCE] = 1;
        *order = mixed(*order, status.MPI_SOURCE);
    }
    for (int rank = 1; rank < size; rank++) MPI_Send(&round, 1, MPI_LONG, rank, TAG, MPI_COMM_WORLD);
    free(has_sent);
    return right;
}

static int give(long round, double work, unsigned long *random) {
    long mine = round * world_size() + world_rank(), said;
    compute(work * chance(random));
    MPI_Send(&mine, 1, MPI_LONG, 0, TAG, MPI_COMM_WORLD);
    MPI_Recv(&said, 1, MPI_LONG, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return said == round;
}

int main(int argc, char **argv) {
    long rounds = 20;
    double work = 0.002;
    MPI_Init(&argc, &argv);
    parse_options(argc, argv, "the order in which messages of any sender are received",
                  (struct cli_option[]){
                      {"rounds", CLI_COUNT, &rounds, "messages of each rank (20)"},
                      {"work", CLI_SECONDS, &work, "the most processor time before a message (0.002)"},
                      {NULL, 0, NULL, NULL}});
    unsigned long order = 14695981039346656037UL, random = (unsigned long)(1e9 * seconds_now()) ^ (unsigned long)getpid();
    int right = 1;
    for (long round = 0; round < rounds; round++)
        right &= world_rank() == 0 ? take(round, &order) : give(round, work, &random);
    if (world_rank() == 0) printf("{\"rounds\": %ld, \"order\": \"%016lx\"}\n", rounds, order);
    int verdict = conclude("order", right);
    MPI_Finalize();
    return verdict;
}
