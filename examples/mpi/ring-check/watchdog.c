/* Watchdog: ends a run in which a message was lost and the receiver would wait forever.
 *
 * An interval timer counts ticks, and each progress of the run resets the count. A rank that was suspended or
 * parked for an hour gets at most one tick, so this is never taken for a stall. The timer also interrupts
 * system calls, as a test of the driver. */
#include "ring.h"
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

enum { TICK_SECONDS = 5 };

static volatile sig_atomic_t idle_ticks;
static long ticks_allowed;
static const char *volatile activity = "starting";
static const struct run *watched;

/* Makes only async-signal-safe calls. */
static void say(const char *text) {
    if (write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

static void say_number(uint64_t number) {
    char digits[24], *at = digits + sizeof digits - 1;
    *at = 0;
    do *--at = (char)('0' + number % 10);
    while (number /= 10);
    say(at);
}

static void on_tick(int signal) {
    (void)signal;
    if (++idle_ticks < ticks_allowed) return;
    say("ring-check: rank ");
    say_number(watched->rank);
    say(" stalled in round ");
    say_number(watched->round);
    say(", ");
    say(activity);
    say(": a message is lost, or a peer is gone\n");
    _exit(EXIT_UNVERIFIED);
}

void watchdog_start(const struct run *run, long seconds) {
    watched = run;
    ticks_allowed = seconds / TICK_SECONDS + 1;
    struct sigaction action = {.sa_handler = on_tick, .sa_flags = SA_RESTART};
    struct itimerval interval = {{TICK_SECONDS, 0}, {TICK_SECONDS, 0}};
    sigaction(SIGALRM, &action, NULL);
    if (seconds) setitimer(ITIMER_REAL, &interval, NULL);
}

void watchdog_progress(const char *doing) {
    activity = doing;
    idle_ticks = 0;
}
