/* A synthetic parallel program, in the manner of testbed (paper 000) 5.3: grains of computing, and communication between.
 *
 * Each step every rank computes for a grain of processor time, longer or shorter by chance (--imbalance) and by its
 * speed (--speed), and then communicates by --pattern. Every message names its sender and its step, and is checked. Prints one
 * JSON line: steps, seconds, and the mean time that a step took and that rank 0 waited in it. */
#include "support.h"
#include <math.h>

enum { TAG = 7, DISTANCES = 16 };

struct plan {
    double grain, imbalance, speed;
    long bytes;
    unsigned long random;
};

/* In 0..1; a generator of 64 bits (Knuth's constants), the same on every machine. */
static double chance(struct plan *plan) {
    plan->random = plan->random * 6364136223846793005UL + 1442695040888963407UL;
    return (double)(plan->random >> 11) / 9007199254740992.0;
}

static void stamp(long *message, long words, long step) {
    for (long word = 0; word < words; word++) message[word] = world_rank() * 1000003L + step + word;
}

static int is_stamped(const long *message, long words, int sender, long step) {
    for (long word = 0; word < words; word++)
        if (message[word] != sender * 1000003L + step + word) return 0;
    return 1;
}

/* The time in which this rank computed, and did not communicate. */
static double computed;

static void compute_for(double grain) {
    double since = seconds_now();
    compute(grain);
    computed += seconds_now() - since;
}

