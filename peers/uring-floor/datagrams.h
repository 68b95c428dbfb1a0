/*
 * The same for datagrams, on one socket: its receive is armed once, and takes a buffer a datagram. Each is sent back from that
 * buffer, to the address that the kernel wrote in front of it, by a silent send that may not wait; it is done once it is
 * submitted, so its buffer goes back after the enter. The socket is a registered one: no operation looks its descriptor up.
 */
#ifndef FLOOR_DATAGRAMS_H
#define FLOOR_DATAGRAMS_H

#include "pool.h"

enum {
    NAME = 16, /* a struct sockaddr_in */
    PAYLOAD = sizeof(struct recvmsg_out) + NAME,
    LONGEST = 65536,
    LETTER = PAYLOAD + LONGEST,
    STRIDE = LETTER + 32 + 64, /* one cache line more: else the beginnings of all buffers fall into the same set of the cache */
    SOCKET = 0,                /* the index it is registered under */
};

struct office {
    struct ring ring;
    struct pool pool;
    uint32_t letters[BUFFERS], first, sent, end; /* buffers to send, in order; up to `sent` they are submitted */
    int armed;
};

static int office_has_letters(const struct office *office) { return office->sent != office->end; }

static void submit_letter(struct office *office)
{
    uint32_t bid = office->letters[office->sent++ % BUFFERS];
    char *letter = pool_buffer(&office->pool, bid);
    const struct recvmsg_out *out = (const struct recvmsg_out *)letter;
    ring_push(&office->ring, (struct sqe){.opcode = OP_SEND,
                                          .flags = SQE_FIXED_FILE | SQE_CQE_SKIP_SUCCESS,
                                          .fd = SOCKET,
                                          .addr = (uint64_t)(letter + PAYLOAD),
                                          .len = out->payload_length,
                                          .off = (uint64_t)(letter + sizeof *out),
                                          .name_length = (uint16_t)out->name_length,
                                          .op_flags = MSG_DONTWAIT | MSG_NOSIGNAL});
}

/* Armed on an empty buffer ring, a receive fails at once. */
static void submit_mailbox(struct office *office)
{
    static const struct msghdr shape = {.msg_namelen = NAME};
    office->armed = 1;
    ring_push(&office->ring, (struct sqe){.opcode = OP_RECVMSG,
                                          .flags = SQE_FIXED_FILE | SQE_BUFFER_SELECT,
                                          .ioprio = RECV_MULTISHOT,
                                          .fd = SOCKET,
                                          .addr = (uint64_t)&shape,
                                          .len = 1,
                                          .user_data = 1,
                                          .buf_group = GROUP});
}

static void submit_letters(struct office *office)
{
    if (unlikely(!office->armed) && office->pool.available && ring_has_room(&office->ring))
        submit_mailbox(office);
    while (office_has_letters(office) && ring_has_room(&office->ring))
        submit_letter(office);
}

/* A send that speaks up has failed: its datagram is dropped, since the next one may go elsewhere. */
static void on_letter(struct office *office, const struct cqe *cqe)
{
    if (unlikely(!cqe->user_data))
        return;
    if (unlikely(!(cqe->flags & CQE_F_MORE)))
        office->armed = 0;
    if (unlikely(!(cqe->flags & CQE_F_BUFFER)))
        return;
    uint32_t bid = cqe->flags >> CQE_BUFFER_SHIFT;
    pool_take(&office->pool, bid, (uint32_t)cqe->res);
    office->letters[office->end++ % BUFFERS] = bid;
}

static void read_letters(struct office *office)
{
    struct ring *ring = &office->ring;
    uint32_t head = *ring->cq_head, tail = load_acquire(ring->cq_tail);
    for (; head != tail; head++)
        on_letter(office, &ring->cqes[head & (CQ_ENTRIES - 1)]);
    store_release(ring->cq_head, head);
}

/* What was submitted has been sent or dropped: no send waits. The queue is in order, so what it still holds is the end. */
static void return_buffers(struct office *office)
{
    uint32_t done = office->sent - ring_unsubmitted(&office->ring);
    while ((int32_t)(done - office->first) > 0)
        pool_return(&office->pool, office->letters[office->first++ % BUFFERS]);
}

static unsigned letters_to_wait_for(const struct office *office)
{
    return office->armed && !office_has_letters(office);
}

__attribute__((noreturn)) static void serve_datagrams(const struct target *target)
{
    static struct office office;
    ring_open(&office.ring);
    pool_open(&office.pool, office.ring.fd, LETTER, STRIDE);
    int fd = bind_to(target, SOCK_DGRAM);
    if (ring_register(office.ring.fd, REGISTER_FILES, &fd, 1))
        die(EXIT_FAILED, "cannot register the socket: %s", strerror(errno));
    register_fd(&office.ring);
    announce(target, fd);
    for (;;) {
        pool_publish(&office.pool);
        submit_letters(&office);
        ring_enter(&office.ring, letters_to_wait_for(&office));
        return_buffers(&office);
        read_letters(&office);
    }
}

#endif
