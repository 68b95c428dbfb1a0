/*
 * An echo server that calls io_uring directly, with one thread and one io_uring_enter per turn. It is the floor of
 * comparisons: what another server on io_uring costs beyond it is the overhead of that server.
 *
 * A turn: publish the returned buffers with one store → queue receives and sends → enter (submits them, and waits for a
 * completion if nothing else can be done) → read the completions → complete the sends.
 *
 * A connection's receive is multishot and takes buffers from the shared buffer ring. Received bytes are sent from the same
 * memory. A send is first tried eagerly: it does not wait, and posts a completion only if it could not send everything. So a
 * request needs one enter if the server is otherwise idle. If the enter that submitted the send has returned and there is no
 * completion, the send's buffers are returned. If the completion reports that not everything was sent, the rest is sent by a
 * send that waits. At most one send is in flight on a connection, because the bytes of two could interleave.
 */
#define _GNU_SOURCE
#include "datagrams.h"

enum {
    VECTORS = 64,             /* maximum number of chunks in one send */
    RECEIVE_LIMIT = 512 << 10, /* bytes after which a receive ends; it is armed again once at most half of them are queued */
};

enum kind { ACCEPT, RECEIVE, SEND };

enum sending { IDLE, EAGER, WAITING };

struct connection {
    struct queue queue; /* received, not yet known to be sent */
    uint32_t queued;    /* bytes in the queue */
    uint32_t offered;   /* bytes of the queue in the send in flight */
    uint8_t armed, limited, arming, to_send, ended, failed, blocked, sending;
};

/* Descriptors, first in, first out. A flag in the connection prevents that `sends` or `arms` has a descriptor twice, so these
 * lists cannot overflow. */
struct list {
    int *items;
    uint32_t head, tail, mask;
};

struct message {
    struct msghdr header;
    struct iovec vectors[VECTORS];
};

struct server {
    struct ring ring;
    struct pool pool;
    struct connection *connections; /* by descriptor */
    struct list sends, arms, eager;
    struct message *messages; /* by submission slot */
    int listener;
    int accept_wanted, accept_paused;
    int closed;    /* a descriptor was closed since the last enter */
    int unsettled; /* entries may be unsubmitted, or completions in the kernel's overflow list */
    int follow_up; /* work follows an eager send of this turn, so the enter must not wait */
    uint32_t receive_limit;
};

static int list_is_empty(const struct list *list) { return list->head == list->tail; }
static void list_push(struct list *list, int fd) { list->items[list->tail++ & list->mask] = fd; }
static int list_pop(struct list *list) { return list->items[list->head++ & list->mask]; }

static struct list list_new(size_t limit)
{
    size_t capacity = 1;
    while (capacity < limit)
        capacity *= 2;
    return (struct list){.items = map_zeroed(capacity * sizeof(int)), .mask = (uint32_t)(capacity - 1)};
}

static uint64_t token(enum kind kind, int fd) { return (uint64_t)fd << 8 | kind; }

static void want_receive(struct server *server, int fd)
{
    struct connection *c = &server->connections[fd];
    if (c->armed || c->arming || c->ended || c->failed || c->queued > RECEIVE_LIMIT / 2)
        return;
    c->arming = 1;
    list_push(&server->arms, fd);
}

static void want_send(struct server *server, int fd)
{
    struct connection *c = &server->connections[fd];
    if (c->to_send || c->sending != IDLE || c->failed || !c->queued)
        return;
    c->to_send = 1;
    list_push(&server->sends, fd);
}

static void release_sent(struct server *server, struct connection *c, uint32_t bytes)
{
    queue_release(&c->queue, &server->pool, bytes);
    c->queued -= bytes;
}

/* Closes a connection that has ended or failed, once nothing of it is in the kernel, in `sends` or in `arms`, and nothing is
 * left to send. The buffers of a failed connection are returned as soon as no send uses them, because other connections may
 * wait for them. */
static void close_if_done(struct server *server, int fd)
{
    struct connection *c = &server->connections[fd];
    if (c->failed && c->sending == IDLE)
        release_sent(server, c, c->queued);
    if (c->armed || c->arming || c->to_send || c->sending != IDLE || !(c->failed || c->ended) || c->queued)
        return;
    *c = (struct connection){0};
    close(fd);
    server->closed = 1;
    server->accept_wanted |= server->accept_paused;
    server->accept_paused = 0;
}

/* The shutdown ends a receive that is still armed. */
static void fail(struct server *server, int fd)
{
    server->connections[fd].failed = 1;
    shutdown(fd, SHUT_RDWR);
}

