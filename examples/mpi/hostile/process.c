/* Attacks with what any process may do: processes, memory, descriptors, signals, ends. */
#include "hostile.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int close_all(void) {
    for (int fd = 0; fd < 1024; fd++) close(fd);
    return 0;
}

/* Two processes for each one, until the limit of the job or this one. */
enum { GENERATIONS = 9 };

static int fork_bomb(void) {
    for (int generation = 0; generation < GENERATIONS; generation++) (void)!fork();
    rest(2);
    return 0;
}

static int memory_bomb(void) {
    enum { STEP = 16 << 20 };
    for (uint64_t taken = 0; taken < 8ull << 30; taken += STEP) {
        char *memory = mmap(NULL, STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return 3;
        memset(memory, 1, STEP);
    }
    return 0;
}

static int descriptor_bomb(void) {
    int count = 0;
    while (count < 2000000 && dup(0) >= 0) count++;
    rest(1);
    return count < 2000000 ? 0 : 3;
}

static void send_all_signals(pid_t target) {
    for (int signal = 1; signal < 65; signal++) kill(target, signal);
}

static int kill_all(void) {
    kill(-1, SIGKILL);
    rest(1);
    return 0;
}

static int signal_init(void) {
    send_all_signals(1);
    rest(5);
    return 0;
}

static int stop_init(void) {
    kill(1, SIGSTOP);
    rest(1);
    return 0;
}

static int stop_itself(void) {
    pid_t self = getpid();
    if (fork() == 0) {
        rest(1.5);
        kill(self, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    wait(NULL);
    return 0;
}

static int trace_init(void) {
    return ptrace(PTRACE_ATTACH, 1, NULL, NULL) == 0 && geteuid() != 0 ? 77 : 0;
}

static int looked_at;

static void look_for_others(void) {
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    struct stat found;
    if (!processes) cannot("list processes");
    while ((entry = readdir(processes)))
        if (isdigit(*entry->d_name) && fstatat(dirfd(processes), entry->d_name, &found, 0) == 0) {
            looked_at++;
            if (found.st_uid != geteuid()) {
                fprintf(stderr, "error: process %s of user %d is to be seen\n", entry->d_name, found.st_uid);
                exit(77);
            }
        }
    closedir(processes);
}

static int see_others(void) {
    repeat(2, look_for_others);
    return looked_at ? 0 : 77;
}

/* They outlive the rank. */
static int orphans(void) {
    for (int nth = 0; nth < 50; nth++)
        if (fork() == 0) {
            setsid();
            if (fork() != 0) _exit(0);
            for (int number = 1; number < 65; number++) signal(number, SIG_IGN);
            rest(1000);
            _exit(0);
        }
    rest(0.3);
    return 0;
}

static int orphan_that_speaks(void) {
    if (fork() == 0) {
        setsid();
        int socket = (int)variable("PMI_FD");
        for (;;)
            if (write(socket, "cmd=get_appnum\n", 15) < 0) rest(0.01);
    }
    rest(0.3);
    return 0;
}

static int exit_255(void) {
    _exit(255);
}

static int crash(void) {
    raise(SIGSEGV);
    return 0;
}

static int abort_itself(void) {
    abort();
}

static int die_in_real_time(void) {
    raise(SIGRTMAX);
    rest(1);
    return 0;
}

static int kill_itself(void) {
    raise(SIGKILL);
    return 0;
}

static int nice_itself(void) {
    setpriority(PRIO_PROCESS, 0, -20);
    setpriority(PRIO_PROCESS, 0, 19);
    rest(0.5);
    return 0;
}

static int limit_itself(void) {
    struct rlimit none = {0, 0};
    for (int resource = 0; resource < RLIMIT_NLIMITS; resource++)
        if (resource != RLIMIT_CPU) setrlimit(resource, &none);
    rest(0.5);
    _exit(0);
}

const struct attack PROCESS_ATTACKS[] = {
    {"close-all", ALONE, NOTHING, ENDS_WELL, "", "closes all of its descriptors", close_all},
    {"fork-bomb", ALONE, NOTHING, EITHER, "",
     "512 processes at once, each of which ends after two seconds", fork_bomb},
    {"memory-bomb", ALONE, LIMITS, FAILS, "", "takes 8 GiB: its job ends", memory_bomb},
    {"descriptor-bomb", ALONE, NOTHING, ENDS_WELL, "",
     "opens as many descriptors as it may have", descriptor_bomb},
    {"kill-all", ALONE, NOTHING, EITHER, "",
     "kills all processes that it can see: those of its job here", kill_all},
    {"signal-init", ALONE, NOTHING, EITHER, "", "sends its launcher every signal", signal_init},
    {"stop-init", ALONE, NOTHING, ENDS_WELL, "", "stops its launcher, which cannot be stopped", stop_init},
    {"stop-itself", ALONE, NOTHING, ENDS_WELL, "", "stops itself for a while", stop_itself},
    {"trace-init", ALONE, NOTHING, EITHER, "", "traces its launcher", trace_init},
    {"see-others", ALONE, USER, ENDS_WELL, "", "looks for processes of other users: it finds none", see_others},
    {"rseq-section", ALONE, NOTHING, ENDS_WELL, "",
     "takes over whatever executes code in it (CVE-2026-18107): nothing does", take_over_checkpointer},
    {"orphans", ALONE, NOTHING, ENDS_WELL, "",
     "leaves 50 daemons that ignore all signals: they end with it", orphans},
    {"orphan-speaks", ALONE, NOTHING, ENDS_WELL, "",
     "leaves a process that sends lines to its socket without end", orphan_that_speaks},
    {"exit-255", ALONE, NOTHING, FAILS, "", "ends with the greatest code", exit_255},
    {"crash", ALONE, NOTHING, FAILS, "", "ends by SIGSEGV", crash},
    {"abort", ALONE, NOTHING, FAILS, "", "ends by SIGABRT", abort_itself},
    {"real-time-signal", ALONE, NOTHING, FAILS, "", "ends by the last real-time signal", die_in_real_time},
    {"kill-itself", ALONE, NOTHING, FAILS, "", "ends by SIGKILL", kill_itself},
    {"nice-itself", ALONE, NOTHING, ENDS_WELL, "",
     "changes its priority to the first and the last", nice_itself},
    {"limit-itself", ALONE, NOTHING, EITHER, "", "sets all of its limits to 0", limit_itself},
    {NULL, 0, 0, 0, NULL, NULL, NULL},
};
