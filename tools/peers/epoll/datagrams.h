/*
 * The server for datagrams: a batch is received with one recvmmsg and sent back from the same memory with one sendmmsg. A
 * batch that is not full has emptied the socket, so the next call is epoll_wait, not a receive that finds nothing.
 */
#ifndef PEERS_EPOLL_DATAGRAMS_H
#define PEERS_EPOLL_DATAGRAMS_H

#include "../listen.h"

#include <sys/epoll.h>

enum {
    BATCH = 64,
    LONGEST = 65536,
    STRIDE = LONGEST + 64, /* one cache line more: otherwise the starts of all buffers would share a cache set */
};

struct batch {
    struct mmsghdr received[BATCH], replies[BATCH];
    struct iovec room[BATCH], answers[BATCH];
    struct sockaddr_in senders[BATCH];
};

static struct msghdr header(struct sockaddr_in *sender, struct iovec *bytes)
{
    return (struct msghdr){.msg_name = sender, .msg_namelen = sizeof *sender, .msg_iov = bytes, .msg_iovlen = 1};
}

/* A reply goes to the source of its message, from the memory in which it was received. */
static void batch_open(struct batch *batch)
{
    char *buffers = map_zeroed((size_t)BATCH * STRIDE);
    for (int i = 0; i < BATCH; i++) {
        batch->room[i] = batch->answers[i] = (struct iovec){buffers + (size_t)i * STRIDE, LONGEST};
        batch->received[i].msg_hdr = header(&batch->senders[i], &batch->room[i]);
        batch->replies[i].msg_hdr = header(&batch->senders[i], &batch->answers[i]);
    }
}

/* A datagram that cannot be sent is dropped: the next one may have another destination. */
static void send_back(int fd, struct batch *batch, int count)
{
    for (int i = 0; i < count; i++)
        batch->answers[i].iov_len = batch->received[i].msg_len;
    for (int done = 0; done < count;) {
        int sent = sendmmsg(fd, batch->replies + done, (unsigned)(count - done), 0);
        done += sent > 0 ? sent : 1;
    }
}

static void echo_waiting(int fd, struct batch *batch)
{
    int count;
    do {
        count = recvmmsg(fd, batch->received, BATCH, MSG_DONTWAIT, NULL);
        send_back(fd, batch, count);
    } while (count == BATCH);
}

__attribute__((noreturn)) static void serve_datagrams(const struct target *target)
{
    static struct batch batch;
    batch_open(&batch);
    int fd = bind_to(target, SOCK_DGRAM), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
        die(EXIT_FAILED, "cannot watch the socket: %s", strerror(errno));
    announce(target, fd);
    for (;;) {
        if (epoll_wait(epoll, &event, 1, -1) < 0 && errno != EINTR)
            die(EXIT_FAILED, "epoll_wait failed: %s", strerror(errno));
        echo_waiting(fd, &batch);
    }
}

#endif
