/* Replaces the main function, bind and listen of a program: see contract.h. */
#include <linux/io_uring.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "contract.h"
#include "listen.h"

#ifndef SERVES_UDP
#define SERVES_UDP false
#endif

static struct target target;

int __real_bind(int fd, const struct sockaddr *address, socklen_t length);
int __real_listen(int fd, int backlog);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_listen(int fd, int backlog);

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length)
{
    (void)address, (void)length;
    struct endpoint endpoint = endpoint_of(&target);
    int one = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) || __real_bind(fd, &endpoint.any, endpoint.length))
        die(EXIT_FAILED, "cannot bind: %s", strerror(errno));
    if (target.family == UDP)
        announce(&target, fd);
    return 0;
}

/* TCP_NODELAY is on everywhere: accepted sockets inherit it from the listener. */
int __wrap_listen(int fd, int backlog)
{
    int one = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) || __real_listen(fd, backlog))
        die(EXIT_FAILED, "cannot listen: %s", strerror(errno));
    announce(&target, fd);
    return 0;
}

void need_ring(void)
{
    struct io_uring_params params = {0};
    long ring = syscall(SYS_io_uring_setup, 1, &params);
    if (ring < 0)
        die(EXIT_UNAVAILABLE, "io_uring is not available: %s", strerror(errno));
    close((int)ring);
}

static const char *parse_mode(const char *word)
{
    for (const char *const *mode = modes; *mode; mode++)
        if (!strcmp(*mode, word))
            return *mode;
    die(EXIT_USAGE, "unknown mode '%s': the peer's file `modes` lists them", word);
}

int main(int argc, char **argv)
{
    target = parse_target(argc == 3 ? 2 : argc, argv);
    if (target.family == UNIX || (target.family == UDP && !SERVES_UDP))
        die(EXIT_USAGE, "cannot serve '%s': give PORT%s", argv[1], SERVES_UDP ? " or udp:PORT" : "");
    const char *mode = argc == 3 ? parse_mode(argv[2]) : NULL;
    /* A client that resets its connection must not end the server. */
    signal(SIGPIPE, SIG_IGN);
    descriptor_limit();
    return serve(mode);
}
