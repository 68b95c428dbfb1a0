/*
 * NOP throughput through liburing. The contract is in ../README.md.
 *
 * Completions are read in place and marked as seen by one store. In the mode "one", each completion is peeked and marked
 * before the next.
 *
 * If the headers have IORING_SETUP_NO_SQARRAY, the library supports it. Under 2.3 (Debian 12) the flag must not be used: the
 * library would write the missing index array over the heads and tails of the queue.
 */
#include <errno.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif
#ifndef IORING_SETUP_NO_SQARRAY
#define IORING_SETUP_NO_SQARRAY 0
#endif

enum { STRIDE = 4096, MAX_ENTRIES = 32768 };

/* Set-up flags to try, from the newest kernel to the oldest. */
static const unsigned LADDER[] = {
    IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_NO_SQARRAY,
    IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
    0,
};

static void fail(const char *what, int error)
{
    fprintf(stderr, "liburing-nop: %s: %s\n", what, strerror(error));
    exit(1);
}

static uint64_t now(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time))
        fail("clock_gettime", errno);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void set_up(struct io_uring *ring, unsigned entries)
{
    int error = -EINVAL;
    for (size_t rung = 0; error == -EINVAL && rung < sizeof LADDER / sizeof *LADDER; rung++) {
        struct io_uring_params params = {.flags = LADDER[rung] | IORING_SETUP_CQSIZE, .cq_entries = entries};
        error = io_uring_queue_init_params(entries, ring, &params);
    }
    if (error)
        fail("no ring", -error);
    /* An older kernel keeps the plain descriptor. */
    (void)io_uring_register_ring_fd(ring);
}

static void fill(struct io_uring *ring, unsigned entries)
{
    for (unsigned i = 0; i < entries; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
        if (!sqe)
            fail("the queue is full", ENOSPC);
        io_uring_prep_nop(sqe);
    }
    int submitted = io_uring_submit(ring);
    if (submitted < 0)
        fail("submit", -submitted);
}

static void expect(const struct io_uring_cqe *cqe)
{
    if (cqe->res < 0)
        fail("nop", -cqe->res);
}

static unsigned reap_batch(struct io_uring *ring, unsigned entries)
{
    (void)entries;
    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;
    io_uring_for_each_cqe(ring, head, cqe) {
        expect(cqe);
        seen++;
    }
    io_uring_cq_advance(ring, seen);
    return seen;
}

static unsigned reap_one(struct io_uring *ring, unsigned entries)
{
    struct io_uring_cqe *cqe;
    unsigned seen = 0;
    while (seen < entries && !io_uring_peek_cqe(ring, &cqe)) {
        expect(cqe);
        io_uring_cqe_seen(ring, cqe);
        seen++;
    }
    return seen;
}

typedef unsigned reap(struct io_uring *, unsigned);

/* Runs turns for at least this many nanoseconds; prints the result unless it is the warm-up. */
static inline __attribute__((always_inline)) void
burst(struct io_uring *ring, unsigned entries, uint64_t window, reap *take, bool warm_up)
{
    uint64_t operations = 0, cpu = now(CLOCK_PROCESS_CPUTIME_ID), start = now(CLOCK_MONOTONIC), elapsed;
    do {
        for (unsigned run = 0; run < STRIDE; run += entries) {
            fill(ring, entries);
            if (take(ring, entries) != entries)
                fail("completions are missing", EIO);
            operations += entries;
        }
        elapsed = now(CLOCK_MONOTONIC) - start;
    } while (elapsed < window);
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    if (!warm_up && (printf("{\"operations\":%" PRIu64 ",\"ns\":%" PRIu64 ",\"cpu_ns\":%" PRIu64 "}\n", operations, elapsed, cpu) < 0 || fflush(stdout)))
        fail("cannot answer", errno);
}

static void answer(unsigned entries, uint64_t window, bool batch)
{
    struct io_uring ring;
    set_up(&ring, entries);
    for (int measured = 0; measured < 2; measured++) {
        uint64_t length = measured ? window : window / 5;
        if (batch)
            burst(&ring, entries, length, reap_batch, !measured);
        else
            burst(&ring, entries, length, reap_one, !measured);
    }
    io_uring_queue_exit(&ring);
}

int main(int count, char **words)
{
    bool batch = count == 1;
    if (!batch && !(count == 2 && !strcmp(words[1], "one"))) {
        fprintf(stderr, "usage: liburing-nop [one], then lines of ENTRIES SECONDS\n");
        return 2;
    }
    unsigned entries;
    double seconds;
    int read;
    while ((read = scanf("%u %lf", &entries, &seconds)) == 2) {
        if (entries < 1 || entries > MAX_ENTRIES || !(seconds > 0 && seconds < 3600)) {
            fprintf(stderr, "liburing-nop: 1 to %d entries, up to 3600 seconds\n", MAX_ENTRIES);
            return 2;
        }
        answer(entries, (uint64_t)(seconds * 1e9), batch);
    }
    return read == EOF ? 0 : 2;
}
