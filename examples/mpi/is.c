/* NAS IS: ranks of integer keys, ten times over, by a parallel bucket sort (NAS-95-020, section 2.3.5).
 * Written from the specification. Any number of ranks. Each iteration moves nearly all keys in one all-to-all
 * exchange: bandwidth-bound.
 *
 * A bucket is an interval of key values. Buckets are dealt to ranks in order, so that each gets about its
 * share of keys; a rank then counts the keys of its interval by value, which gives the rank of each. */
#include "nas.h"

#define SEED 314159265ull
enum { ITERATIONS = 10, BUCKETS_LOG = 10, BUCKETS = 1 << BUCKETS_LOG, TESTS = 5 };

/* In iteration i the key at `place` must have rank `rank` + `slope` * i + `offset`: the changed keys are
 * small and large ones, which push the others up or down. */
struct test {
    int64_t place, rank;
    int slope, offset;
};

struct problem {
    int keys_log, values_log;
    struct test tests[TESTS];
};

static const struct problem PROBLEMS[] = {
    {16,
     11,
     {{48427, 0, 1, 0}, {17148, 18, 1, 0}, {23627, 346, 1, 0}, {62548, 64917, -1, 0}, {4431, 65463, -1, 0}}},
    {20,
     16,
     {{357773, 1249, 1, -2},
      {934767, 11698, 1, -2},
      {875723, 1039987, -1, 0},
      {898999, 1043896, -1, 0},
      {404505, 1048018, -1, 0}}},
    {23,
     19,
     {{2112377, 104, 1, -1},
      {662041, 17523, 1, -1},
      {5336171, 123928, 1, -1},
      {3642833, 8288932, -1, 1},
      {4250760, 8388264, -1, 1}}},
    {25,
     21,
     {{41869, 33422937, -1, 0},
      {812306, 10244, 1, 0},
      {5102857, 59149, 1, 0},
      {18232239, 33135281, -1, 0},
      {26860214, 99, 1, 0}}},
};

struct sort {
    struct problem problem;
    int64_t first; /* place of this rank's first key in the whole sequence */
    int count;     /* of this rank's keys */
    int32_t *keys, *initial;
    int32_t *grouped; /* the keys in the order of their buckets */
    int32_t *received;
    int received_count, received_room;
    int first_value, values; /* interval of key values this rank counts */
    int32_t *count_of_value;
    int64_t keys_below; /* how many keys belong to lower ranks */
};

static int64_t place_of_rank(const struct sort *s, int rank) {
    return ((int64_t)rank << s->problem.keys_log) / world_size();
}

static void make_keys(struct sort *s) {
    s->first = place_of_rank(s, world_rank());
    s->count = (int)(place_of_rank(s, world_rank() + 1) - s->first);
    s->keys = allocate(s->count * sizeof(int32_t));
    s->initial = allocate(s->count * sizeof(int32_t));
    s->grouped = allocate(s->count * sizeof(int32_t));
    uint64_t state = nas_jump(SEED, 4 * (uint64_t)s->first);
    double scale = (double)(1 << s->problem.values_log) / 4;
    for (int i = 0; i < s->count; i++) {
        double sum = nas_uniform(&state);
        for (int k = 0; k < 3; k++) sum += nas_uniform(&state);
        s->initial[i] = (int32_t)(scale * sum);
    }
}

/* The specification changes two keys before each ranking, so that no iteration can reuse the one before. */
static void change_keys(struct sort *s, int iteration) {
    int64_t places[] = {iteration, iteration + ITERATIONS};
    int32_t values[] = {iteration, (1 << s->problem.values_log) - iteration};
    for (int i = 0; i < 2; i++)
        if (places[i] >= s->first && places[i] < s->first + s->count)
            s->keys[places[i] - s->first] = values[i];
}

/* Global number of keys per bucket, and the keys at the test places, in one reduction. */
struct survey {
    int64_t bucket[BUCKETS], test_key[TESTS];
};

static int bucket_of(const struct sort *s, int32_t key) {
    return key >> (s->problem.values_log - BUCKETS_LOG);
}

