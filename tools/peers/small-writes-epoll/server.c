/*
 * Small writes on epoll, one thread: everything that is available is collected and sent at once, as an expert would write it.
 * It has the services `fan-out` and `pieces` of ../small-writes.
 *
 * The publisher's bytes are received into one buffer and sent to each subscriber from there, whole messages only. Only an
 * incomplete message at the end is copied, and bytes that a socket does not accept. These are kept, and later messages or
 * replies are added to them. If they are then more than LIMIT, the connection is closed.
 */
#define _GNU_SOURCE
#include "../listen.h"

#include <sys/epoll.h>
#include <unistd.h>

enum {
    EVENTS = 512,
    BUFFER = 256 * 1024,
    LIMIT = 1024 * 1024,
    REQUEST = 8,
    MAX_REPLY = 4096,
    MAX_MESSAGE = 64 * 1024,
    CONNECTION_EVENTS = EPOLLIN | EPOLLOUT | EPOLLRDHUP | (int)EPOLLET,
};

enum role { UNKNOWN, SUBSCRIBER, PUBLISHER, CLIENT };

struct bytes {
    char *start;
    size_t length, room;
};

struct connection {
    enum role role;
    size_t index;          /* of a subscriber in the list */
    struct bytes unsent, received;
};

static int epoll, listener, serves_pieces;
static struct connection *connections; /* by descriptor */
static int *subscribers;
static size_t subscriber_count;
static char buffer[BUFFER] __attribute__((aligned(64)));
static char replies[BUFFER];
static char body[MAX_REPLY];

static void append(struct bytes *to, const char *from, size_t length)
{
    if (to->length + length > to->room) {
        to->room = 2 * (to->length + length);
        to->start = realloc(to->start, to->room);
        if (!to->start)
            die(EXIT_FAILED, "cannot allocate %zu bytes", to->room);
    }
    memcpy(to->start + to->length, from, length);
    to->length += length;
}

static void remove_front(struct bytes *from, size_t length)
{
    from->length -= length;
    memmove(from->start, from->start + length, from->length);
    if (!from->length) {
        free(from->start);
        *from = (struct bytes){0};
    }
}

static void close_connection(int fd)
{
    struct connection *one = &connections[fd];
    if (one->role == SUBSCRIBER) {
        int last = subscribers[--subscriber_count];
        subscribers[one->index] = last;
        connections[last].index = one->index;
    }
    free(one->unsent.start);
    free(one->received.start);
    *one = (struct connection){0};
    close(fd);
}

/* Sends the bytes after those that are kept. Returns 0 if the connection is to be closed. */
static int send_bytes(int fd, const char *bytes, size_t length)
{
    struct bytes *unsent = &connections[fd].unsent;
    if (unlikely(unsent->length)) {
        append(unsent, bytes, length);
        return unsent->length <= LIMIT;
    }
    ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
    if (likely(sent == (ssize_t)length))
        return 1;
    if (sent < 0 && errno != EAGAIN)
        return 0;
    size_t taken = sent < 0 ? 0 : (size_t)sent;
    append(unsent, bytes + taken, length - taken);
    return 1;
}

