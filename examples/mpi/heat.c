/* Explicit heat equation in three dimensions, with halo exchange, filling a given amount of memory per rank.
 *
 * u' = s (u + sum over d of a_d (u[-1] - 2 u + u[+1])) with u = 0 on the walls. The start value, a product of
 * half sine waves, is an eigenvector of this discrete operator: each step multiplies it by s g, where g = 1 -
 * sum of 2 a_d (1 - cos(pi / (N_d + 1))). The source term s is chosen so that s g = 1 - 1e-5 whatever the
 * grid: slow enough to run for hours, fast enough that a halo one step old is an error a million times larger
 * than rounding. The a_d differ, so that a face delivered to the wrong side shows as well. */
#include "support.h"
#include <math.h>

#define DECAY 1e-5 /* a step */
static const double DIFFUSION[3] = {1.0 / 8, 1.0 / 10, 1.0 / 12};

enum { CHECK_EVERY = 20 }; /* steps between agreeing on whether to stop */

struct face {
    double *out, *in;
};

struct field {
    MPI_Comm grid;      /* Cartesian communicator */
    int dims[3], at[3]; /* process grid and place in it */
    int side;           /* interior points of a rank in each dimension */
    size_t stride[3];
    double *now, *next;
    double *wave[3]; /* sin(pi (i + 1) / (N + 1)) of this rank's points */
    double centre, neighbour[3];
    struct face faces[3][2];
    int peers[3][2];
};

static size_t index_of(const struct field *f, int x, int y, int z) {
    return x * f->stride[0] + y * f->stride[1] + z;
}

static double pi(void) { return acos(-1); }

static void make_waves(struct field *f) {
    double growth = 1;
    for (int d = 0; d < 3; d++) {
        int total = f->dims[d] * f->side;
        f->wave[d] = allocate(f->side * sizeof(double));
        for (int i = 0; i < f->side; i++)
            f->wave[d][i] = sin(pi() * (f->at[d] * f->side + i + 1) / (total + 1));
        growth -= 2 * DIFFUSION[d] * (1 - cos(pi() / (total + 1)));
    }
    double source = (1 - DECAY) / growth;
    f->centre = source;
    for (int d = 0; d < 3; d++) {
        f->centre -= 2 * source * DIFFUSION[d];
        f->neighbour[d] = source * DIFFUSION[d];
    }
}

static struct field make_field(long memory) {
    struct field f = {.side = (int)cbrt((double)memory / (2 * sizeof(double))) - 2};
    /* Besides the two fields there are twelve face buffers and the waves: reduce the grid by their size. */
    while (f.side > 2 && 16 * pow(f.side + 2, 3) + 96 * pow(f.side, 2) > (double)memory) f.side--;
    if (f.side < 2) usage_error("--memory is too small: at least 4KiB");
    int periods[3] = {0, 0, 0}, rank;
    MPI_Dims_create(world_size(), 3, f.dims);
    MPI_Cart_create(MPI_COMM_WORLD, 3, f.dims, periods, 1, &f.grid);
    MPI_Comm_rank(f.grid, &rank);
    MPI_Cart_coords(f.grid, rank, 3, f.at);
    size_t edge = f.side + 2, points = edge * edge * edge, face = (size_t)f.side * f.side * sizeof(double);
    f.stride[0] = edge * edge;
    f.stride[1] = edge;
    f.stride[2] = 1;
    f.now = allocate(points * sizeof(double));
    f.next = allocate(points * sizeof(double));
    memset(f.now, 0, points * sizeof(double));
    memset(f.next, 0, points * sizeof(double));
    for (int d = 0; d < 3; d++) {
        MPI_Cart_shift(f.grid, d, 1, &f.peers[d][0], &f.peers[d][1]);
        for (int side = 0; side < 2; side++) f.faces[d][side] = (struct face){allocate(face), allocate(face)};
    }
    make_waves(&f);
    for (int x = 0; x < f.side; x++)
        for (int y = 0; y < f.side; y++)
            for (int z = 0; z < f.side; z++)
                f.now[index_of(&f, x + 1, y + 1, z + 1)] = f.wave[0][x] * f.wave[1][y] * f.wave[2][z];
    return f;
}

/* Copies one layer of the current field to (`pack`) or from a face buffer. */
static void copy_layer(struct field *f, int d, int layer, double *buffer, int pack) {
    size_t u = f->stride[(d + 1) % 3], v = f->stride[(d + 2) % 3];
    if (u < v) {
        size_t swap = u;
        u = v;
        v = swap;
    }
    double *base = f->now + layer * f->stride[d] + u + v;
    for (int i = 0; i < f->side; i++)
        for (int j = 0; j < f->side; j++) {
            if (pack) *buffer++ = base[i * u + j * v];
            else base[i * u + j * v] = *buffer++;
        }
}

