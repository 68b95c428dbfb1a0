/*
 * The server for datagrams, on one socket. A multishot receive takes a buffer per datagram. Each datagram is sent back from
 * its buffer, to the address that the kernel wrote in front of it. A send does not wait, so it has ended once it is
 * submitted, and its buffer is returned after the enter. It posts a completion only if it fails. The socket is registered, so
 * that no operation looks up its descriptor.
 */
#ifndef FLOOR_DATAGRAMS_H
#define FLOOR_DATAGRAMS_H

#include "pool.h"

enum {
    NAME = 16, /* a struct sockaddr_in */
    PAYLOAD = sizeof(struct recvmsg_out) + NAME,
    MAX_PAYLOAD = 65536,
    DATAGRAM = PAYLOAD + MAX_PAYLOAD,
    STRIDE = DATAGRAM + 32 + 64, /* not a multiple of the page size, so that buffers start in different cache sets */
    SOCKET = 0,                /* index of the socket among the registered files */
};

struct server_socket {
    struct ring ring;
    struct pool pool;
    uint32_t datagrams[BUFFERS], first, sent, end; /* buffers to send: submitted from `first`, not yet from `sent` */
    int armed;
};

static int has_datagrams(const struct server_socket *socket) { return socket->sent != socket->end; }

static void submit_datagram(struct server_socket *socket)
{
    uint32_t bid = socket->datagrams[socket->sent++ % BUFFERS];
    char *datagram = pool_buffer(&socket->pool, bid);
    const struct recvmsg_out *out = (const struct recvmsg_out *)datagram;
    ring_push(&socket->ring, (struct sqe){.opcode = OP_SEND,
                                          .flags = SQE_FIXED_FILE | SQE_CQE_SKIP_SUCCESS,
                                          .fd = SOCKET,
                                          .addr = (uint64_t)(datagram + PAYLOAD),
                                          .len = out->payload_length,
                                          .off = (uint64_t)(datagram + sizeof *out),
                                          .name_length = (uint16_t)out->name_length,
                                          .op_flags = MSG_DONTWAIT | MSG_NOSIGNAL});
}

/* Called only while buffers are available: a receive on an empty buffer ring fails at once. */
static void submit_recvmsg(struct server_socket *socket)
{
    static const struct msghdr shape = {.msg_namelen = NAME};
    socket->armed = 1;
    ring_push(&socket->ring, (struct sqe){.opcode = OP_RECVMSG,
                                          .flags = SQE_FIXED_FILE | SQE_BUFFER_SELECT,
                                          .ioprio = RECV_MULTISHOT,
                                          .fd = SOCKET,
                                          .addr = (uint64_t)&shape,
                                          .len = 1,
                                          .user_data = 1,
                                          .buf_group = GROUP});
}

static void submit_ready(struct server_socket *socket)
{
    if (unlikely(!socket->armed) && socket->pool.available && ring_has_room(&socket->ring))
        submit_recvmsg(socket);
    while (has_datagrams(socket) && ring_has_room(&socket->ring))
        submit_datagram(socket);
}

/* A completion of a send (`user_data` is 0) means that it failed. Its datagram is dropped: later ones may have another
 * destination. */
static void on_datagram(struct server_socket *socket, const struct cqe *cqe)
{
    if (unlikely(!cqe->user_data))
        return;
    if (unlikely(!(cqe->flags & CQE_F_MORE)))
        socket->armed = 0;
    if (unlikely(!(cqe->flags & CQE_F_BUFFER)))
        return;
    uint32_t bid = cqe->flags >> CQE_BUFFER_SHIFT;
    pool_take(&socket->pool, bid, (uint32_t)cqe->res);
    socket->datagrams[socket->end++ % BUFFERS] = bid;
}

static void read_datagrams(struct server_socket *socket)
{
    struct ring *ring = &socket->ring;
    uint32_t head = *ring->cq_head, tail = load_acquire(ring->cq_tail);
    for (; head != tail; head++)
        on_datagram(socket, &ring->cqes[head & (CQ_ENTRIES - 1)]);
    store_release(ring->cq_head, head);
}

/* Returns the buffers of submitted datagrams: no send waits, so these datagrams are sent or dropped. */
static void return_buffers(struct server_socket *socket)
{
    uint32_t done = socket->sent - ring_unsubmitted(&socket->ring);
    while ((int32_t)(done - socket->first) > 0)
        pool_return(&socket->pool, socket->datagrams[socket->first++ % BUFFERS]);
}

static unsigned completions_to_await(const struct server_socket *socket)
{
    return socket->armed && !has_datagrams(socket);
}

__attribute__((noreturn)) static void serve_datagrams(const struct target *target)
{
    static struct server_socket socket;
    ring_open(&socket.ring);
    pool_open(&socket.pool, socket.ring.fd, DATAGRAM, STRIDE);
    int fd = bind_to(target, SOCK_DGRAM);
    if (ring_register(socket.ring.fd, REGISTER_FILES, &fd, 1))
        die(EXIT_FAILED, "cannot register the socket: %s", strerror(errno));
    register_fd(&socket.ring);
    announce(target, fd);
    for (;;) {
        pool_publish(&socket.pool);
        submit_ready(&socket);
        ring_enter(&socket.ring, completions_to_await(&socket));
        return_buffers(&socket);
        read_datagrams(&socket);
    }
}

#endif