static int send_unsent(int fd)
{
    struct bytes *unsent = &connections[fd].unsent;
    ssize_t sent = send(fd, unsent->start, unsent->length, MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN;
    remove_front(unsent, (size_t)sent);
    return 1;
}

/* Sends the whole messages at the start to all subscribers. Returns their length, or -1 if one is invalid. */
static ssize_t broadcast(const char *bytes, size_t length)
{
    size_t whole = 0;
    while (length - whole >= 4) {
        uint32_t message;
        memcpy(&message, bytes + whole, sizeof message);
        if (message < 4 || message > MAX_MESSAGE)
            return -1;
        if (message > length - whole)
            break;
        whole += message;
    }
    for (size_t i = subscriber_count; whole && i-- > 0;)
        if (!send_bytes(subscribers[i], bytes, whole))
            close_connection(subscribers[i]);
    return (ssize_t)whole;
}

static ssize_t reply(int fd, const char *bytes, size_t length)
{
    size_t used = 0, gathered = 0;
    for (; length - used >= REQUEST; used += REQUEST) {
        int pieces, total;
        char text[REQUEST + 1] = {0};
        memcpy(text, bytes + used, REQUEST);
        if (sscanf(text, "%2d %4d", &pieces, &total) != 2 || pieces < 1 || total < 1 || total > MAX_REPLY || total % pieces)
            return -1;
        for (int i = 0; i < pieces; i++) {
            memcpy(replies + gathered, body, (size_t)(total / pieces));
            gathered += (size_t)(total / pieces);
        }
        if (gathered > sizeof replies - MAX_REPLY) {
            if (!send_bytes(fd, replies, gathered))
                return -1;
            gathered = 0;
        }
    }
    return !gathered || send_bytes(fd, replies, gathered) ? (ssize_t)used : -1;
}

/* Handles received bytes. Returns how many were used, or -1 to close the connection. */
static ssize_t handle_bytes(int fd, const char *bytes, size_t length)
{
    struct connection *one = &connections[fd];
    size_t used = 0;
    if (unlikely(one->role == UNKNOWN)) {
        one->role = bytes[0] == 'S' ? SUBSCRIBER : PUBLISHER;
        if (one->role == SUBSCRIBER) {
            one->index = subscriber_count;
            subscribers[subscriber_count++] = fd;
        }
        if (!send_bytes(fd, bytes, 1))
            return -1;
        used = 1;
    }
    if (one->role == SUBSCRIBER)
        return (ssize_t)length;
    ssize_t more = one->role == CLIENT ? reply(fd, bytes, length) : broadcast(bytes + used, length - used);
    return more < 0 ? more : (ssize_t)used + more;
}

static int receive(int fd)
{
    struct connection *one = &connections[fd];
    for (;;) {
        size_t before = one->received.length;
        if (before)
            memcpy(buffer, one->received.start, before);
        ssize_t received = recv(fd, buffer + before, BUFFER - before, 0);
        if (received <= 0)
            return received < 0 && errno == EAGAIN;
        size_t length = before + (size_t)received;
        ssize_t used = handle_bytes(fd, buffer, length);
        if (used < 0)
            return 0;
        if (before)
            remove_front(&one->received, before);
        if ((size_t)used < length)
            append(&one->received, buffer + used, length - (size_t)used);
        if ((size_t)received < BUFFER - before)
            return 1;
    }
}

static void accept_all(void)
{
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && errno == EAGAIN)
            return;
        if (fd < 0 && is_shortage(errno))
            die(EXIT_FAILED, "cannot accept: %s", strerror(errno));
        if (fd < 0)
            continue; /* the connection failed before it was accepted */
        connections[fd].role = serves_pieces ? CLIENT : UNKNOWN;
        struct epoll_event event = {.events = CONNECTION_EVENTS, .data.fd = fd};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
            die(EXIT_FAILED, "cannot watch descriptor %d: %s", fd, strerror(errno));
    }
}

static void handle(const struct epoll_event *event)
{
    int fd = event->data.fd;
    if (unlikely(fd == listener)) {
        accept_all();
        return;
    }
    int is_fine = 1;
    if (connections[fd].unsent.length && event->events & EPOLLOUT)
        is_fine = send_unsent(fd);
    if (is_fine && event->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        is_fine = receive(fd);
    if (!is_fine)
        close_connection(fd);
}

int main(int argc, char **argv)
{
    if (argc != 3 || (strcmp(argv[2], "fan-out") && strcmp(argv[2], "pieces")))
        die(EXIT_USAGE, "usage: %s PORT SERVICE, such as 0 fan-out; services: fan-out, pieces", argv[0]);
    struct target target = parse_target(2, argv);
    size_t limit = descriptor_limit();
    serves_pieces = !strcmp(argv[2], "pieces");
    memset(body, 'x', sizeof body);
    connections = map_zeroed(limit * sizeof *connections);
    subscribers = map_zeroed(limit * sizeof *subscribers);
    listener = listen_on(&target, SOCK_NONBLOCK);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = listener};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event))
        die(EXIT_FAILED, "cannot set up epoll: %s", strerror(errno));
    announce(&target, listener);
    static struct epoll_event events[EVENTS];
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS, -1);
        if (count < 0 && errno != EINTR)
            die(EXIT_FAILED, "epoll_wait failed: %s", strerror(errno));
        for (int i = 0; i < count; i++)
            handle(&events[i]);
    }
}
