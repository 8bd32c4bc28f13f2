/* Shared by all example programs: command-line options, clocks, sizes, memory, failure.
 *
 * Header only, so that each program needs a single compiler call. Every rank parses the same command line and
 * reaches the same verdict; only rank 0 prints. Exit codes: 0 verified, 1 verification failed, 2 wrong
 * usage. */
#ifndef COSWITCH_EXAMPLES_SUPPORT_H
#define COSWITCH_EXAMPLES_SUPPORT_H

#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EXIT_VERIFIED = 0, EXIT_UNVERIFIED = 1, EXIT_USAGE = 2 };

enum cli_kind { CLI_COUNT, CLI_SECONDS, CLI_BYTES, CLI_TEXT, CLI_FLAG };

/* One option; `value` points at a long, double, long, const char * or int, in the order of cli_kind. */
struct cli_option {
    const char *name;
    enum cli_kind kind;
    void *value;
    const char *help;
};

static inline int world_rank(void) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

static inline int world_size(void) {
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

/* Ends the program on every rank with the usage code; only for errors that all ranks detect. */
static inline void __attribute__((noreturn, format(printf, 1, 2))) usage_error(const char *format, ...) {
    if (world_rank() == 0) {
        va_list arguments;
        va_start(arguments, format);
        fputs("error: ", stderr);
        vfprintf(stderr, format, arguments);
        fputc('\n', stderr);
        va_end(arguments);
    }
    MPI_Finalize();
    exit(EXIT_USAGE);
}

static inline void *allocate(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) {
        fprintf(stderr, "error: rank %d cannot allocate %zu bytes\n", world_rank(), bytes);
        MPI_Abort(MPI_COMM_WORLD, EXIT_UNVERIFIED);
    }
    return memory;
}

static inline double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Work given by time: `seconds` of processor time of rank 0. It outlasts a slot on a fast machine as on a slow one,
 * and time suspended or parked does not count. */
struct work {
    double seconds, used, last;
};

static inline double processor_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static inline struct work work_of(double seconds) {
    return (struct work){.seconds = seconds, .last = processor_seconds()};
}

/* Counts the time used so far. The clock of a restored process begins anew, so what was not counted before the process
 * was parked is lost: call this more often than that can happen. */
static inline void work_count(struct work *work) {
    double now = processor_seconds();
    work->used += now < work->last ? now : now - work->last;
    work->last = now;
}

/* Uses `seconds` of processor time, also where the process is parked meanwhile. */
static inline void compute(double seconds) {
    struct work work = work_of(seconds);
    while (work.used < work.seconds) work_count(&work);
}

/* Collective: rank 0 decides for all ranks, which must do the same number of steps. */
static inline int work_is_done(struct work *work) {
    work_count(work);
    int done = work->used >= work->seconds;
    MPI_Bcast(&done, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return done;
}

/* Accepts 4096, 64KiB, 200MiB, 1GiB and the decimal KB, MB, GB; -1 if it is none of these. */
static inline long parse_bytes(const char *text) {
    static const struct {
        const char *name;
        double factor;
    } UNITS[] = {
        {"", 1},     {"B", 1},    {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0},
        {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
    };
    char *end;
    double number = strtod(text, &end);
    if (end == text || !(number >= 0)) return -1;
    for (size_t i = 0; i < sizeof UNITS / sizeof *UNITS; i++)
        if (strcmp(end, UNITS[i].name) == 0)
            return number * UNITS[i].factor < 9e15 ? (long)(number * UNITS[i].factor) : -1;
    return -1;
}

static inline void print_usage(const char *program, const char *about, const struct cli_option *options) {
    static const char *const PLACEHOLDER[] = {"N", "SECONDS", "SIZE", "TEXT", ""};
    printf("%s: %s\n", program, about);
    for (; options->name; options++)
        printf("  --%-12s %-8s %s\n", options->name, PLACEHOLDER[options->kind], options->help);
}

static inline int store_option(const struct cli_option *option, const char *text) {
    char *end = NULL;
    switch (option->kind) {
    case CLI_COUNT: {
        long value = strtol(text, &end, 10);
        if (end == text || *end || value < 0) return 0;
        *(long *)option->value = value;
        return 1;
    }
    case CLI_SECONDS: {
        double value = strtod(text, &end);
        if (end == text || (*end && strcmp(end, "s") != 0) || !(value >= 0)) return 0;
        *(double *)option->value = value;
        return 1;
    }
    case CLI_BYTES: {
        long value = parse_bytes(text);
        if (value < 0) return 0;
        *(long *)option->value = value;
        return 1;
    }
    case CLI_TEXT: *(const char **)option->value = text; return 1;
    case CLI_FLAG: break;
    }
    return 0;
}

/* Call after MPI_Init; `options` ends with a row whose name is NULL. */
static inline void parse_options(int argc, char **argv, const char *about, const struct cli_option *options) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            if (world_rank() == 0) print_usage(argv[0], about, options);
            MPI_Finalize();
            exit(EXIT_VERIFIED);
        }
        const struct cli_option *option = options;
        while (option->name && (strncmp(argv[i], "--", 2) != 0 || strcmp(argv[i] + 2, option->name) != 0))
            option++;
        if (!option->name) usage_error("unknown argument %s (see --help)", argv[i]);
        if (option->kind == CLI_FLAG) *(int *)option->value = 1;
        else if (i + 1 == argc) usage_error("%s needs a value", argv[i]);
        else if (!store_option(option, argv[i + 1]))
            usage_error("%s: cannot read the value %s", argv[i], argv[i + 1]);
        else i++;
    }
}

/* Peak resident memory in MiB, read from /proc because ru_maxrss includes the launcher before exec. */
static inline double peak_resident_mib(void) {
    char line[256];
    double kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    if (!status) return 0;
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "VmHWM: %lf kB", &kib) == 1) break;
    fclose(status);
    return kib / 1024;
}

/* Prints the common verdict of all ranks and returns its exit code. Collective. */
static inline int conclude(const char *program, int verified) {
    int everywhere;
    double mine = peak_resident_mib(), peak;
    MPI_Allreduce(&verified, &everywhere, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    MPI_Reduce(&mine, &peak, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (world_rank() == 0) {
        printf("%s: peak resident memory %.1f MiB per rank\n", program, peak);
        printf(everywhere ? "VERIFICATION SUCCESSFUL\n" : "VERIFICATION FAILED\n");
        fflush(stdout);
    }
    return everywhere ? EXIT_VERIFIED : EXIT_UNVERIFIED;
}

#endif