static void on_accept(struct server *server, const struct cqe *cqe)
{
    if (cqe->res >= 0)
        want_receive(server, cqe->res);
    if (cqe->flags & CQE_F_MORE)
        return;
    server->accept_paused = is_shortage(-cqe->res) && !server->closed;
    server->accept_wanted = !server->accept_paused;
}

/* For a slow reader, small pieces share a buffer. A piece that is larger or does not fit has its own, or moves to the heap if
 * less than a quarter of the buffers is free. */
static void on_bytes_blocked(struct pool *pool, struct connection *c, struct chunk *chunk)
{
    if (queue_absorb(&c->queue, chunk->data, chunk->end))
        pool_return(pool, chunk->bid);
    else
        queue_push(&c->queue, pool_free(pool) < LOW_WATER ? chunk_to_heap(pool, chunk) : chunk);
}

static void on_bytes(struct server *server, int fd, struct chunk *chunk)
{
    struct connection *c = &server->connections[fd];
    c->queued += chunk->end;
    if (unlikely(c->blocked))
        on_bytes_blocked(&server->pool, c, chunk);
    else
        queue_push(&c->queue, chunk);
    want_send(server, fd);
}

static void on_receive_end(struct server *server, int fd, int result)
{
    struct connection *c = &server->connections[fd];
    c->armed = 0;
    if (result == 0)
        c->ended = 1;
    else if (result == -EINVAL && c->limited)
        server->receive_limit = 0; /* the kernel is older than Linux 6.17 */
    else if (result < 0 && result != -ENOBUFS && result != -EINTR && result != -EAGAIN)
        fail(server, fd);
    want_receive(server, fd);
    close_if_done(server, fd);
}

static void on_receive(struct server *server, int fd, const struct cqe *cqe)
{
    if (likely(cqe->flags & CQE_F_BUFFER)) {
        uint32_t length = cqe->res > 0 ? (uint32_t)cqe->res : 0;
        struct chunk *chunk = pool_take(&server->pool, cqe->flags >> CQE_BUFFER_SHIFT, length);
        if (likely(length && !server->connections[fd].failed))
            on_bytes(server, fd, chunk);
        else
            pool_return(&server->pool, chunk->bid);
    }
    if (unlikely(!(cqe->flags & CQE_F_MORE)))
        on_receive_end(server, fd, cqe->res);
}

/* Called for the completion of a send, and by `settle_sends` for an eager send without a completion. */
static void on_send(struct server *server, int fd, int result)
{
    struct connection *c = &server->connections[fd];
    c->sending = IDLE;
    if (result < 0 && result != -EAGAIN && result != -EINTR)
        fail(server, fd);
    uint32_t sent = result > 0 ? (uint32_t)result : 0;
    release_sent(server, c, sent);
    c->blocked = sent < c->offered;
    want_send(server, fd);
    want_receive(server, fd);
    close_if_done(server, fd);
}

static void on_completion(struct server *server, const struct cqe *cqe)
{
    int fd = (int)(cqe->user_data >> 8);
    enum kind kind = cqe->user_data & 0xff;
    if (likely(kind == RECEIVE))
        on_receive(server, fd, cqe);
    else if (kind == SEND)
        on_send(server, fd, cqe->res);
    else
        on_accept(server, cqe);
}

static void read_completions(struct server *server)
{
    struct ring *ring = &server->ring;
    uint32_t head = *ring->cq_head, tail = load_acquire(ring->cq_tail);
    for (; head != tail; head++)
        on_completion(server, &ring->cqes[head & (CQ_ENTRIES - 1)]);
    store_release(ring->cq_head, head);
}

/* Called after all completions are read: an eager send without one has sent everything. */
static void settle_sends(struct server *server)
{
    server->unsettled = !ring_is_settled(&server->ring);
    while (!server->unsettled && !list_is_empty(&server->eager)) {
        int fd = list_pop(&server->eager);
        struct connection *c = &server->connections[fd];
        if (likely(c->sending == EAGER))
            on_send(server, fd, (int)c->offered);
    }
}

/* Several chunks are sent in one message, so that none waits for the acknowledgement of another. */
static struct sqe gather(struct server *server, struct connection *c)
{
    struct message *message = &server->messages[ring_slot(&server->ring)];
    size_t count = 0;
    for (struct chunk *chunk = c->queue.first; chunk && count < VECTORS; chunk = chunk->next) {
        message->vectors[count++] = (struct iovec){chunk->data + chunk->start, chunk_length(chunk)};
        c->offered += chunk_length(chunk);
    }
    message->header = (struct msghdr){.msg_iov = message->vectors, .msg_iovlen = count};
    return (struct sqe){.opcode = OP_SENDMSG, .addr = (uint64_t)&message->header, .len = 1};
}

