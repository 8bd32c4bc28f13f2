/*
 * A tree like an application's part on a node: `target start DIR SEGMENT RANKS [MIB [children|shapes]]`
 * starts a launcher that is PID 1 of a new PID namespace and RANKS ranks below it, prints the launcher's
 * process id as its parent sees it, waits for a byte on its input (while the test moves the launcher into
 * its cgroup), lets the launcher begin, and ends.
 *
 * Each rank keeps MIB (4) of private memory whose contents follow from its own counter, exchanges
 * heartbeats with the launcher over a socketpair, and has a thread that answers a bell in the shared
 * segment by futex, and one that waits in epoll for an eventfd and a periodic timerfd. It has
 * /proc/self/mounts open and reads it now and then. It counts its progress and errors in its page of the
 * segment, which the test maps as well. A launcher asks to die with the thread that forked it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define WORDS_DEFAULT (1u << 20)

/* Page 1 + n of the segment belongs to rank n, page 0 to the test. common/segment.rs knows the offsets. */
struct rank_page {
	uint64_t rounds;         /*  0: of computing on private memory */
	uint64_t heartbeats;     /*  8: echoed by the launcher */
	uint64_t timer_ticks;    /* 16: of the periodic timerfd */
	uint64_t alarms;         /* 24: of setitimer */
	uint64_t errors;         /* 32 */
	uint32_t bell, answer;   /* 40, 44: the test rings, the rank answers */
	uint32_t pid, pad;       /* 48: inside the namespace */
};

static volatile struct rank_page *page;
static uint32_t *memory, words = WORDS_DEFAULT;
static int event_fd, with_children, with_shapes, mounts_fd;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static long futex(volatile uint32_t *word, int op, uint32_t value, const struct timespec *limit)
{
	return syscall(SYS_futex, word, op, value, limit, NULL, 0);
}

static void on_alarm(int signal)
{
	(void)signal;
	page->alarms++;
}

/* Half of the waits have a time-out. */
static void *answer_bell(void *unused)
{
	struct timespec limit = { 0, 3 * 1000 * 1000 };
	for (uint32_t turn = 0;; turn++) {
		uint32_t seen = __atomic_load_n(&page->bell, __ATOMIC_ACQUIRE);
		__atomic_store_n(&page->answer, seen, __ATOMIC_RELEASE);
		futex(&page->bell, FUTEX_WAIT, seen, turn % 2 ? &limit : NULL);
	}
	return unused;
}

static void *count_ticks(void *unused)
{
	int epoll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
	struct itimerspec period = { { 0, 5 * 1000 * 1000 }, { 0, 5 * 1000 * 1000 } };
	struct epoll_event on_timer = { .events = EPOLLIN, .data.fd = timer };
	struct epoll_event on_event = { .events = EPOLLIN, .data.fd = event_fd };
	if (epoll < 0 || timer < 0 || timerfd_settime(timer, 0, &period, NULL) ||
	    epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &on_timer) ||
	    epoll_ctl(epoll, EPOLL_CTL_ADD, event_fd, &on_event))
		die("timer");
	for (;;) {
		struct epoll_event event;
		uint64_t count;
		if (epoll_wait(epoll, &event, 1, -1) != 1)
			continue;
		/* Late on purpose, so that most dumps find the timer expired and unread. */
		if (event.data.fd == timer)
			usleep(4000);
		if (read(event.data.fd, &count, sizeof count) == sizeof count && event.data.fd == timer)
			page->timer_ticks += count;
	}
	return unused;
}

/* The whole memory is one sequence that moves by one each round, so a lost or outdated page is detected. */
static void compute(uint32_t round)
{
	for (uint32_t i = 0; i < words; i += 128) {
		if (memory[i] != round * 2654435761u + i)
			page->errors++;
		memory[i] = (round + 1) * 2654435761u + i;
	}
}