/* To the next rank, from the one before. */
static int to_neighbour(long *out, long *in, long words, long step, double grain) {
    compute_for(grain);
    int size = world_size(), next = (world_rank() + 1) % size, before = (world_rank() + size - 1) % size;
    stamp(out, words, step);
    MPI_Sendrecv(out, (int)words, MPI_LONG, next, TAG, in, (int)words, MPI_LONG, before, TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    return is_stamped(in, words, before, step);
}

static int to_all(long *out, long *in, long words, long step, double grain) {
    int right = 1;
    compute_for(grain);
    for (int peer = 0; peer < world_size(); peer++) stamp(out + peer * words, words, step);
    MPI_Alltoall(out, (int)words, MPI_LONG, in, (int)words, MPI_LONG, MPI_COMM_WORLD);
    for (int peer = 0; peer < world_size(); peer++) right &= is_stamped(in + peer * words, words, peer, step);
    return right;
}

static int in_barrier(long *out, long *in, long words, long step, double grain) {
    long sum, mine = world_rank() + step;
    (void)out, (void)in, (void)words;
    compute_for(grain);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return sum == step * world_size() + (long)world_size() * (world_size() - 1) / 2;
}

static int not_at_all(long *out, long *in, long words, long step, double grain) {
    (void)out, (void)in, (void)words, (void)step;
    compute_for(grain);
    return 1;
}

/* As Sweep3D: the ranks are a grid, which a wave of work crosses from each of its corners: a rank waits for those before it,
 * computes a quarter of its grain, and lets those behind it go on. */
static int in_sweeps(long *out, long *in, long words, long step, double grain) {
    int size = world_size(), width = 1, right = 1;
    for (int side = 1; side * side <= size; side++)
        if (size % side == 0) width = side;
    int x = world_rank() % width, y = world_rank() / width, height = size / width;
    for (int corner = 0; corner < 4; corner++) {
        int dx = corner % 2 ? -1 : 1, dy = corner < 2 ? 1 : -1;
        const int before[2][2] = {{x - dx, y}, {x, y - dy}}, behind[2][2] = {{x + dx, y}, {x, y + dy}};
        MPI_Request sent[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        for (int side = 0; side < 2; side++) {
            int from_x = before[side][0], from_y = before[side][1], from = from_y * width + from_x;
            if (from_x < 0 || from_x >= width || from_y < 0 || from_y >= height) continue;
            MPI_Recv(in, (int)words, MPI_LONG, from, TAG + corner, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            right &= is_stamped(in, words, from, step);
        }
        compute_for(grain / 4);
        stamp(out, words, step);
        for (int side = 0; side < 2; side++) {
            int to_x = behind[side][0], to_y = behind[side][1];
            if (to_x < 0 || to_x >= width || to_y < 0 || to_y >= height) continue;
            MPI_Isend(out, (int)words, MPI_LONG, to_y * width + to_x, TAG + corner, MPI_COMM_WORLD, &sent[side]);
        }
        MPI_Waitall(2, sent, MPI_STATUSES_IGNORE);
    }
    return right;
}

/* As SAGE: messages to and from many others go while a rank computes, and then all agree on a number. */
static int with_overlap(long *out, long *in, long words, long step, double grain) {
    int size = world_size(), rank = world_rank(), right = 1, count = 0;
    MPI_Request requests[2 * DISTANCES];
    int from[DISTANCES];
    stamp(out, words, step);
    for (int distance = 1; distance < size && count < DISTANCES; distance *= 2, count++) {
        from[count] = (rank + size - distance) % size;
        MPI_Irecv(in + count * words, (int)words, MPI_LONG, from[count], TAG, MPI_COMM_WORLD, &requests[2 * count]);
        MPI_Isend(out, (int)words, MPI_LONG, (rank + distance) % size, TAG, MPI_COMM_WORLD, &requests[2 * count + 1]);
    }
    compute_for(grain);
    MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE);
    for (int at = 0; at < count; at++) right &= is_stamped(in + at * words, words, from[at], step);
    long sum, mine = rank + step;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return right && sum == step * size + (long)size * (size - 1) / 2;
}

static const struct pattern {
    const char *name;
    /* Makes a step: computes for the grain, and communicates. */
    int (*step)(long *out, long *in, long words, long step, double grain);
} PATTERNS[] = {{"neighbour", to_neighbour}, {"all", to_all},          {"barrier", in_barrier},
                {"sweep", in_sweeps},        {"overlap", with_overlap}, {"none", not_at_all}};

static const struct pattern *find(const char *name) {
    for (size_t i = 0; i < sizeof PATTERNS / sizeof *PATTERNS; i++)
        if (strcmp(PATTERNS[i].name, name) == 0) return &PATTERNS[i];
    usage_error("--pattern %s: known are neighbour, all, barrier, sweep, overlap, none", name);
}

/* The speed of this rank in a list such as 1,0.5; the last one is that of all further ranks. */
static double speed_in(const char *list) {
    double speed = 1;
    for (int rank = 0; rank <= world_rank(); rank++) {
        char *end;
        speed = strtod(list, &end);
        if (end == list || (*end && *end != ',') || !(speed > 0)) usage_error("--speed: cannot read %s", list);
        if (!*end) break;
        list = end + 1;
    }
    return speed;
}

int main(int argc, char **argv) {
    struct plan plan = {.grain = 0.001, .bytes = 1024};
    double percent = 0, limit = 10;
    long steps = 0, seed = 1;
    int announces = 0;
    const char *pattern_name = "neighbour", *speeds = "1";
    MPI_Init(&argc, &argv);
    parse_options(argc, argv, "grains of computing, and communication between them",
                  (struct cli_option[]){
                      {"grain", CLI_SECONDS, &plan.grain, "processor time of a step (0.001)"},
                      {"pattern", CLI_TEXT, &pattern_name, "neighbour, all, barrier, sweep, overlap or none (neighbour)"},
                      {"bytes", CLI_BYTES, &plan.bytes, "size of a message (1KiB)"},
                      {"imbalance", CLI_SECONDS, &percent, "a grain is longer or shorter by up to so many percent (0)"},
                      {"speed", CLI_TEXT, &speeds, "of each rank, as 1,0.5; the last one is that of all further ranks (1)"},
                      {"steps", CLI_COUNT, &steps, "steps to make; --seconds if 0 (0)"},
                      {"seconds", CLI_SECONDS, &limit, "processor time of rank 0 (10)"},
                      {"seed", CLI_COUNT, &seed, "of the imbalance (1)"},
                      {"announce", CLI_FLAG, &announces, "say when all ranks are there"},
                      {NULL, 0, NULL, NULL}});
    const struct pattern *pattern = find(pattern_name);
    plan.imbalance = fmin(percent, 100) / 100;
    plan.speed = speed_in(speeds);
    plan.random = (unsigned long)seed * 1000003UL + (unsigned long)world_rank();
    long words = (plan.bytes + (long)sizeof(long) - 1) / (long)sizeof(long), step = 0;
    if (words > 1L << 24) usage_error("--bytes: a message has at most 128 MiB");
    long *out = allocate(world_size() * words * sizeof *out), *in = allocate(world_size() * words * sizeof *in);
    int right = 1;
    if (announces) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (world_rank() == 0 && (puts("begins") < 0 || fflush(stdout) != 0)) right = 0;
    }
    double begun = seconds_now();
    struct work work = work_of(limit);
    for (int done = 0; !done; step++) {
        double grain = plan.grain / plan.speed * (1 + plan.imbalance * (2 * chance(&plan) - 1));
        right &= pattern->step(out, in, words, step, grain);
        work_count(&work);
        /* Without messages no rank waits for another one, so each counts its own time. */
        if (steps) done = step + 1 >= steps;
        else if (pattern->step == not_at_all) done = work.used >= limit;
        else if (step % 64 == 63) done = work_is_done(&work);
    }
    if (world_rank() == 0) {
        double took = seconds_now() - begun, waited = took - computed;
        printf("{\"steps\": %ld, \"seconds\": %.6f, \"step_us\": %.3f, \"wait_us\": %.3f}\n", step, took,
               took / (double)step * 1e6, waited / (double)step * 1e6);
    }
    int verdict = conclude("grains", right);
    MPI_Finalize();
    return verdict;
}