static struct survey take_survey(const struct sort *s, struct survey *mine) {
    struct survey total;
    memset(mine, 0, sizeof *mine);
    for (int i = 0; i < s->count; i++) mine->bucket[bucket_of(s, s->keys[i])]++;
    for (int t = 0; t < TESTS; t++) {
        int64_t at = s->problem.tests[t].place - s->first;
        if (at >= 0 && at < s->count) mine->test_key[t] = s->keys[at];
    }
    MPI_Allreduce(mine, &total, sizeof total / sizeof(int64_t), MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return total;
}

/* first_bucket[r] is where the buckets of rank r begin: the first bucket that starts at or after its share of
 * the keys. */
static void deal_buckets(const struct sort *s, const struct survey *total, int *first_bucket) {
    int bucket = 0;
    int64_t below = 0;
    for (int rank = 0; rank < world_size(); rank++) {
        while (bucket < BUCKETS && below < place_of_rank(s, rank)) below += total->bucket[bucket++];
        first_bucket[rank] = bucket;
    }
    first_bucket[world_size()] = BUCKETS;
}

static void group_keys(struct sort *s, const struct survey *mine) {
    int at[BUCKETS], sum = 0;
    for (int b = 0; b < BUCKETS; b++) {
        at[b] = sum;
        sum += (int)mine->bucket[b];
    }
    for (int i = 0; i < s->count; i++) s->grouped[at[bucket_of(s, s->keys[i])]++] = s->keys[i];
}

static void exchange_keys(struct sort *s, const struct survey *mine, const int *first_bucket) {
    int size = world_size(), out[size], in[size], out_at[size], in_at[size], out_sum = 0, in_sum = 0;
    for (int rank = 0; rank < size; rank++) {
        out[rank] = 0;
        out_at[rank] = out_sum;
        for (int b = first_bucket[rank]; b < first_bucket[rank + 1]; b++) out[rank] += (int)mine->bucket[b];
        out_sum += out[rank];
    }
    MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD);
    for (int rank = 0; rank < size; rank++) {
        in_at[rank] = in_sum;
        in_sum += in[rank];
    }
    if (in_sum > s->received_room) {
        free(s->received);
        s->received_room = in_sum + in_sum / 8;
        s->received = allocate(s->received_room * sizeof(int32_t));
    }
    s->received_count = in_sum;
    MPI_Alltoallv(s->grouped, out, out_at, MPI_INT32_T, s->received, in, in_at, MPI_INT32_T, MPI_COMM_WORLD);
}

static void count_values(struct sort *s, const struct survey *total, const int *first_bucket) {
    int shift = s->problem.values_log - BUCKETS_LOG, first = first_bucket[world_rank()],
        end = first_bucket[world_rank() + 1];
    s->first_value = first << shift;
    s->values = (end - first) << shift;
    s->keys_below = 0;
    for (int b = 0; b < first; b++) s->keys_below += total->bucket[b];
    memset(s->count_of_value, 0, s->values * sizeof(int32_t));
    for (int i = 0; i < s->received_count; i++) s->count_of_value[s->received[i] - s->first_value]++;
}

/* Checks the keys at the test places that lie in this rank's interval; returns the number of correct ones. */
static int right_tests(const struct sort *s, const struct survey *total, int iteration) {
    int right = 0;
    for (int t = 0; t < TESTS; t++) {
        const struct test *test = &s->problem.tests[t];
        int64_t rank = s->keys_below, key = total->test_key[t] - s->first_value;
        if (key < 0 || key >= s->values) continue;
        for (int64_t value = 0; value < key; value++) rank += s->count_of_value[value];
        right += rank == test->rank + test->slope * iteration + test->offset;
    }
    return right;
}

static int rank_keys(struct sort *s, int iteration) {
    int first_bucket[world_size() + 1], right, all_right;
    struct survey mine;
    change_keys(s, iteration);
    struct survey total = take_survey(s, &mine);
    deal_buckets(s, &total, first_bucket);
    group_keys(s, &mine);
    exchange_keys(s, &mine, first_bucket);
    count_values(s, &total, first_bucket);
    right = right_tests(s, &total, iteration);
    MPI_Allreduce(&right, &all_right, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return all_right == TESTS;
}

/* Full verification: puts the keys at their ranks and checks that they are in order, also across ranks, and
 * that none is missing. */
static int in_order(struct sort *s) {
    int good = 1, at = 0;
    int32_t *sorted = allocate(s->received_count * sizeof(int32_t));
    for (int value = 0; value < s->values; value++)
        for (int i = 0; i < s->count_of_value[value] && at < s->received_count; i++)
            sorted[at++] = s->first_value + value;
    for (int i = 1; i < at; i++) good &= sorted[i - 1] <= sorted[i];
    /* The largest key of all lower ranks must not exceed my smallest. */
    int largest = at ? sorted[at - 1] : -1, before = -1;
    MPI_Exscan(&largest, &before, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (world_rank() > 0 && at) good &= before <= sorted[0];
    int64_t counts[2] = {at, 0}, key_sums[2] = {0, 0}, totals[2];
    for (int i = 0; i < at; i++) key_sums[0] += sorted[i];
    for (int i = 0; i < s->count; i++) key_sums[1] += s->keys[i];
    counts[1] = key_sums[0] - key_sums[1];
    MPI_Allreduce(counts, totals, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    free(sorted);
    return good && totals[0] == 1ll << s->problem.keys_log && totals[1] == 0;
}

static int sort_keys(void *context) {
    struct sort *s = context;
    int good = 1;
    memcpy(s->keys, s->initial, s->count * sizeof(int32_t));
    for (int iteration = 1; iteration <= ITERATIONS; iteration++) {
        int right = rank_keys(s, iteration);
        if (!right && world_rank() == 0)
            printf("is: partial verification of iteration %d failed\n", iteration);
        good &= right;
        nas_count();
    }
    int ordered = in_order(s), everywhere;
    MPI_Allreduce(&ordered, &everywhere, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    if (!everywhere && world_rank() == 0) printf("is: full verification failed\n");
    return good && everywhere;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    struct nas_options chosen = nas_options(argc, argv, "NAS IS; any number of ranks");
    struct sort s = {.problem = PROBLEMS[nas_class_index(chosen.class_name)]};
    s.count_of_value = allocate((1 << s.problem.values_log) * sizeof(int32_t));
    make_keys(&s);
    int code = conclude("is", nas_repeat("is", &chosen, sort_keys, &s));
    MPI_Finalize();
    return code;
}