static struct sqe offer(struct server *server, struct connection *c)
{
    struct chunk *first = c->queue.first;
    c->offered = 0;
    if (unlikely(first->next))
        return gather(server, c);
    c->offered = chunk_length(first);
    return (struct sqe){.opcode = OP_SEND, .addr = (uint64_t)(first->data + first->start), .len = c->offered};
}

/* An eager send that succeeds does not end the wait of an enter. So this turn's enter must not wait if the connection has more
 * bytes to send, or its receive is not armed. */
static void mark_eager(struct server *server, int fd, struct connection *c)
{
    c->sending = EAGER;
    list_push(&server->eager, fd);
    server->follow_up |= !c->armed || c->offered < c->queued;
}

static void submit_send(struct server *server, int fd)
{
    struct connection *c = &server->connections[fd];
    c->to_send = 0;
    if (unlikely(c->failed)) {
        close_if_done(server, fd);
        return;
    }
    if (unlikely(c->blocked && pool_free(&server->pool) < LOW_WATER))
        queue_to_heap(&c->queue, &server->pool);
    struct sqe sqe = offer(server, c);
    sqe.fd = fd;
    sqe.user_data = token(SEND, fd);
    sqe.flags = c->blocked ? 0 : SQE_CQE_SKIP_SUCCESS;
    sqe.op_flags = MSG_NOSIGNAL | MSG_WAITALL | (c->blocked ? 0 : MSG_DONTWAIT);
    ring_push(&server->ring, sqe);
    if (unlikely(c->blocked))
        c->sending = WAITING;
    else
        mark_eager(server, fd, c);
}

static void submit_receive(struct server *server, int fd)
{
    struct connection *c = &server->connections[fd];
    c->arming = 0;
    if (unlikely(c->failed)) {
        close_if_done(server, fd);
        return;
    }
    c->armed = 1;
    c->limited = server->receive_limit > 0;
    ring_push(&server->ring, (struct sqe){.opcode = OP_RECV,
                                          .flags = SQE_BUFFER_SELECT,
                                          .ioprio = RECV_MULTISHOT,
                                          .fd = fd,
                                          .user_data = token(RECEIVE, fd),
                                          .buf_group = GROUP,
                                          .optlen = server->receive_limit});
}

static void submit_accept(struct server *server)
{
    server->accept_wanted = 0;
    ring_push(&server->ring, (struct sqe){.opcode = OP_ACCEPT,
                                          .ioprio = ACCEPT_MULTISHOT,
                                          .fd = server->listener,
                                          .op_flags = SOCK_CLOEXEC,
                                          .user_data = token(ACCEPT, server->listener)});
}

/* Receives are submitted before sends, because `mark_eager` depends on whether the receive is armed. There are no more of them
 * than buffers in the ring: a receive on an empty buffer ring fails at once. */
static void submit_all(struct server *server)
{
    struct ring *ring = &server->ring;
    server->follow_up = 0;
    if (unlikely(server->accept_wanted) && ring_has_room(ring))
        submit_accept(server);
    for (uint32_t left = server->pool.available; left && !list_is_empty(&server->arms) && ring_has_room(ring); left--)
        submit_receive(server, list_pop(&server->arms));
    while (!list_is_empty(&server->sends) && ring_has_room(ring))
        submit_send(server, list_pop(&server->sends));
}

/* Returns 1 only if nothing can be done without a completion. */
static unsigned completions_to_wait_for(const struct server *server)
{
    int buffers_come_back = server->pool.available || !list_is_empty(&server->eager);
    int busy = server->accept_wanted || server->unsettled || server->follow_up || !list_is_empty(&server->sends) ||
               (!list_is_empty(&server->arms) && buffers_come_back);
    return !busy;
}

__attribute__((noreturn)) static void run(struct server *server)
{
    for (;;) {
        pool_publish(&server->pool);
        submit_all(server);
        server->closed = 0;
        ring_enter(&server->ring, completions_to_wait_for(server));
        read_completions(server);
        settle_sends(server);
    }
}

int main(int argc, char **argv)
{
    static struct server server;
    struct target target = parse_target(argc, argv);
    if (target.family == UDP)
        serve_datagrams(&target);
    size_t limit = descriptor_limit();
    ring_open(&server.ring);
    pool_open(&server.pool, server.ring.fd, BUFFER, BUFFER);
    register_fd(&server.ring);
    server.connections = map_zeroed(limit * sizeof *server.connections);
    server.messages = map_zeroed(SQ_ENTRIES * sizeof *server.messages);
    server.sends = list_new(limit);
    server.arms = list_new(limit);
    server.eager = list_new(limit);
    server.receive_limit = RECEIVE_LIMIT;
    server.listener = listen_on(&target, 0);
    server.accept_wanted = 1;
    announce(&target, server.listener);
    run(&server);
}
