/*
 * A bulk transfer of datagrams with a sending and a receiving thread. The contract is in ../README.md.
 *
 * A batch is sent by one sendmmsg and received by one recvmmsg. In the mode "segments" a batch is one message, which the
 * kernel segments (UDP_SEGMENT), and coalesced datagrams (UDP_GRO) are received by one recvmsg.
 */
#define _GNU_SOURCE
#include "../listen.h"

#include <inttypes.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum {
    BATCH = 64,
    LONGEST = 65507,
    ROOM = 65536,
    STRIDE = ROOM + 64, /* one cache line more, or the starts of all buffers would share a set of the cache */
    LEAST = 8,
    MOST_WINDOW = 4096,
    PATIENCE = 20000,  /* µs until unacknowledged datagrams are given up */
    LAST_WORDS = 1000, /* how often the end is repeated */
    BUFFER = 8 << 20,  /* requested for a socket; the kernel caps it */
};

static const uint64_t END = UINT64_MAX;

struct mark {
    uint64_t time, cpu, received, next;
};

/* The parameters of a job, and the state that both ends share. */
struct transfer {
    unsigned length, window, together; /* datagrams per call */
    uint64_t duration;
    int segments, cores[2];
    struct sockaddr_in receiver;
    int to_receive, to_send;
    atomic_int passed;  /* edges of the measured time that have passed */
    atomic_int is_over; /* the receiver has seen the end */
    struct mark sender[2], receiver_marks[2];
};

static uint64_t now(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time))
        die(EXIT_FAILED, "cannot read a clock: %s", strerror(errno));
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void pin(int core)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET((unsigned)core, &cores);
    if (sched_setaffinity(0, sizeof cores, &cores))
        die(EXIT_FAILED, "cannot run on core %d: %s", core, strerror(errno));
}

static struct mark mark(void)
{
    return (struct mark){.time = now(CLOCK_MONOTONIC), .cpu = now(CLOCK_THREAD_CPUTIME_ID)};
}

static void set(int fd, int level, int option, const void *value, socklen_t length)
{
    if (setsockopt(fd, level, option, value, length))
        die(EXIT_FAILED, "cannot set option %d: %s", option, strerror(errno));
}

/* --- the sender --- */

struct sender {
    struct mmsghdr messages[BATCH];
    struct iovec pieces[BATCH];
    char *bytes, control[CMSG_SPACE(sizeof(uint16_t))];
    uint64_t sent, settled;
    unsigned edges;
};

static void prepare_segments(struct sender *sender, const struct transfer *transfer)
{
    struct msghdr *message = &sender->messages[0].msg_hdr;
    sender->pieces[0] = (struct iovec){sender->bytes, (size_t)transfer->length * transfer->together};
    *message = (struct msghdr){.msg_iov = sender->pieces, .msg_iovlen = 1};
    if (transfer->together < 2)
        return;
    message->msg_control = sender->control;
    message->msg_controllen = sizeof sender->control;
    struct cmsghdr *control = CMSG_FIRSTHDR(message);
    *control = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(uint16_t)), .cmsg_level = SOL_UDP, .cmsg_type = UDP_SEGMENT};
    uint16_t size = (uint16_t)transfer->length;
    memcpy(CMSG_DATA(control), &size, sizeof size);
}

static void prepare(struct sender *sender, const struct transfer *transfer)
{
    sender->bytes = map_zeroed((size_t)transfer->length * transfer->together);
    if (transfer->segments) {
        prepare_segments(sender, transfer);
        return;
    }
    for (unsigned i = 0; i < transfer->together; i++) {
        sender->pieces[i] = (struct iovec){sender->bytes + (size_t)i * transfer->length, transfer->length};
        sender->messages[i].msg_hdr = (struct msghdr){.msg_iov = &sender->pieces[i], .msg_iovlen = 1};
    }
}

static void send_batch(struct sender *sender, const struct transfer *transfer)
{
    for (unsigned i = 0; i < transfer->together; i++, sender->sent++)
        memcpy(sender->bytes + (size_t)i * transfer->length, &sender->sent, sizeof sender->sent);
    unsigned count = transfer->segments ? 1 : transfer->together;
    for (unsigned done = 0; done < count;) {
        int sent = sendmmsg(transfer->to_send, sender->messages + done, count - done, 0);
        if (sent < 0 && errno != EINTR)
            die(EXIT_FAILED, "cannot send: %s", strerror(errno));
        done += sent > 0 ? (unsigned)sent : 0;
    }
}

