// The kernel loses the end of a multishot receive if data and a reset arrive together: the data is delivered, the receive stays
// armed and never completes, although poll(2) reports that the socket has hung up. Plain io_uring, without annulus or liburing:
//
//     cc -O2 -o /tmp/lost-wake-up tools/peers/lost-wake-up.c && /tmp/lost-wake-up 500000
//
// Seen on Linux 6.18.44. Single receives, epoll, and ends without a reset behave correctly.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENTRIES = 1024, BUFFERS = 1024, SIZE = 256, FILES = 4096 };

static int ring;
static struct io_uring_params params;
static unsigned char *queues;
static struct io_uring_sqe *entries;
static struct io_uring_buf_ring *buffers;
static char memory[BUFFERS][SIZE];
static char armed[FILES];
static unsigned queued;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static _Atomic unsigned *at(unsigned offset) { return (_Atomic unsigned *)(queues + offset); }

static void enter(unsigned wait, struct io_uring_getevents_arg *arg) {
    unsigned flags = IORING_ENTER_GETEVENTS | (arg ? IORING_ENTER_EXT_ARG : 0);
    long done = syscall(SYS_io_uring_enter, ring, queued, wait, flags, arg, arg ? sizeof *arg : 0);
    if (done < 0 && errno != ETIME && errno != EINTR) fail("io_uring_enter");
    queued = 0;
}

static struct io_uring_sqe *next(unsigned char opcode, int fd) {
    if (queued == ENTRIES) enter(0, NULL);
    unsigned tail = *at(params.sq_off.tail), index = tail & (ENTRIES - 1);
    struct io_uring_sqe *entry = &entries[index];
    memset(entry, 0, sizeof *entry);
    entry->opcode = opcode;
    entry->fd = fd;
    entry->user_data = fd;
    ((unsigned *)(queues + params.sq_off.array))[index] = index;
    atomic_store(at(params.sq_off.tail), tail + 1);
    queued++;
    return entry;
}

static void give(unsigned short id) {
    unsigned short tail = buffers->tail;
    struct io_uring_buf *buffer = &buffers->bufs[tail & (BUFFERS - 1)];
    buffer->addr = (unsigned long)memory[id];
    buffer->len = SIZE;
    buffer->bid = id;
    atomic_store((_Atomic unsigned short *)&buffers->tail, tail + 1);
}

static void set_up(void) {
    params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE;
    params.cq_entries = 8 * ENTRIES;
    if ((ring = syscall(SYS_io_uring_setup, ENTRIES, &params)) < 0) fail("io_uring_setup");
    int how = PROT_READ | PROT_WRITE;
    size_t size = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    size_t other = params.sq_off.array + ENTRIES * sizeof(unsigned);
    queues = mmap(NULL, size > other ? size : other, how, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    entries = mmap(NULL, ENTRIES * sizeof *entries, how, MAP_SHARED, ring, IORING_OFF_SQES);
    buffers = mmap(NULL, BUFFERS * sizeof(struct io_uring_buf), how, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct io_uring_buf_reg group = {.ring_addr = (unsigned long)buffers, .ring_entries = BUFFERS};
    if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_PBUF_RING, &group, 1)) fail("buffers");
    for (int id = 0; id < BUFFERS; id++) give(id);
}

static void receive(int fd) {
    struct io_uring_sqe *entry = next(IORING_OP_RECV, fd);
    entry->ioprio = IORING_RECV_MULTISHOT;
    entry->flags = IOSQE_BUFFER_SELECT;
    armed[fd] = 1;
}

static void on_completion(int listener, struct io_uring_cqe *it) {
    int fd = it->user_data;
    if (fd == listener) {
        if (it->res >= 0 && it->res < FILES) receive(it->res);
        if (!(it->flags & IORING_CQE_F_MORE)) next(IORING_OP_ACCEPT, fd)->ioprio = IORING_ACCEPT_MULTISHOT;
        return;
    }
    if (it->flags & IORING_CQE_F_BUFFER) give(it->flags >> IORING_CQE_BUFFER_SHIFT);
    if (it->flags & IORING_CQE_F_MORE) return;
    if (it->res > 0 || it->res == -ENOBUFS) return receive(fd);
    armed[fd] = 0;
    close(fd);
}

// Connects, sends some bytes and resets the connection, this many times.
static void client(struct sockaddr_in *address, long count) {
    struct linger reset = {1, 0};
    while (count--) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (void *)address, sizeof *address)) fail("connect");
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        send(fd, "data, and then", 14, MSG_NOSIGNAL);
        close(fd);
    }
    exit(0);
}

int main(int count, char **arguments) {
    long connections = count > 1 ? atol(arguments[1]) : 500000;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    if (bind(listener, (void *)&address, len) || listen(listener, 1024)) fail("listen");
    getsockname(listener, (void *)&address, &len);
    int child = fork();
    if (child == 0) client(&address, connections);
    set_up();
    next(IORING_OP_ACCEPT, listener)->ioprio = IORING_ACCEPT_MULTISHOT;
    // Ends once the client has ended and nothing has arrived for two seconds.
    for (int ended = 0, quiet = 0; !(ended && quiet >= 2);) {
        struct __kernel_timespec second = {.tv_sec = 1};
        struct io_uring_getevents_arg arg = {.ts = (unsigned long)&second};
        enter(1, &arg);
        unsigned head = *at(params.cq_off.head), tail = atomic_load(at(params.cq_off.tail));
        quiet = head == tail ? quiet + 1 : 0;
        struct io_uring_cqe *completions = (void *)(queues + params.cq_off.cqes);
        for (; head != tail; head++) on_completion(listener, &completions[head & (params.cq_entries - 1)]);
        atomic_store(at(params.cq_off.head), head);
        ended = ended || waitpid(child, NULL, WNOHANG) == child;
    }
    long left = 0, hung_up = 0;
    for (int fd = 0; fd < FILES; fd++) {
        struct pollfd polled = {.fd = fd};
        if (!armed[fd]) continue;
        left++;
        hung_up += poll(&polled, 1, 0) == 1 && (polled.revents & POLLHUP);
    }
    printf("%ld connections: %ld receives are still armed, %ld of them on sockets that have hung up\n", connections, left, hung_up);
    return hung_up > 0;
}
