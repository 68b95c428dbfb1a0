/* Memory for receives: a ring of buffers for the kernel, and the chunks that hold received bytes until they are sent. A chunk
 * is a buffer of the ring, or heap memory if few buffers are free. */
#ifndef FLOOR_POOL_H
#define FLOOR_POOL_H

#include "ring.h"

#ifndef BUFFERS
#define BUFFERS 256 /* a power of two, at least 4 */
#endif

enum {
    BUFFER = 256 * 1024, /* large, so that a message needs few buffers; unused pages cost nothing */
    GROUP = 0,
    LOW_WATER = BUFFERS / 4, /* if fewer buffers are free, bytes for slow readers move to the heap */
    WARM = 320 * 1024,       /* bytes of large receives per turn that are still in the cache when they are sent */
    LARGE = 32 * 1024,
    PIECE = 8 * 1024, /* up to this size, pieces for a slow reader share a buffer */
};

struct chunk {
    struct chunk *next;
    char *data;
    uint32_t start, end; /* bytes still to be sent */
    uint32_t bid;        /* id of the buffer; BUFFERS for heap memory */
};

struct queue {
    struct chunk *first, *last;
};

struct pool {
    struct buf *ring; /* shared with the kernel; the tail is in entry 0 */
    uint16_t tail;    /* not yet published */
    uint32_t available; /* buffers in the ring */
    char *memory;
    uint32_t length; /* of each buffer */
    size_t stride;   /* from the start of a buffer to the start of the next */
    uint32_t idle[BUFFERS], idle_count; /* the last one was returned most recently */
    uint32_t depth;                     /* how many buffers the ring should hold */
    uint32_t taken, large;              /* buffers, and bytes of large receives, in this turn */
    struct chunk chunks[BUFFERS];
};

static void pool_return(struct pool *pool, uint32_t bid) { pool->idle[pool->idle_count++] = bid; }

static uint32_t pool_free(const struct pool *pool) { return pool->available + pool->idle_count; }

static char *pool_buffer(const struct pool *pool, uint32_t bid) { return pool->memory + bid * pool->stride; }

/* Sets the fields one by one: assigning a whole entry 0 would overwrite the tail. */
static void pool_add(struct pool *pool, uint32_t bid)
{
    struct buf *entry = &pool->ring[pool->tail++ & (BUFFERS - 1)];
    entry->addr = (uint64_t)pool_buffer(pool, bid);
    entry->len = pool->length;
    entry->bid = (uint16_t)bid;
    pool->available++;
}

/* The kernel cycles through all buffers in the ring, so they should be few enough to stay in the cache. Their number doubles
 * if a turn takes more than half of them, unless its large receives show that more would not stay in the cache. It shrinks if
 * they already have more bytes than stay there. */
static void pool_fit_depth(struct pool *pool)
{
    uint32_t warm = pool->large ? (uint32_t)((uint64_t)WARM * pool->taken / pool->large) : BUFFERS;
    if (pool->large > WARM)
        pool->depth = warm < 1 ? 1 : warm < pool->depth ? warm : pool->depth;
    else if (2 * pool->taken > pool->depth && pool->depth < warm && pool->depth < BUFFERS)
        pool->depth *= 2;
    pool->taken = pool->large = 0;
}

/* Called once per turn, before the enter. Release order, so that the kernel sees the entries no later than the tail. */
static void pool_publish(struct pool *pool)
{
    pool_fit_depth(pool);
    while (pool->available < pool->depth && pool->idle_count)
        pool_add(pool, pool->idle[--pool->idle_count]);
    __atomic_store_n(&pool->ring[0].tail, pool->tail, __ATOMIC_RELEASE);
}

static void pool_open(struct pool *pool, int ring_fd, uint32_t length, size_t stride)
{
    pool->length = length;
    pool->stride = stride;
    pool->ring = map_zeroed(BUFFERS * sizeof *pool->ring);
    pool->memory = map_zeroed(BUFFERS * stride);
    pool->depth = 16;
    struct buf_reg group = {.ring_addr = (uint64_t)pool->ring, .ring_entries = BUFFERS, .bgid = GROUP};
    if (ring_register(ring_fd, REGISTER_PBUF_RING, &group, 1))
        die(EXIT_FAILED, "cannot register a buffer ring of %d: %s", BUFFERS, strerror(errno));
    for (uint32_t bid = 0; bid < BUFFERS; bid++)
        pool_return(pool, bid);
    pool_publish(pool);
}

/* Called when the kernel has filled buffer `bid` with `length` bytes. */
static struct chunk *pool_take(struct pool *pool, uint32_t bid, uint32_t length)
{
    struct chunk *chunk = &pool->chunks[bid];
    *chunk = (struct chunk){.data = pool_buffer(pool, bid), .end = length, .bid = bid};
    pool->available--;
    pool->taken++;
    pool->large += length > LARGE ? length : 0;
    return chunk;
}

static void chunk_release(struct pool *pool, struct chunk *chunk)
{
    if (likely(chunk->bid < BUFFERS))
        pool_return(pool, chunk->bid);
    else
        free(chunk);
}

static uint32_t chunk_length(const struct chunk *chunk) { return chunk->end - chunk->start; }

/* Moves the bytes of a buffer to the heap. The buffer goes back to the pool, so no send may be using it. */
static struct chunk *chunk_to_heap(struct pool *pool, struct chunk *chunk)
{
    struct chunk *copy = malloc(sizeof *copy + BUFFER);
    if (!copy)
        die(EXIT_FAILED, "cannot allocate a chunk of %d bytes", BUFFER);
    *copy = (struct chunk){.next = chunk->next, .data = (char *)(copy + 1), .end = chunk_length(chunk), .bid = BUFFERS};
    memcpy(copy->data, chunk->data + chunk->start, copy->end);
    pool_return(pool, chunk->bid);
    return copy;
}

static void queue_push(struct queue *queue, struct chunk *chunk)
{
    *(queue->first ? &queue->last->next : &queue->first) = chunk;
    queue->last = chunk;
}

/* Appends the bytes to the last chunk if they are few and fit. A send in flight of this chunk does not read them. */
static int queue_absorb(struct queue *queue, const char *bytes, uint32_t length)
{
    struct chunk *last = queue->first ? queue->last : NULL;
    if (!last || length > PIECE || last->end + length > BUFFER)
        return 0;
    memcpy(last->data + last->end, bytes, length);
    last->end += length;
    return 1;
}

static void queue_release(struct queue *queue, struct pool *pool, uint32_t bytes)
{
    while (bytes) {
        struct chunk *chunk = queue->first;
        uint32_t length = chunk_length(chunk);
        if (bytes < length) {
            chunk->start += bytes;
            return;
        }
        bytes -= length;
        queue->first = chunk->next;
        chunk_release(pool, chunk);
    }
}

/* Moves the bytes of the queue's buffers to the heap. No send may be using these buffers. */
static void queue_to_heap(struct queue *queue, struct pool *pool)
{
    for (struct chunk **link = &queue->first; *link; link = &(*link)->next) {
        if ((*link)->bid < BUFFERS)
            *link = chunk_to_heap(pool, *link);
        queue->last = *link;
    }
}

#endif
