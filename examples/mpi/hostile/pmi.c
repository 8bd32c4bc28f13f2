/* Attacks on the PMI server: lines on the rank's own socket. */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>

static int pmi(void) {
    return (int)variable("PMI_FD");
}

static void send_bytes(const void *bytes, size_t count) {
    for (const char *at = bytes; count > 0;) {
        ssize_t sent = send(pmi(), at, count, MSG_NOSIGNAL);
        if (sent < 0) exit(3);
        at += sent, count -= (size_t)sent;
    }
}

static void say(const char *line) {
    send_bytes(line, strlen(line));
    send_bytes("\n", 1);
}

/* Reads one line of the answer. */
static void hear(void) {
    for (char byte = 0; byte != '\n';)
        if (read(pmi(), &byte, 1) != 1) exit(3);
}

static void ask(const char *line) {
    say(line);
    hear();
}

static void begin(void) {
    ask("cmd=init pmi_version=1 pmi_subversion=1");
}

/* The launcher ends the ranks; an attack that is over waits for that. */
static int wait_for_end(void) {
    rest(5);
    return 0;
}

static int junk(void) {
    unsigned char bytes[4096];
    int source = open("/dev/urandom", O_RDONLY);
    if (source < 0 || read(source, bytes, sizeof bytes) != (ssize_t)sizeof bytes) cannot("read random bytes");
    send_bytes(bytes, sizeof bytes);
    say("");
    return wait_for_end();
}

static int zeros(void) {
    static const char none[4096];
    send_bytes(none, sizeof none);
    say("");
    return wait_for_end();
}

static int huge_line(void) {
    static char line[1 << 20];
    memset(line, 'x', sizeof line);
    send_bytes(line, sizeof line);
    return wait_for_end();
}

static int unknown_command(void) {
    say("cmd=dance");
    return wait_for_end();
}

static int double_barrier(void) {
    begin();
    say("cmd=barrier_in");
    say("cmd=barrier_in");
    return wait_for_end();
}

static int early_barrier(void) {
    say("cmd=barrier_in");
    return wait_for_end();
}

static int barrier_after_the_end(void) {
    begin();
    ask("cmd=finalize");
    say("cmd=barrier_in");
    return wait_for_end();
}

static int early_finalize(void) {
    ask("cmd=finalize");
    return 0;
}

static int no_finalize(void) {
    begin();
    return 0;
}

static int puts_without_end(void) {
    begin();
    for (long nth = 0; nth < LONG_MAX; nth++) {
        char line[200];
        snprintf(line, sizeof line, "cmd=put kvsname=x key=key-%ld value=%ld", nth, nth);
        ask(line);
    }
    return 0;
}

/* With a barrier between them: over both nodes, so that all must play. */
static int big_puts_without_end(void) {
    static char line[1200] = "cmd=put kvsname=x key=k value=";
    memset(line + strlen(line), 'v', 1000);
    begin();
    for (long nth = 1; nth < LONG_MAX; nth++) {
        ask(line);
        if (nth % 200 == 0) ask("cmd=barrier_in");
    }
    return 0;
}

static int barriers_without_end(void) {
    begin();
    for (long nth = 0; nth < LONG_MAX; nth++) ask("cmd=barrier_in");
    return 0;
}

static int too_long(void) {
    static char line[4000] = "cmd=put kvsname=x key=k value=";
    begin();
    memset(line + strlen(line), 'v', 3000);
    ask(line);
    ask("cmd=put kvsname=x key=\001 value=\002");
    ask("cmd=put");
    ask("cmd=finalize");
    return 0;
}

static int flood(void) {
    static const char line[] = "cmd=get kvsname=x key=PMI_process_mapping\n";
    fcntl(pmi(), F_SETFL, O_NONBLOCK);
    for (double end = now() + 2; now() < end;)
        if (send(pmi(), line, sizeof line - 1, MSG_NOSIGNAL) < 0 && errno != EAGAIN) return 3;
    return 0;
}

static int short_lines(void) {
    static char lines[1 << 16];
    memset(lines, '\n', sizeof lines);
    send_bytes("mcmd=spawn\n", 11);
    for (double end = now() + 2; now() < end;) send_bytes(lines, sizeof lines);
    return 0;
}

static int spawn_without_end(void) {
    say("mcmd=spawn");
    for (double end = now() + 2; now() < end;) say("totspawns=1");
    return 0;
}

static int half_line(void) {
    send_bytes("cmd=in", 6);
    return 0;
}

static int close_socket(void) {
    close(pmi());
    rest(0.5);
    return 0;
}

static int shut_down(void) {
    shutdown(pmi(), SHUT_RDWR);
    rest(0.5);
    return 0;
}

static int abort_code(void) {
    say("cmd=abort exitcode=-2147483648 message=\033[2J\033]0;title\007");
    return wait_for_end();
}

#define BROKEN "broken the PMI protocol"
const struct attack PMI_ATTACKS[] = {
    {"pmi-junk", ALONE, NOTHING, FAILS, BROKEN, "sends random bytes", junk},
    {"pmi-zeros", ALONE, NOTHING, FAILS, BROKEN, "sends zeros", zeros},
    {"pmi-huge-line", ALONE, NOTHING, FAILS, BROKEN, "sends a line of 1 MiB", huge_line},
    {"pmi-unknown", ALONE, NOTHING, FAILS, BROKEN, "sends an unknown command", unknown_command},
    {"pmi-double-barrier", ALONE, NOTHING, FAILS, BROKEN, "enters a barrier twice", double_barrier},
    {"pmi-early-barrier", ALONE, NOTHING, FAILS, BROKEN,
     "enters a barrier before it is initialised", early_barrier},
    {"pmi-late-barrier", ALONE, NOTHING, FAILS, BROKEN,
     "enters a barrier after it is finalized", barrier_after_the_end},
    {"pmi-early-finalize", ALONE, NOTHING, ENDS_WELL, "", "finalizes what it has not begun", early_finalize},
    {"pmi-no-finalize", ALONE, NOTHING, FAILS, "", "ends between both", no_finalize},
    {"pmi-puts", ALONE, NOTHING, FAILS, BROKEN, "puts small keys without end", puts_without_end},
    {"pmi-big-puts", ALL_RANKS, NOTHING, FAILS, "PMI protocol|keys and values",
     "puts 1 KB and enters barriers without end", big_puts_without_end},
    {"pmi-barriers", ALL_RANKS, NOTHING, FAILS, BROKEN, "enters barriers without end", barriers_without_end},
    {"pmi-too-long", ALONE, NOTHING, ENDS_WELL, "",
     "puts what is too long or not printable: it is refused", too_long},
    {"pmi-flood", ALONE, NOTHING, ENDS_WELL, "", "asks for two seconds and reads no answer", flood},
    {"pmi-short-lines", ALONE, NOTHING, ENDS_WELL, "", "sends empty lines for two seconds", short_lines},
    {"pmi-spawn", ALONE, NOTHING, ENDS_WELL, "", "begins a request and does not end it", spawn_without_end},
    {"pmi-half-line", ALONE, NOTHING, ENDS_WELL, "", "ends in the middle of a line", half_line},
    {"pmi-close", ALONE, NOTHING, ENDS_WELL, "", "closes its socket", close_socket},
    {"pmi-shut-down", ALONE, NOTHING, ENDS_WELL, "", "shuts its socket down", shut_down},
    {"pmi-abort", ALONE, NOTHING, FAILS, "", "aborts with the least code and control characters", abort_code},
    {NULL, 0, 0, 0, NULL, NULL, NULL},
};