static void heartbeat(int launcher, uint64_t beat)
{
	uint64_t echo = 0;
	while (write(launcher, &beat, sizeof beat) != sizeof beat)
		if (errno != EINTR)
			exit(2);
	for (ssize_t got; (got = read(launcher, &echo, sizeof echo)) != sizeof echo;)
		if (got == 0 || errno != EINTR)
			exit(2);
	if (echo != beat)
		page->errors++;
	else
		page->heartbeats++;
}

/* Children that have ended and are not reaped, and one that lives. */
static void leave_children(void)
{
	for (int child = 0; child < 3; child++) {
		if (fork() == 0) {
			if (child)
				_exit(child);
			for (;;)
				pause();
		}
	}
}

/* Memory of all kinds; each word that was written holds its own index plus `value`. */
#define SHAPE_BYTES (3ul << 20)
enum { HUGE_PAGES, HOLES, READ_ONLY, NO_ACCESS, SHARED, ZEROS, INHERITED, SHAPES };
static uint32_t *shapes[SHAPES];
static char for_signals[64 << 10];

static uint32_t shape_value(int shape, uint32_t page_index, uint32_t value)
{
	return shape == ZEROS || (shape == HOLES && page_index % 3) ? 0 : page_index + value;
}

static void make_shapes(void)
{
	stack_t stack = { .ss_sp = for_signals, .ss_size = sizeof for_signals };
	for (int shape = 0; shape < SHAPES; shape++) {
		int flags = MAP_ANONYMOUS | (shape == SHARED ? MAP_SHARED : MAP_PRIVATE);
		shapes[shape] = mmap(NULL, SHAPE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
		if (shapes[shape] == MAP_FAILED)
			die("a shape");
		if (shape == HUGE_PAGES)
			madvise(shapes[shape], SHAPE_BYTES, MADV_HUGEPAGE);
		for (uint32_t i = 0; i < SHAPE_BYTES / PAGE; i++)
			if (shape != HOLES || i % 3 == 0)
				shapes[shape][i * (PAGE / 4)] = shape_value(shape, i, 7);
	}
	mprotect(shapes[READ_ONLY], SHAPE_BYTES, PROT_READ);
	mprotect(shapes[NO_ACCESS], SHAPE_BYTES, PROT_NONE);
	sigaltstack(&stack, NULL);
}

static void check_shape(int shape, uint32_t from, uint32_t value)
{
	for (uint32_t i = from; i < SHAPE_BYTES / PAGE; i++)
		if (shapes[shape][i * (PAGE / 4)] != shape_value(shape, i, value))
			page->errors++;
}

static void check_shapes(void)
{
	mprotect(shapes[NO_ACCESS], SHAPE_BYTES, PROT_READ);
	for (int shape = 0; shape < SHAPES; shape++)
		check_shape(shape, 0, 7);
	mprotect(shapes[NO_ACCESS], SHAPE_BYTES, PROT_NONE);
}

/* Changes half of the memory that it inherits. */
static void fork_with_shapes(void)
{
	uint32_t half = SHAPE_BYTES / PAGE / 2;
	if (fork())
		return;
	for (uint32_t i = half; i < SHAPE_BYTES / PAGE; i++)
		shapes[INHERITED][i * (PAGE / 4)] = i + 9;
	for (;;) {
		usleep(3000);
		for (uint32_t i = 0; i < half; i++)
			if (shapes[INHERITED][i * (PAGE / 4)] != i + 7)
				page->errors++;
		check_shape(INHERITED, half, 9);
	}
}

static void run_rank(int launcher)
{
	pthread_t thread;
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct itimerval every = { { 0, 10000 }, { 0, 10000 } };
	memory = mmap(NULL, words * 4ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	event_fd = eventfd(0, 0);
	mounts_fd = open("/proc/self/mounts", O_RDONLY);
	if (memory == MAP_FAILED || event_fd < 0 || mounts_fd < 0)
		die("memory");
	for (uint32_t i = 0; i < words; i++)
		memory[i] = i;
	page->pid = getpid();
	if (with_children)
		leave_children();
	if (with_shapes) {
		make_shapes();
		fork_with_shapes();
		action.sa_flags |= SA_ONSTACK;
	}
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	if (pthread_create(&thread, NULL, answer_bell, NULL) || pthread_create(&thread, NULL, count_ticks, NULL))
		die("threads");
	for (uint32_t round = 0;; round++) {
		char first;
		if (pread(mounts_fd, &first, 1, 0) != 1)
			page->errors++;
		compute(round);
		if (with_shapes)
			check_shapes();
		heartbeat(launcher, round);
		page->rounds++;
		if (round % 64 == 0) {
			uint64_t one = 1;
			if (write(event_fd, &one, sizeof one) < 0)
				page->errors++;
			printf("round %u\n", round);
			fflush(stdout);
		}
	}
}

static void redirect(const char *dir, const char *name)
{
	char path[PAGE];
	snprintf(path, sizeof path, "%s/%s.out", dir, name);
	int null = open("/dev/null", O_RDONLY), out = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
	if (null < 0 || out < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		die(path);
	for (int fd = 3; fd < 256; fd++)
		close(fd);
}

static int start_rank(const char *dir, char *segment, int rank)
{
	char name[32];
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("socketpair");
	pid_t pid = fork();
	if (pid < 0)
		die("fork");
	if (pid > 0) {
		close(pair[1]);
		return pair[0];
	}
	int keep = dup2(pair[1], 300);
	snprintf(name, sizeof name, "rank-%d", rank);
	redirect(dir, name);
	page = (volatile struct rank_page *)(segment + PAGE * (1 + rank));
	run_rank(keep);
	exit(0);
}

/* Echoes heartbeats; ends when a rank does, which ends all processes below it. */
static void run_launcher(const char *dir, const char *path, int ranks)
{
	int sockets[64];
	setsid();
	redirect(dir, "launcher");
	int fd = open(path, O_RDWR);
	size_t bytes = PAGE * (1 + ranks);
	char *segment = fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (segment == MAP_FAILED)
		die(path);
	close(fd);
	for (int rank = 0; rank < ranks; rank++)
		sockets[rank] = start_rank(dir, segment, rank);
	int epoll = epoll_create1(0);
	for (int rank = 0; rank < ranks; rank++) {
		struct epoll_event event = { .events = EPOLLIN, .data.fd = sockets[rank] };
		epoll_ctl(epoll, EPOLL_CTL_ADD, sockets[rank], &event);
	}
	for (;;) {
		struct epoll_event event;
		uint64_t beat;
		if (epoll_wait(epoll, &event, 1, -1) != 1)
			continue;
		ssize_t got = read(event.data.fd, &beat, sizeof beat);
		if (got == 0 || (got < 0 && errno != EINTR))
			exit(3);
		if (got == sizeof beat && write(event.data.fd, &beat, sizeof beat) != sizeof beat)
			exit(4);
	}
}

/* Becomes a child of this process's parent, and PID 1 of a new namespace. */
static pid_t fork_into_namespace(void)
{
	return syscall(SYS_clone, CLONE_NEWPID | CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL);
}

int main(int count, char **arguments)
{
	if (count < 5 || strcmp(arguments[1], "start"))
		return 64;
	if (count > 5)
		words = atoi(arguments[5]) * (1u << 18);
	with_children = count > 6 && !strcmp(arguments[6], "children");
	with_shapes = count > 6 && !strcmp(arguments[6], "shapes");
	int go[2];
	char byte;
	if (pipe(go))
		die("pipe");
	pid_t pid = fork_into_namespace();
	if (pid < 0)
		die("clone");
	if (pid == 0) {
		/* The parent moves us into the cgroups before it lets us go on. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(go[1]);
		if (read(go[0], &byte, 1) != 1)
			exit(5);
		run_launcher(arguments[2], arguments[3], atoi(arguments[4]));
	}
	printf("%d\n", pid);
	fflush(stdout);
	/* The test puts the launcher into its cgroup and then writes a byte. */
	if (read(0, &byte, 1) != 1 || write(go[1], "x", 1) != 1)
		return 1;
	return 0;
}
