/* What the C peers share: failing with one line, the port argument, the listening socket, the descriptor limit. */
#ifndef PEERS_LISTEN_H
#define PEERS_LISTEN_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* Exit codes of the contract in README.md. */
enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_UNAVAILABLE = 3 };

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

__attribute__((noreturn, format(printf, 2, 3))) static void die(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(code);
}

static uint16_t parse_port(int argc, char **argv)
{
    if (argc != 2)
        die(EXIT_USAGE, "usage: %s PORT (0 picks a free one)", argv[0]);
    char *end;
    errno = 0;
    long port = strtol(argv[1], &end, 10);
    if (errno || end == argv[1] || *end || port < 0 || port > 65535)
        die(EXIT_USAGE, "port '%s' is not a number from 0 to 65535; 0 picks a free one", argv[1]);
    return (uint16_t)port;
}

/* TCP_NODELAY on the listener is inherited by what it accepts: one system call a connection saved. */
static int listen_on(uint16_t port, int socket_flags)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | socket_flags, 0), one = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) ||
        bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 65535))
        die(EXIT_FAILED, "cannot listen on 127.0.0.1:%u: %s", port, strerror(errno));
    return fd;
}

/* The line a starter waits for: everything is set up when it is printed. */
static void announce(int listener)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    if (getsockname(listener, (struct sockaddr *)&address, &length))
        die(EXIT_FAILED, "cannot name the listening socket: %s", strerror(errno));
    fprintf(stderr, "listening on 127.0.0.1:%u\n", ntohs(address.sin_port));
}

/* Raises the soft limit of open files to the hard one and returns it: no descriptor is ever this large. */
static size_t descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        die(EXIT_FAILED, "cannot read the open-file limit: %s", strerror(errno));
    rlim_t soft = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) ? soft : limit.rlim_max;
}

/* Zeroed memory, not reserved: a table indexed by descriptor costs only the pages it touches. */
static void *map_zeroed(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        die(EXIT_FAILED, "cannot map %zu bytes: %s", bytes, strerror(errno));
    return memory;
}

/* Out of descriptors or memory for a new connection: accepting resumes when a connection closes. */
static int is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

#endif
