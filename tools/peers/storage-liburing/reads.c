/*
 * Random reads of blocks of 4 KiB through liburing. The contract is in ../README.md.
 *
 * One thread keeps the reads in flight, and reads the clock once per read, as the other contenders do. It submits as
 * annulus does: before the end of a turn, at least two reads and as many as the device still has. In the mode "turn" it
 * submits all of a turn together whatever is in flight. In the mode "fixed" it batches as annulus does, with
 * a registered file and registered buffers; in "fixed-file" and "fixed-buffers" with one of them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

enum { BLOCK = 4096, MAX_DEPTH = 4096, FINE_BITS = 5, BUCKETS = 64 << FINE_BITS };
enum { LEAST_BATCH = 2 };

/* Set-up flags to try, from the newest kernel to the oldest. */
static const unsigned LADDER[] = {
    IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
    0,
};

static uint64_t times[BUCKETS];

static void fail(const char *what, int error, int code)
{
    fprintf(stderr, "storage-liburing: %s: %s\n", what, strerror(error));
    exit(code);
}

static uint64_t now(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time))
        fail("clock_gettime", errno, 1);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void record(uint64_t ns)
{
    int shift = 63 - __builtin_clzll(ns | 1) - FINE_BITS;
    if (shift < 0)
        shift = 0;
    times[((uint64_t)shift << FINE_BITS) + (ns >> shift)]++;
}

static uint64_t count(void)
{
    uint64_t all = 0;
    for (size_t bucket = 0; bucket < BUCKETS; bucket++)
        all += times[bucket];
    return all;
}

static double percentile(double share)
{
    uint64_t left = (uint64_t)((double)count() * share), bucket = 0;
    while (bucket + 1 < BUCKETS && times[bucket] <= left)
        left -= times[bucket++];
    uint64_t shift = bucket >> FINE_BITS;
    shift = shift ? shift - 1 : 0;
    return (double)((bucket - (shift << FINE_BITS)) << shift) / 1e3;
}

static void set_up(struct io_uring *ring)
{
    int error = -EINVAL;
    for (size_t rung = 0; error == -EINVAL && rung < sizeof LADDER / sizeof *LADDER; rung++) {
        struct io_uring_params params = {.flags = LADDER[rung] | IORING_SETUP_CQSIZE, .cq_entries = 2 * MAX_DEPTH};
        error = io_uring_queue_init_params(MAX_DEPTH, ring, &params);
    }
    if (error)
        fail("no ring", -error, 3);
    error = io_uring_register_ring_fd(ring);
    if (error < 0)
        fail("cannot register the ring", -error, 3);
}

/* The state of all reads: the ring, the memory and the file. */
struct reads {
    struct io_uring ring;
    bool fixed_file, fixed_buffers, turn;
    char *memory;
    int file;
    uint64_t blocks, next;
    uint64_t began[MAX_DEPTH];
};

static void queue(struct reads *all, unsigned slot, uint64_t time)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&all->ring);
    uint64_t offset = ((all->next++ * 0x9e3779b1) & (all->blocks - 1)) * BLOCK;
    char *block = all->memory + (size_t)slot * BLOCK;
    int file = all->fixed_file ? 0 : all->file;
    if (all->fixed_buffers)
        io_uring_prep_read_fixed(entry, file, block, BLOCK, offset, 0);
    else
        io_uring_prep_read(entry, file, block, BLOCK, offset);
    if (all->fixed_file)
        entry->flags |= IOSQE_FIXED_FILE;
    entry->user_data = slot;
    all->began[slot] = time;
}

static void submit(struct reads *all)
{
    int submitted = io_uring_submit(&all->ring);
    if (submitted < 0)
        fail("cannot submit", -submitted, 1);
}

