/* Attacks by paths: its own output, its segment's name, and what belongs to others. */
#define _GNU_SOURCE
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

/* The path of an open file. */
static const char *path_of(long fd) {
    static char path[4096];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%ld", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) cannot("find the path of a file");
    path[length] = 0;
    return path;
}

/* Its standard error gives way to something else, and it fails: its daemon looks for its last words there. */
static const char *without_output(void) {
    const char *path = path_of(STDERR_FILENO);
    if (unlink(path)) cannot("remove its output");
    return path;
}

static int output_fifo(void) {
    if (mkfifo(without_output(), 0600)) cannot("make a FIFO");
    return 3;
}

static int output_link(void) {
    if (symlink("/etc/passwd", without_output())) cannot("make a link");
    return 3;
}

static int output_directory(void) {
    if (mkdir(without_output(), 0700)) cannot("make a directory");
    return 3;
}

static int output_removed(void) {
    without_output();
    return 3;
}

static int output_huge(void) {
    static char line[1 << 20];
    memset(line, 'x', sizeof line);
    for (int nth = 0; nth < 32; nth++)
        if (write(STDERR_FILENO, line, sizeof line) < 0) return 4;
    return 3;
}

static int output_sparse(void) {
    if (ftruncate(STDERR_FILENO, 1ll << 40)) return 4;
    return 3;
}

static int output_binary(void) {
    unsigned char bytes[4096];
    int source = open("/dev/urandom", O_RDONLY);
    for (int nth = 0; nth < 64; nth++)
        if (read(source, bytes, sizeof bytes) < 0 || write(STDERR_FILENO, bytes, sizeof bytes) < 0) return 4;
    return 3;
}

static int output_escapes(void) {
    fputs("\033[2J\033]0;hostile\007<script>alert(1)</script>\n\"}],{\r\n\xff\xfe\n", stderr);
    return 3;
}

static int segment_removed(void) {
    unlink(path_of(variable("COSWITCH_SEGMENT")));
    rest(0.5);
    return 0;
}

static int segment_replaced(void) {
    const char *path = path_of(variable("COSWITCH_SEGMENT"));
    unlink(path);
    int file = open(path, O_CREAT | O_RDWR, 0600);
    if (file >= 0) (void)!ftruncate(file, 1 << 20);
    rest(0.5);
    return 0;
}

static int segment_in_file(void) {
    /* Its descriptors number 0 to 99 are all the segment. */
    int fd = (int)variable("COSWITCH_SEGMENT");
    for (int other = 0; other < 100; other++)
        if (other != fd) dup2(fd, other);
    rest(0.5);
    return 0;
}

/* What is not its own: opened for reading or for writing counts as broken in. */

static int broken_in;
static char own[4096];

static int try_to_open(const char *path, const struct stat *found, int kind, struct FTW *at) {
    (void)at;
    if (kind == FTW_D || (found && S_ISFIFO(found->st_mode))) return 0;
    if (*own && !strcmp(path, own)) return 0;
    for (int mode = O_RDONLY; mode <= O_RDWR; mode += O_RDWR) {
        int file = open(path, mode | O_NONBLOCK | O_NOFOLLOW);
        if (file >= 0) {
            fprintf(stderr, "opened %s\n", path);
            broken_in++, close(file);
        }
    }
    return 0;
}

static int try_all(const char *root) {
    nftw(root, try_to_open, 32, FTW_PHYS | FTW_MOUNT);
    return broken_in ? 77 : 0;
}

static int others_segments(void) {
    snprintf(own, sizeof own, "%s", path_of(variable("COSWITCH_SEGMENT")));
    return try_all("/dev/shm");
}

static int notes(void) {
    return try_all("/run/coswitch");
}

static int others_images(void) {
    return try_all("/var/lib/coswitch");
}

/* Of every process, those of other jobs and of the daemons among them, by their numbers: those that /proc does not
   list as well. A busy machine comes to the lowest million of the four in ten seconds. */
