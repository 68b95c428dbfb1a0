/* One io_uring: set-up, the two queues, and the system call that drives them. Single-threaded: every completion is posted
 * within an enter of this thread (DEFER_TASKRUN), so the completion queue does not change
 * between two enters. */
#ifndef FLOOR_RING_H
#define FLOOR_RING_H

#include "../listen.h"
#include "abi.h"

#include <unistd.h>

#ifndef SQ_ENTRIES
#define SQ_ENTRIES 256 /* small, so that the entries stay in the cache; what does not fit is submitted by the next enter */
#endif
#ifndef CQ_ENTRIES
#define CQ_ENTRIES 4096 /* large, because an overflow ends multishot operations */
#endif

struct ring {
    int fd; /* after `register_fd`, the index among the registered rings */
    uint32_t enter_flags;
    uint32_t tail; /* of the submission queue, before it is published */
    uint32_t *sq_head, *sq_tail, *sq_flags, *cq_head, *cq_tail;
    struct sqe *sqes;
    struct cqe *cqes;
};

static uint32_t load_acquire(const uint32_t *from) { return __atomic_load_n(from, __ATOMIC_ACQUIRE); }
static void store_release(uint32_t *to, uint32_t value) { __atomic_store_n(to, value, __ATOMIC_RELEASE); }

__attribute__((noreturn)) static void die_of_setup(int error)
{
    if (error == EINVAL)
        die(EXIT_UNAVAILABLE, "io_uring here lacks NO_SQARRAY or DEFER_TASKRUN: Linux 6.6 or newer is needed");
    if (error == EPERM)
        die(EXIT_UNAVAILABLE, "io_uring is blocked here: see kernel.io_uring_disabled and the container's seccomp profile");
    die(EXIT_UNAVAILABLE, "io_uring is not available here: %s", strerror(error));
}

static void *map_ring(int fd, uint64_t offset, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)offset);
    if (memory == MAP_FAILED)
        die(EXIT_FAILED, "cannot map the ring: %s", strerror(errno));
    return memory;
}

static long ring_register(int fd, unsigned opcode, void *argument, unsigned count)
{
    return syscall(NR_IO_URING_REGISTER, fd, opcode, argument, count);
}

/* With a registered ring, an enter does not look up the descriptor. */
static void register_fd(struct ring *ring)
{
    struct rsrc_update update = {.offset = UINT32_MAX, .data = (uint64_t)ring->fd};
    if (ring_register(ring->fd, REGISTER_RING_FDS, &update, 1) != 1)
        die(EXIT_FAILED, "cannot register the ring's descriptor: %s", strerror(errno));
    ring->fd = (int)update.offset;
}

static void map_queues(struct ring *ring, const struct params *params)
{
    char *rings = map_ring(ring->fd, OFFSET_RINGS, params->cq_off.cqes + params->cq_entries * sizeof(struct cqe));
    ring->sqes = map_ring(ring->fd, OFFSET_SQES, params->sq_entries * sizeof(struct sqe));
    ring->cqes = (struct cqe *)(rings + params->cq_off.cqes);
    ring->sq_head = (uint32_t *)(rings + params->sq_off.head);
    ring->sq_tail = (uint32_t *)(rings + params->sq_off.tail);
    ring->sq_flags = (uint32_t *)(rings + params->sq_off.flags);
    ring->cq_head = (uint32_t *)(rings + params->cq_off.head);
    ring->cq_tail = (uint32_t *)(rings + params->cq_off.tail);
}

/* Leaves the plain descriptor in `fd`, because files and buffer rings are registered with it. `register_fd` replaces it. */
static void ring_open(struct ring *ring)
{
    struct params params = {
        .flags = SETUP_SINGLE_ISSUER | SETUP_DEFER_TASKRUN | SETUP_TASKRUN_FLAG | SETUP_NO_SQARRAY | SETUP_SUBMIT_ALL |
                 SETUP_CQSIZE,
        .cq_entries = CQ_ENTRIES,
    };
    ring->fd = (int)syscall(NR_IO_URING_SETUP, SQ_ENTRIES, &params);
    if (ring->fd < 0)
        die_of_setup(errno);
    map_queues(ring, &params);
    ring->enter_flags = ENTER_GETEVENTS | ENTER_REGISTERED_RING;
    if (params.features & FEAT_NO_IOWAIT)
        ring->enter_flags |= ENTER_NO_IOWAIT;
}

static uint32_t ring_unsubmitted(const struct ring *ring) { return ring->tail - load_acquire(ring->sq_head); }

static int ring_has_room(const struct ring *ring) { return ring_unsubmitted(ring) < SQ_ENTRIES; }

/* The slot of the next entry. Memory that must stay valid until the entry is submitted is kept per slot. */
static uint32_t ring_slot(const struct ring *ring) { return ring->tail & (SQ_ENTRIES - 1); }

static void ring_push(struct ring *ring, struct sqe sqe)
{
    ring->sqes[ring_slot(ring)] = sqe;
    ring->tail++;
}

/* An enter that is interrupted, short of memory or refused until completions are read is no failure: the next enter submits
 * the rest. */
static void ring_enter(struct ring *ring, unsigned wait)
{
    store_release(ring->sq_tail, ring->tail);
    long result =
        syscall(NR_IO_URING_ENTER, ring->fd, ring_unsubmitted(ring), wait, ring->enter_flags, NULL, (size_t)0);
    if (unlikely(result < 0) && errno != EINTR && errno != EAGAIN && errno != EBUSY)
        die(EXIT_FAILED, "io_uring_enter failed: %s", strerror(errno));
}

/* True if all entries are submitted and no completion is in the kernel's overflow list. Then each operation that does not wait
 * has ended, and its completion, if any, is in the queue. */
static int ring_is_settled(const struct ring *ring)
{
    return !ring_unsubmitted(ring) && !(load_acquire(ring->sq_flags) & SQ_CQ_OVERFLOW);
}

#endif
