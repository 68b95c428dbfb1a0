/* Loaded into a server whose port is fixed: it listens on 127.0.0.1 at the port in PLACE_PORT instead, 0 for a free one, and
 * announces it as the contract in ../README.md requires. Further listeners of the process share the port. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

#include "../listen.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The port, once the first socket is bound to it. */
static uint16_t bound_port;
static bool is_announced;

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    (void)address, (void)length;
    int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
    const char *given = getenv("PLACE_PORT");
    pthread_mutex_lock(&lock);
    uint16_t port = bound_port ? bound_port : parse_port(given ? given : "0");
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof place;
    int result = next(fd, (struct sockaddr *)&place, size);
    if (!result && !getsockname(fd, (struct sockaddr *)&place, &size))
        bound_port = ntohs(place.sin_port);
    pthread_mutex_unlock(&lock);
    return result;
}

int listen(int fd, int backlog)
{
    int (*next)(int, int) = dlsym(RTLD_NEXT, "listen");
    int result = next(fd, backlog);
    pthread_mutex_lock(&lock);
    if (!result && !is_announced) {
        is_announced = true;
        fprintf(stderr, "listening on 127.0.0.1:%d\n", bound_port);
    }
    pthread_mutex_unlock(&lock);
    return result;
}