/* Keeps `depth` reads in flight, and measures them once a fifth of the time has passed. */
static void run(struct reads *all, unsigned depth, uint64_t time)
{
    uint64_t began = now(CLOCK_MONOTONIC), begins = began + time / 5, ends = begins + time, cpu = 0;
    unsigned flight = depth;
    memset(times, 0, sizeof times);
    for (unsigned slot = 0; slot < depth; slot++)
        queue(all, slot, began);
    while (flight) {
        int waited = io_uring_submit_and_wait(&all->ring, 1);
        if (waited < 0 && waited != -EINTR)
            fail("cannot wait", -waited, 1);
        struct io_uring_cqe *done;
        unsigned head, seen = 0, queued = 0, device = flight - io_uring_cq_ready(&all->ring);
        io_uring_for_each_cqe(&all->ring, head, done) {
            seen++;
            if (done->res != BLOCK)
                fail("a read", done->res < 0 ? -done->res : EIO, 1);
            unsigned slot = (unsigned)done->user_data;
            uint64_t end = now(CLOCK_MONOTONIC);
            if (end >= begins) {
                if (!cpu)
                    cpu = now(CLOCK_PROCESS_CPUTIME_ID);
                record(end - all->began[slot]);
                if (end >= ends) {
                    flight--;
                    continue;
                }
            }
            queue(all, slot, end);
            if (++queued >= LEAST_BATCH && queued >= device && !all->turn) {
                submit(all);
                device += queued;
                queued = 0;
            }
        }
        io_uring_cq_advance(&all->ring, seen);
    }
    uint64_t ns = now(CLOCK_MONOTONIC) - begins;
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    printf("{\"operations\":%" PRIu64 ",\"ns\":%" PRIu64 ",\"cpu_ns\":%" PRIu64
           ",\"p50_us\":%.3f,\"p99_us\":%.3f,\"p99_9_us\":%.3f}\n",
           count(), ns, cpu, percentile(0.5), percentile(0.99), percentile(0.999));
    fflush(stdout);
}

static void read_all(int file)
{
    static char bytes[1 << 20];
    while (read(file, bytes, sizeof bytes) > 0)
        ;
}

/* Opens the file of a job, and fills or empties the page cache. */
static void prepare(struct reads *all, const char *site, const char *cache)
{
    char path[4096];
    bool warm = !strcmp(cache, "warm"), direct = !strcmp(cache, "direct");
    if (!warm && !direct && strcmp(cache, "cold"))
        fail(cache, EINVAL, 2);
    snprintf(path, sizeof path, "%s/%s", site, warm ? "warm" : "cold");
    int file = open(path, O_RDONLY);
    struct stat found;
    if (file < 0 || fstat(file, &found))
        fail(path, errno, 1);
    all->blocks = (uint64_t)found.st_size / BLOCK;
    if (!all->blocks || (all->blocks & (all->blocks - 1)))
        fail("not a power of two of blocks", EINVAL, 2);
    if (warm)
        read_all(file);
    /* Pages that are not on the device yet would stay in the cache. */
    else if (fdatasync(file) || (errno = posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED)))
        fail(path, errno, 1);
    close(file);
    all->file = open(path, O_RDONLY | (direct ? O_DIRECT : 0));
    if (all->file < 0)
        fail(path, errno, 1);
    all->next = now(CLOCK_MONOTONIC);
}

int main(int count, char **arguments)
{
    static struct reads all;
    const char *mode = count == 4 ? arguments[3] : "";
    bool fixed = !strcmp(mode, "fixed");
    all.fixed_file = fixed || !strcmp(mode, "fixed-file");
    all.fixed_buffers = fixed || !strcmp(mode, "fixed-buffers");
    all.turn = !strcmp(mode, "turn");
    bool is_known = !*mode || all.fixed_file || all.fixed_buffers || all.turn;
    if (count < 3 || count > 4 || strcmp(arguments[1], "reads") || !is_known) {
        fprintf(stderr, "usage: storage-liburing reads SITE [fixed|fixed-file|fixed-buffers|turn]\n");
        return 2;
    }
    all.memory = aligned_alloc(BLOCK, (size_t)MAX_DEPTH * BLOCK);
    if (!all.memory)
        fail("no memory", ENOMEM, 1);
    memset(all.memory, 0, (size_t)MAX_DEPTH * BLOCK);
    set_up(&all.ring);
    struct iovec memory = {all.memory, (size_t)MAX_DEPTH * BLOCK};
    int error = all.fixed_buffers ? io_uring_register_buffers(&all.ring, &memory, 1) : 0;
    if (error)
        fail("cannot register buffers", -error, 3);
    char line[256], cache[16];
    unsigned depth;
    double seconds;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%15s %u %lf", cache, &depth, &seconds) != 3 || !depth || depth > MAX_DEPTH || seconds <= 0)
            fail(line, EINVAL, 2);
        prepare(&all, arguments[2], cache);
        error = all.fixed_file ? io_uring_register_files(&all.ring, &all.file, 1) : 0;
        if (error)
            fail("cannot register a file", -error, 3);
        run(&all, depth, (uint64_t)(seconds * 1e9));
        if (all.fixed_file)
            io_uring_unregister_files(&all.ring);
        close(all.file);
    }
    return 0;
}