/* Waits for an acknowledgement. If none arrives in time, everything in flight is given up. */
static void hear(struct sender *sender, const struct transfer *transfer)
{
    uint64_t number;
    if (recv(transfer->to_send, &number, sizeof number, 0) != sizeof number)
        sender->settled = sender->sent;
    else if (number > sender->settled)
        sender->settled = number;
}

/* Passes the edges that are due; false after the last. */
static int goes_on(struct sender *sender, struct transfer *transfer, uint64_t began)
{
    uint64_t warm_up = transfer->duration / 5, edges[] = {warm_up, warm_up + transfer->duration};
    struct mark here = mark();
    if (here.time - began >= edges[sender->edges]) {
        transfer->sender[sender->edges++] = here;
        atomic_fetch_add(&transfer->passed, 1);
    }
    return sender->edges < 2;
}

static void end(struct transfer *transfer)
{
    for (int i = 0; i < LAST_WORDS && !atomic_load(&transfer->is_over); i++) {
        send(transfer->to_send, &END, sizeof END, 0);
        usleep(1000);
    }
    if (!atomic_load(&transfer->is_over))
        die(EXIT_FAILED, "the receiver has stopped");
}

static void *run_sender(void *argument)
{
    struct transfer *transfer = argument;
    static struct sender sender;
    sender = (struct sender){0};
    pin(transfer->cores[0]);
    prepare(&sender, transfer);
    uint64_t began = now(CLOCK_MONOTONIC);
    while (goes_on(&sender, transfer, began)) {
        while (sender.sent - sender.settled + transfer->together <= transfer->window)
            send_batch(&sender, transfer);
        hear(&sender, transfer);
    }
    end(transfer);
    munmap(sender.bytes, (size_t)transfer->length * transfer->together);
    return NULL;
}

/* --- the receiver --- */

struct receiver {
    struct mmsghdr messages[BATCH];
    struct iovec rooms[BATCH];
    struct sockaddr_in from;
    char *bytes, control[CMSG_SPACE(sizeof(int))];
    uint64_t received, next;
    unsigned unacknowledged, edges;
};

static void make_room(struct receiver *receiver)
{
    receiver->bytes = map_zeroed((size_t)BATCH * STRIDE);
    for (int i = 0; i < BATCH; i++) {
        receiver->rooms[i] = (struct iovec){receiver->bytes + (size_t)i * STRIDE, ROOM};
        receiver->messages[i].msg_hdr = (struct msghdr){.msg_iov = &receiver->rooms[i], .msg_iovlen = 1};
    }
    receiver->messages[0].msg_hdr.msg_name = &receiver->from;
}

/* Bytes per datagram of a message. */
static size_t size_of(struct msghdr *message, size_t length)
{
    for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control; control = CMSG_NXTHDR(message, control))
        if (control->cmsg_level == SOL_UDP && control->cmsg_type == UDP_GRO) {
            int size;
            memcpy(&size, CMSG_DATA(control), sizeof size);
            return (size_t)size;
        }
    return length;
}

/* Counts the datagrams of a message; false at the end. */
static int take(struct receiver *receiver, const struct transfer *transfer, const char *bytes, size_t length, size_t size)
{
    for (size_t at = 0; at < length; at += size) {
        uint64_t number;
        memcpy(&number, bytes + at, sizeof number);
        if (number == END)
            return 0;
        if (length - at < size || size != transfer->length)
            die(EXIT_FAILED, "a datagram of %zu bytes came where %u were sent", size, transfer->length);
        receiver->received++;
        receiver->unacknowledged++;
        receiver->next = number >= receiver->next ? number + 1 : receiver->next;
    }
    return 1;
}

/* Receives what is available; false at the end. */
static int receive(struct receiver *receiver, const struct transfer *transfer)
{
    struct msghdr *first = &receiver->messages[0].msg_hdr;
    first->msg_namelen = sizeof receiver->from;
    if (transfer->segments) {
        first->msg_control = receiver->control;
        first->msg_controllen = sizeof receiver->control;
        ssize_t came = recvmsg(transfer->to_receive, first, 0);
        if (came < LEAST)
            die(EXIT_FAILED, "cannot receive: %s", came < 0 ? strerror(errno) : "too few bytes");
        return take(receiver, transfer, receiver->bytes, (size_t)came, size_of(first, (size_t)came));
    }
    int count = recvmmsg(transfer->to_receive, receiver->messages, BATCH, MSG_WAITFORONE, NULL), more = 1;
    if (count < 0)
        die(EXIT_FAILED, "cannot receive: %s", strerror(errno));
    for (int i = 0; i < count && more; i++) {
        size_t length = receiver->messages[i].msg_len;
        more = take(receiver, transfer, receiver->rooms[i].iov_base, length, length);
    }
    return more;
}

