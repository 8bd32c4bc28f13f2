/* NAS EP: pairs of Gaussian deviates by the polar method, counted by square annulus (NAS-95-020, sections 2.2
 * and 2.3.1). Written from the specification. Any number of ranks. It communicates only the sums at the end
 * of each repetition: the compute-bound partner of a pair. */
#include "nas.h"
#include <math.h>

#define SEED 271828183ull
enum { BATCH_LOG = 16, ANNULI = 10 };

struct problem {
    int pairs_log;
    double sum_x, sum_y;
    int64_t accepted; /* pairs inside the unit circle */
};

static const struct problem PROBLEMS[] = {
    {24, -3.247834652034740e3, -6.958407078382297e3, 13176389},
    {25, -2.863319731645753e3, -6.320053679109499e3, 26354769},
    {28, -4.295875165629892e3, -1.580732573678431e4, 210832767},
    {30, 4.033815542441498e4, -2.660669192809235e4, 843345606},
};

/* All doubles, so that one reduction adds them up; counts below 2^53 stay exact. */
struct sums {
    double x, y, counts[ANNULI];
};

static void add_batch(struct sums *sums, int64_t batch) {
    int64_t pairs = 1ll << BATCH_LOG;
    uint64_t state = nas_jump(SEED, 2 * (uint64_t)(batch * pairs));
    for (int64_t i = 0; i < pairs; i++) {
        double x = 2 * nas_uniform(&state) - 1, y = 2 * nas_uniform(&state) - 1, t = x * x + y * y;
        if (t > 1) continue;
        double scale = sqrt(-2 * log(t) / t), gauss_x = x * scale, gauss_y = y * scale;
        sums->counts[(int)fmax(fabs(gauss_x), fabs(gauss_y))]++;
        sums->x += gauss_x;
        sums->y += gauss_y;
    }
}

static int close_to(double value, double official) { return fabs((value - official) / official) <= 1e-8; }

static int deviates(void *context) {
    const struct problem *problem = context;
    struct sums mine = {0}, total;
    int64_t batches = 1ll << (problem->pairs_log - BATCH_LOG);
    for (int64_t batch = world_rank(); batch < batches; batch += world_size()) {
        add_batch(&mine, batch);
        nas_count();
    }
    MPI_Allreduce(&mine, &total, sizeof total / sizeof(double), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    int64_t accepted = 0;
    for (int i = 0; i < ANNULI; i++) accepted += (int64_t)total.counts[i];
    if (world_rank() == 0) {
        printf("ep: sums %.12e and %.12e, official values %.12e and %.12e\n", total.x, total.y,
               problem->sum_x, problem->sum_y);
        printf("ep: %lld pairs, by annulus", (long long)accepted);
        for (int i = 0; i < ANNULI; i++) printf(" %.0f", total.counts[i]);
        printf("\n");
    }
    return close_to(total.x, problem->sum_x) && close_to(total.y, problem->sum_y) &&
           accepted == problem->accepted;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    struct nas_options chosen = nas_options(argc, argv, "NAS EP; any number of ranks");
    struct problem problem = PROBLEMS[nas_class_index(chosen.class_name)];
    int code = conclude("ep", nas_repeat("ep", &chosen, deviates, &problem));
    MPI_Finalize();
    return code;
}
