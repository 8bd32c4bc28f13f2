/* Attacks on the ports on which its node listens: those of its daemon, for the master and other daemons. */
#include "hostile.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { PORTS_MAX = 64, LISTENS = 0x0a };

static struct sockaddr_in ports[PORTS_MAX];
static int port_count;

/* All sockets of this network that listen. */
static void find_ports(void) {
    char line[512];
    FILE *table = fopen("/proc/self/net/tcp", "r");
    if (!table) cannot("read the table of sockets");
    while (fgets(line, sizeof line, table)) {
        unsigned address, port, state;
        int found = sscanf(line, " %*d: %x:%x %*x:%*x %x", &address, &port, &state);
        if (found != 3 || state != LISTENS || port_count == PORTS_MAX) continue;
        struct sockaddr_in *to = &ports[port_count++];
        to->sin_family = AF_INET;
        to->sin_port = htons((uint16_t)port);
        to->sin_addr.s_addr = address ? address : htonl(INADDR_LOOPBACK);
    }
    fclose(table);
    if (!port_count) {
        fprintf(stderr, "error: nobody listens here\n");
        exit(2);
    }
}

static int connect_to(int nth) {
    int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (socket_ < 0) return -1;
    struct sockaddr *to = (struct sockaddr *)&ports[nth % port_count];
    if (connect(socket_, to, sizeof *ports) && errno != EINPROGRESS) {
        close(socket_);
        return -1;
    }
    return socket_;
}

static void send_all(int socket_, const void *bytes, size_t count) {
    (void)!send(socket_, bytes, count, MSG_NOSIGNAL);
}

static int junk(void) {
    unsigned char bytes[8192];
    find_ports();
    int source = open("/dev/urandom", O_RDONLY);
    for (int nth = 0; nth < 50 * port_count; nth++) {
        int socket_ = connect_to(nth);
        rest(0.005);
        if (read(source, bytes, sizeof bytes) < 0) return 2;
        send_all(socket_, bytes, sizeof bytes);
        close(socket_);
    }
    return 0;
}

static int hello(const void *bytes, size_t count) {
    find_ports();
    int sockets[PORTS_MAX];
    for (int nth = 0; nth < port_count; nth++) sockets[nth] = connect_to(nth);
    rest(0.1);
    for (int nth = 0; nth < port_count; nth++) send_all(sockets[nth], bytes, count);
    rest(1);
    return 0;
}

/* The beginning of a TLS record of the greatest length, with a ClientHello of 16 MiB. */
static int long_hello(void) {
    static const unsigned char bytes[] = {0x16, 3, 1, 0xff, 0xff, 1, 0xff, 0xff, 0xff};
    return hello(bytes, sizeof bytes);
}

/* As if there were no TLS: frames of the control protocol and of a data link, of 4 GiB. */
static int huge_control_frame(void) {
    return hello("CSWC\xff\xff\xff\xff", 8);
}

static int huge_data_frame(void) {
    static const char bytes[24] = "CSWD\0\0\0\0\7\0\0\0\xff\xff\xff\xff";
    return hello(bytes, sizeof bytes);
}

static int http(void) {
    static const char get[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    return hello(get, sizeof get - 1);
}

/* A byte now and then, and never a whole greeting. */
static int slow(void) {
    find_ports();
    static const unsigned char begin[] = {0x16, 3, 1, 2, 0};
    int sockets[PORTS_MAX];
    for (int nth = 0; nth < port_count; nth++) sockets[nth] = connect_to(nth);
    for (int tick = 0; tick < 30; tick++) {
        for (int nth = 0; nth < port_count; nth++) send_all(sockets[nth], begin + tick % sizeof begin, 1);
        rest(0.1);
    }
    return 0;
}

static int many(void) {
    enum { SOCKETS = 800 };
    static int sockets[SOCKETS];
    find_ports();
    for (int nth = 0; nth < SOCKETS; nth++) sockets[nth] = connect_to(nth);
    rest(2);
    for (int nth = 0; nth < SOCKETS; nth++) close(sockets[nth]);
    return 0;
}

static int flood(void) {
    find_ports();
    for (double end = now() + 2; now() < end;)
        for (int nth = 0; nth < port_count; nth++) close(connect_to(nth));
    return 0;
}

static int half_closed(void) {
    enum { SOCKETS = 100 };
    find_ports();
    for (int nth = 0; nth < SOCKETS; nth++) {
        int socket_ = connect_to(nth);
        rest(0.002);
        shutdown(socket_, SHUT_WR);
    }
    rest(1);
    return 0;
}

const struct attack NETWORK_ATTACKS[] = {
    {"ports-junk", ALONE, NOTHING, ENDS_WELL, "", "connects to all ports and sends random bytes", junk},
    {"ports-long-hello", ALONE, NOTHING, ENDS_WELL, "", "announces a greeting of 16 MiB", long_hello},
    {"ports-control-frame", ALONE, NOTHING, ENDS_WELL, "",
     "announces a control frame of 4 GiB, without TLS", huge_control_frame},
    {"ports-data-frame", ALONE, NOTHING, ENDS_WELL, "",
     "announces a data frame of 4 GiB, without TLS", huge_data_frame},
    {"ports-http", ALONE, NOTHING, ENDS_WELL, "", "asks for a page", http},
    {"ports-slow", ALONE, NOTHING, ENDS_WELL, "", "sends a byte every tenth of a second", slow},
    {"ports-many", ALONE, NOTHING, ENDS_WELL, "", "holds 800 silent connections", many},
    {"ports-flood", ALONE, NOTHING, ENDS_WELL, "", "connects and closes without end", flood},
    {"ports-half-closed", ALONE, NOTHING, ENDS_WELL, "", "closes its half of 100 connections", half_closed},
    {NULL, 0, 0, 0, NULL, NULL, NULL},
};