static void look_at_stage(struct receiver *receiver, struct transfer *transfer)
{
    if (atomic_load_explicit(&transfer->passed, memory_order_relaxed) <= (int)receiver->edges)
        return;
    struct mark here = mark();
    here.received = receiver->received;
    here.next = receiver->next;
    transfer->receiver_marks[receiver->edges++] = here;
}

static void acknowledge(struct receiver *receiver, const struct transfer *transfer)
{
    if (receiver->unacknowledged < (transfer->window + 7) / 8)
        return;
    receiver->unacknowledged = 0;
    sendto(transfer->to_receive, &receiver->next, sizeof receiver->next, 0, (struct sockaddr *)&receiver->from,
           sizeof receiver->from);
}

static void *run_receiver(void *argument)
{
    struct transfer *transfer = argument;
    static struct receiver receiver;
    receiver = (struct receiver){0};
    pin(transfer->cores[1]);
    make_room(&receiver);
    while (receive(&receiver, transfer)) {
        look_at_stage(&receiver, transfer);
        acknowledge(&receiver, transfer);
    }
    look_at_stage(&receiver, transfer);
    atomic_store(&transfer->is_over, 1);
    munmap(receiver.bytes, (size_t)BATCH * STRIDE);
    return NULL;
}

/* --- both --- */

static void open_sockets(struct transfer *transfer)
{
    struct target anywhere = {.family = UDP};
    transfer->to_receive = bind_to(&anywhere, SOCK_DGRAM);
    transfer->to_send = bind_to(&anywhere, SOCK_DGRAM);
    static const int buffer = BUFFER;
    static const struct timeval patience = {.tv_usec = PATIENCE};
    set(transfer->to_receive, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
    set(transfer->to_send, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    set(transfer->to_send, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    set(transfer->to_receive, SOL_UDP, UDP_GRO, &transfer->segments, sizeof transfer->segments);
    socklen_t length = sizeof transfer->receiver;
    if (getsockname(transfer->to_receive, (struct sockaddr *)&transfer->receiver, &length) ||
        connect(transfer->to_send, (struct sockaddr *)&transfer->receiver, length))
        die(EXIT_FAILED, "cannot connect: %s", strerror(errno));
}

static void answer(struct transfer *transfer)
{
    pthread_t threads[2];
    open_sockets(transfer);
    if (pthread_create(&threads[0], NULL, run_receiver, transfer) ||
        pthread_create(&threads[1], NULL, run_sender, transfer))
        die(EXIT_FAILED, "cannot start a thread");
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    close(transfer->to_receive);
    close(transfer->to_send);
    const struct mark *from = &transfer->receiver_marks[0], *to = &transfer->receiver_marks[1];
    uint64_t received = to->received - from->received, due = to->next - from->next;
    printf("{\"operations\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"ns\":%" PRIu64
           ",\"sender_cpu_ns\":%" PRIu64 ",\"receiver_cpu_ns\":%" PRIu64 "}\n",
           received, due > received ? due - received : 0, received * transfer->length, to->time - from->time,
           transfer->sender[1].cpu - transfer->sender[0].cpu, to->cpu - from->cpu);
    if (fflush(stdout))
        die(EXIT_FAILED, "cannot answer: %s", strerror(errno));
}

/* A batch is at most half a window, so that the next batch is ready before the last is acknowledged. */
static unsigned together(const struct transfer *transfer)
{
    unsigned most = transfer->segments ? LONGEST / transfer->length : BATCH, half = (transfer->window + 1) / 2;
    most = most < BATCH ? most : BATCH;
    return most < half ? most : half;
}

int main(int count, char **words)
{
    int segments = count == 4 && !strcmp(words[3], "segments");
    if (count != 3 && !segments)
        die(EXIT_USAGE, "usage: %s SENDER_CORE RECEIVER_CORE [segments], then lines of BYTES WINDOW SECONDS", words[0]);
    unsigned length, window;
    double seconds;
    int read;
    while ((read = scanf("%u %u %lf", &length, &window, &seconds)) == 3) {
        if (length < LEAST || length > LONGEST || !window || window > MOST_WINDOW || !(seconds > 0 && seconds < 3600))
            die(EXIT_USAGE, "%d to %d bytes, a window of 1 to %d, up to 3600 seconds", LEAST, LONGEST, MOST_WINDOW);
        static struct transfer transfer;
        transfer = (struct transfer){.length = length,
                                     .window = window,
                                     .duration = (uint64_t)(seconds * 1e9),
                                     .segments = segments,
                                     .cores = {atoi(words[1]), atoi(words[2])}};
        transfer.together = together(&transfer);
        answer(&transfer);
    }
    return read == EOF ? 0 : EXIT_USAGE;
}