static void exchange_halo(struct field *f) {
    MPI_Request requests[12];
    int count = 0, numbers = f->side * f->side;
    for (int d = 0; d < 3; d++)
        for (int side = 0; side < 2; side++)
            MPI_Irecv(f->faces[d][side].in, numbers, MPI_DOUBLE, f->peers[d][side], 2 * d + 1 - side, f->grid,
                      &requests[count++]);
    for (int d = 0; d < 3; d++)
        for (int side = 0; side < 2; side++) {
            if (f->peers[d][side] != MPI_PROC_NULL)
                copy_layer(f, d, side ? f->side : 1, f->faces[d][side].out, 1);
            MPI_Isend(f->faces[d][side].out, numbers, MPI_DOUBLE, f->peers[d][side], 2 * d + side, f->grid,
                      &requests[count++]);
        }
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    for (int d = 0; d < 3; d++)
        for (int side = 0; side < 2; side++)
            if (f->peers[d][side] != MPI_PROC_NULL)
                copy_layer(f, d, side ? f->side + 1 : 0, f->faces[d][side].in, 0);
}

static void step(struct field *f) {
    exchange_halo(f);
    const double c = f->centre, cx = f->neighbour[0], cy = f->neighbour[1], cz = f->neighbour[2];
    const size_t sx = f->stride[0], sy = f->stride[1];
    for (int x = 1; x <= f->side; x++)
        for (int y = 1; y <= f->side; y++) {
            const double *restrict u = f->now + index_of(f, x, y, 0);
            double *restrict out = f->next + index_of(f, x, y, 0);
            for (int z = 1; z <= f->side; z++)
                out[z] = c * u[z] + cx * (u[z - sx] + u[z + sx]) + cy * (u[z - sy] + u[z + sy]) +
                         cz * (u[z - 1] + u[z + 1]);
        }
    double *swap = f->now;
    f->now = f->next;
    f->next = swap;
}

/* `rounds` more multiply-adds for each point, which do not change the field: more computing, equal
 * traffic. */
static double extra_work(const struct field *f, long rounds) {
    double sum = 0;
    for (int x = 1; x <= f->side && rounds; x++)
        for (int y = 1; y <= f->side; y++) {
            const double *u = f->now + index_of(f, x, y, 0);
            for (int z = 1; z <= f->side; z++) {
                double value = u[z];
                for (long k = 0; k < rounds; k++) value = value * 0.999 + 1e-3;
                sum += value;
            }
        }
    return sum;
}

/* Largest distance from the analytic solution over all points of all ranks, relative to its amplitude. */
static double worst_error(const struct field *f, long steps) {
    double amplitude = exp((double)steps * log1p(-DECAY)), worst = 0, everywhere;
    for (int x = 0; x < f->side; x++)
        for (int y = 0; y < f->side; y++)
            for (int z = 0; z < f->side; z++) {
                double exact = f->wave[0][x] * f->wave[1][y] * f->wave[2][z];
                double error = fabs(f->now[index_of(f, x + 1, y + 1, z + 1)] / amplitude - exact);
                if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
            }
    MPI_Allreduce(&worst, &everywhere, 1, MPI_DOUBLE, MPI_MAX, f->grid);
    return everywhere;
}

static void report(long done, long steps, double begin) {
    static double last;
    double now = seconds_now();
    if (world_rank() != 0 || now - last < 1) return;
    last = now;
    if (steps) printf("heat: step %ld of %ld, %.1f s\n", done, steps, now - begin);
    else printf("heat: step %ld, %.1f s\n", done, now - begin);
    fflush(stdout);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    long memory = 64 << 20, steps = 0, compute = 0, done = 0;
    double seconds = 0, sink = 0;
    const struct cli_option options[] = {
        {"memory", CLI_BYTES, &memory, "memory of the fields per rank (default 64MiB)"},
        {"steps", CLI_COUNT, &steps, "time steps (default 200)"},
        {"seconds", CLI_SECONDS, &seconds, "step until this much processor time is used instead"},
        {"compute", CLI_COUNT, &compute, "extra multiply-adds per point and step (default 0)"},
        {0},
    };
    parse_options(argc, argv, "3-D heat equation with halo exchange, checked against the analytic solution",
                  options);
    if (steps && seconds > 0) usage_error("give --steps or --seconds, not both");
    if (!steps && !(seconds > 0)) steps = 200;
    struct field field = make_field(memory);
    if (world_rank() == 0)
        printf("heat: %d x %d x %d ranks of %d^3 points\n", field.dims[0], field.dims[1], field.dims[2],
               field.side);
    double begin = seconds_now();
    struct work work = work_of(seconds);
    while (steps ? done < steps : done % CHECK_EVERY || !work_is_done(&work)) {
        step(&field);
        sink += extra_work(&field, compute);
        work_count(&work);
        report(++done, steps, begin);
    }
    double error = worst_error(&field, done), tolerance = 2e-14 + 2e-15 * (double)done;
    if (world_rank() == 0)
        printf("heat: %ld steps, %.3f s, largest error %.2e of %.2e allowed\n", done, seconds_now() - begin,
               error, tolerance);
    int code = conclude("heat", error <= tolerance && isfinite(sink));
    MPI_Finalize();
    return code;
}