static int others_in_proc(const char *file, int mode) {
    time_t until = time(NULL) + 10;
    for (int pid = 1; pid < 1 << 22 && (pid % 1024 || time(NULL) < until); pid++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/status", pid);
        struct stat found;
        if (stat(path, &found) || found.st_uid == geteuid()) continue;
        snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
        int opened = open(path, mode | O_NONBLOCK);
        if (opened >= 0) {
            fprintf(stderr, "opened %s\n", path);
            broken_in++, close(opened);
        }
    }
    return broken_in ? 77 : 0;
}

static int others_memory(void) {
    return others_in_proc("mem", O_RDWR);
}

static int others_environment(void) {
    return others_in_proc("environ", O_RDONLY);
}

static int others_descriptors(void) {
    return others_in_proc("fd/3", O_RDWR);
}

static int leave_group(const char *path, const struct stat *found, int kind, struct FTW *at) {
    (void)found, (void)kind;
    const char *name = path + at->base;
    if (strcmp(name, "cgroup.procs") && strcmp(name, "cgroup.freeze") && strcmp(name, "cgroup.kill") &&
        strcmp(name, "pids.max") && strcmp(name, "memory.limit_in_bytes"))
        return 0;
    int file = open(path, O_WRONLY);
    if (file >= 0) {
        fprintf(stderr, "opened %s\n", path);
        broken_in++, close(file);
    }
    return 0;
}

static int groups(void) {
    nftw("/sys/fs/cgroup", leave_group, 32, FTW_PHYS);
    return broken_in ? 77 : 0;
}

#define REFUSED "as what belongs to others: it is refused"
const struct attack FILE_ATTACKS[] = {
    {"output-fifo", ALONE, NOTHING, FAILS, "",
     "puts a FIFO in the place of its output, and fails", output_fifo},
    {"output-link", ALONE, NOTHING, FAILS, "", "puts a link to /etc/passwd there", output_link},
    {"output-directory", ALONE, NOTHING, FAILS, "", "puts a directory there", output_directory},
    {"output-removed", ALONE, NOTHING, FAILS, "", "removes its output", output_removed},
    {"output-huge", ALONE, NOTHING, FAILS, "", "prints a line of 32 MiB", output_huge},
    {"output-sparse", ALONE, NOTHING, FAILS, "", "makes its output 1 TiB long", output_sparse},
    {"output-binary", ALONE, NOTHING, FAILS, "", "prints random bytes", output_binary},
    {"output-escapes", ALONE, NOTHING, FAILS, "",
     "prints what terminals, pages and JSON interpret", output_escapes},
    {"segment-removed", ALONE, NOTHING, EITHER, "", "removes the name of its segment", segment_removed},
    {"segment-replaced", ALONE, NOTHING, EITHER, "",
     "puts another file in the place of its segment", segment_replaced},
    {"segment-descriptors", ALONE, NOTHING, ENDS_WELL, "",
     "closes its socket for copies of the segment's descriptor", segment_in_file},
    {"others-segments", ALONE, USER, ENDS_WELL, "", "opens segments " REFUSED, others_segments},
    {"others-images", ALONE, USER, ENDS_WELL, "", "opens snapshots " REFUSED, others_images},
    {"others-notes", ALONE, USER, ENDS_WELL, "", "opens the notes of daemons " REFUSED, notes},
    {"others-memory", ALONE, USER, ENDS_WELL, "", "opens the memory of processes " REFUSED, others_memory},
    {"others-environment", ALONE, USER, ENDS_WELL, "",
     "opens the environment of processes " REFUSED, others_environment},
    {"others-descriptors", ALONE, USER, ENDS_WELL, "",
     "opens descriptors of processes " REFUSED, others_descriptors},
    {"groups", ALONE, USER, ENDS_WELL, "", "opens control groups to write " REFUSED, groups},
    {NULL, 0, 0, 0, NULL, NULL, NULL},
};
