/*
 * An echo server on epoll, one thread, edge-triggered: two system calls per message and its share of one epoll_wait.
 *
 * One receive buffer serves every connection and stays in the cache: received bytes are sent at once. Only bytes that the
 * socket does not accept are copied, into the connection's backlog. Until EPOLLOUT has drained it, nothing more is received
 * there, so a connection that does not read holds at most one buffer. EPOLLOUT is registered from the start, so a backlog
 * needs no epoll_ctl. It has an edge at the start, and then only after a send that did not fit.
 */
#define _GNU_SOURCE
#include "datagrams.h"

#include <sys/epoll.h>
#include <unistd.h>

enum {
    EVENTS = 512,
    BUFFER = 512 * 1024,
    ROUNDS = 4,  /* full buffers from one connection before other connections are served */
    CONNECTION_EVENTS = EPOLLIN | EPOLLOUT | EPOLLRDHUP | (int)EPOLLET,
};

/* The result of handling a connection. */
enum outcome { WAITING, BLOCKED, UNFINISHED, FINISHED };

struct backlog {
    uint32_t start, end;
    char bytes[];
};

struct server {
    int epoll, listener;
    int accept_paused;
    struct backlog **backlogs; /* by descriptor; null if nothing is waiting to be sent */
};

static char buffer[BUFFER] __attribute__((aligned(64)));

static void control(struct server *server, int operation, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    if (epoll_ctl(server->epoll, operation, fd, &event))
        die(EXIT_FAILED, "cannot watch descriptor %d: %s", fd, strerror(errno));
}

static void accept_all(struct server *server)
{
    server->accept_paused = 0;
    for (;;) {
        int fd = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            control(server, EPOLL_CTL_ADD, fd, CONNECTION_EVENTS);
        else if (errno == EAGAIN)
            return;
        else if (is_shortage(errno)) {
            server->accept_paused = 1;
            return;
        } /* else the connection failed before it was accepted */
    }
}

static void close_connection(struct server *server, int fd)
{
    free(server->backlogs[fd]);
    server->backlogs[fd] = NULL;
    close(fd);
    if (unlikely(server->accept_paused))
        accept_all(server);
}

static void keep_rest(struct server *server, int fd, const char *bytes, size_t length)
{
    struct backlog *backlog = malloc(sizeof *backlog + length);
    if (!backlog)
        die(EXIT_FAILED, "cannot allocate a backlog of %zu bytes", length);
    backlog->start = 0;
    backlog->end = length;
    memcpy(backlog->bytes, bytes, length);
    server->backlogs[fd] = backlog;
}

/* After a short send the socket is full: EPOLLOUT will follow, so there is no second try. */
static enum outcome send_received(struct server *server, int fd, size_t length)
{
    ssize_t sent = send(fd, buffer, length, MSG_NOSIGNAL);
    if (likely(sent == (ssize_t)length))
        return WAITING;
    if (sent < 0 && errno != EAGAIN)
        return FINISHED;
    size_t taken = sent < 0 ? 0 : (size_t)sent;
    keep_rest(server, fd, buffer + taken, length - taken);
    return BLOCKED;
}

/* A short receive has emptied the socket, unless the peer has closed: then the end must still be read. */
static enum outcome echo(struct server *server, int fd, int until_end)
{
    for (int round = 0; round < ROUNDS; round++) {
        ssize_t received = recv(fd, buffer, BUFFER, 0);
        if (received <= 0)
            return received < 0 && errno == EAGAIN ? WAITING : FINISHED;
        enum outcome sent = send_received(server, fd, (size_t)received);
        if (unlikely(sent != WAITING))
            return sent;
        if (likely(received < BUFFER && !until_end))
            return WAITING;
    }
    return UNFINISHED;
}

static enum outcome drain_backlog(struct server *server, int fd)
{
    struct backlog *backlog = server->backlogs[fd];
    ssize_t sent = send(fd, backlog->bytes + backlog->start, backlog->end - backlog->start, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN ? BLOCKED : FINISHED;
    backlog->start += (uint32_t)sent;
    if (backlog->start < backlog->end)
        return BLOCKED;
    free(backlog);
    server->backlogs[fd] = NULL;
    return WAITING;
}

/* With a backlog, edges of arriving data are ignored; so once it is drained, read until EAGAIN. */
static enum outcome serve(struct server *server, int fd, int until_end)
{
    if (likely(!server->backlogs[fd]))
        return echo(server, fd, until_end);
    enum outcome drained = drain_backlog(server, fd);
    return drained == WAITING ? echo(server, fd, 1) : drained;
}

/* Modifying to the same events queues a new edge behind those of the other connections, if there is something to read. */
static void take_turn(struct server *server, int fd)
{
    control(server, EPOLL_CTL_MOD, fd, CONNECTION_EVENTS);
}

static void settle(struct server *server, int fd, enum outcome outcome)
{
    if (unlikely(outcome == FINISHED))
        close_connection(server, fd);
    else if (unlikely(outcome == UNFINISHED))
        take_turn(server, fd);
}

static void handle(struct server *server, const struct epoll_event *event)
{
    int fd = event->data.fd;
    if (unlikely(fd == server->listener))
        accept_all(server);
    else if (event->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) || server->backlogs[fd])
        settle(server, fd, serve(server, fd, event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)));
}

__attribute__((noreturn)) static void run(struct server *server)
{
    static struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(server->epoll, events, EVENTS, -1);
        if (count < 0 && errno != EINTR)
            die(EXIT_FAILED, "epoll_wait failed: %s", strerror(errno));
        for (int i = 0; i < count; i++)
            handle(server, &events[i]);
    }
}

int main(int argc, char **argv)
{
    struct target target = parse_target(argc, argv);
    if (target.family == UDP)
        serve_datagrams(&target);
    size_t limit = descriptor_limit();
    struct server server = {
        .epoll = epoll_create1(EPOLL_CLOEXEC),
        .listener = listen_on(&target, SOCK_NONBLOCK),
        .backlogs = map_zeroed(limit * sizeof *server.backlogs),
    };
    if (server.epoll < 0)
        die(EXIT_FAILED, "cannot create an epoll instance: %s", strerror(errno));
    control(&server, EPOLL_CTL_ADD, server.listener, EPOLLIN | EPOLLET);
    announce(&target, server.listener);
    run(&server);
}
