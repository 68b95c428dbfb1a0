/* Functions shared by the C peers: failing with one line, the address argument, the listening socket, the announcement, the
 * descriptor limit, and memory for tables. */
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
#include <sys/un.h>

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

enum family { TCP, UDP, UNIX };

/* Where to serve: a port on 127.0.0.1, or a path. */
struct target {
    enum family family;
    uint16_t port;
    const char *path;
};

/* An address in the form that sockets take. */
struct endpoint {
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_un un;
    };
    socklen_t length;
};

static uint16_t parse_port(const char *text)
{
    char *end;
    errno = 0;
    long port = strtol(text, &end, 10);
    if (errno || end == text || *end || port < 0 || port > 65535)
        die(EXIT_USAGE, "port '%s' is not a number from 0 to 65535; 0 picks a free one", text);
    return (uint16_t)port;
}

static inline struct target parse_target(int argc, char **argv)
{
    if (argc != 2)
        die(EXIT_USAGE, "usage: %s ADDRESS, such as 0 for a free port", argv[0]);
    const char *text = argv[1];
    if (!strncmp(text, "unix:", 5))
        return (struct target){.family = UNIX, .path = text + 5};
    if (!strncmp(text, "udp:", 4))
        return (struct target){.family = UDP, .port = parse_port(text + 4)};
    return (struct target){.family = TCP, .port = parse_port(text)};
}

static struct endpoint endpoint_of(const struct target *target)
{
    struct endpoint endpoint = {.length = sizeof endpoint.in};
    if (target->family != UNIX) {
        endpoint.in = (struct sockaddr_in){
            .sin_family = AF_INET, .sin_port = htons(target->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        return endpoint;
    }
    size_t length = strlen(target->path);
    if (!length || length >= sizeof endpoint.un.sun_path)
        die(EXIT_USAGE, "path '%s' must have 1 to %zu bytes", target->path, sizeof endpoint.un.sun_path - 1);
    endpoint.un.sun_family = AF_UNIX;
    memcpy(endpoint.un.sun_path, target->path, length + 1);
    endpoint.length = sizeof endpoint.un;
    return endpoint;
}

/* A bound socket. */
static int bind_to(const struct target *target, int type)
{
    struct endpoint endpoint = endpoint_of(target);
    int fd = socket(endpoint.any.sa_family, type | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
        bind(fd, &endpoint.any, endpoint.length))
        die(EXIT_FAILED, "cannot bind: %s", strerror(errno));
    return fd;
}

/* Accepted sockets inherit TCP_NODELAY from the listener, which saves one system call per connection. */
static inline int listen_on(const struct target *target, int socket_flags)
{
    if (target->family == UDP)
        die(EXIT_USAGE, "cannot serve UDP: this peer serves only streams; give PORT or unix:/path");
    int fd = bind_to(target, SOCK_STREAM | socket_flags), one = 1;
    if ((target->family == TCP && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) || listen(fd, 65535))
        die(EXIT_FAILED, "cannot listen: %s", strerror(errno));
    return fd;
}

/* Prints the line that the starter waits for, once everything is set up. */
static inline void announce(const struct target *target, int fd)
{
    struct endpoint endpoint = {.length = sizeof endpoint.un};
    if (getsockname(fd, &endpoint.any, &endpoint.length))
        die(EXIT_FAILED, "cannot get the address of the listening socket: %s", strerror(errno));
    if (target->family == UNIX)
        fprintf(stderr, "listening on unix:%s\n", target->path);
    else
        fprintf(stderr, "listening on %s127.0.0.1:%u\n", target->family == UDP ? "udp://" : "", ntohs(endpoint.in.sin_port));
}

/* Raises the soft limit of open files to the hard one and returns it: no descriptor is ever this large. */
static inline size_t descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        die(EXIT_FAILED, "cannot read the open-file limit: %s", strerror(errno));
    rlim_t soft = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) ? soft : limit.rlim_max;
}

/* Zeroed memory, not reserved: a table indexed by descriptor costs only the pages it touches. */
static inline void *map_zeroed(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        die(EXIT_FAILED, "cannot map %zu bytes: %s", bytes, strerror(errno));
    return memory;
}

/* True if the system has no descriptor or no memory for a new connection. */
static inline int is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

#endif
