/* The part of the kernel's io_uring interface that this server uses. It is declared here because the headers of stable
 * distributions can be years older than their kernels. Names are the kernel's, without its prefixes. */
#ifndef FLOOR_ABI_H
#define FLOOR_ABI_H

#include <stdint.h>

enum { NR_IO_URING_SETUP = 425, NR_IO_URING_ENTER = 426, NR_IO_URING_REGISTER = 427 };

enum opcode { OP_SENDMSG = 9, OP_RECVMSG = 10, OP_ACCEPT = 13, OP_SEND = 26, OP_RECV = 27 };

enum setup_flag {
    SETUP_CQSIZE = 1 << 3,
    SETUP_SUBMIT_ALL = 1 << 7,
    SETUP_TASKRUN_FLAG = 1 << 9,
    SETUP_SINGLE_ISSUER = 1 << 12,
    SETUP_DEFER_TASKRUN = 1 << 13,
    SETUP_NO_SQARRAY = 1 << 16, /* needs Linux 6.6; nothing else that is required is newer */
};

enum feature { FEAT_NO_IOWAIT = 1 << 17 };

enum enter_flag { ENTER_GETEVENTS = 1 << 0, ENTER_REGISTERED_RING = 1 << 4, ENTER_NO_IOWAIT = 1 << 7 };

enum register_opcode { REGISTER_FILES = 2, REGISTER_RING_FDS = 20, REGISTER_PBUF_RING = 22 };

enum sqe_flag { SQE_FIXED_FILE = 1 << 0, SQE_BUFFER_SELECT = 1 << 5, SQE_CQE_SKIP_SUCCESS = 1 << 6 };

enum ioprio_flag { ACCEPT_MULTISHOT = 1 << 0, RECV_MULTISHOT = 1 << 1 };

enum cqe_flag { CQE_F_BUFFER = 1 << 0, CQE_F_MORE = 1 << 1, CQE_BUFFER_SHIFT = 16 };

enum sq_ring_flag { SQ_CQ_OVERFLOW = 1 << 1 };

static const uint64_t OFFSET_RINGS = 0, OFFSET_SQES = 0x10000000;

struct sqe {
    uint8_t opcode, flags;
    uint16_t ioprio;
    int32_t fd;
    uint64_t off, addr;
    uint32_t len, op_flags;
    uint64_t user_data;
    uint16_t buf_group, personality;
    union {
        uint32_t optlen;      /* of a multishot receive: maximum bytes before it ends (Linux 6.17) */
        uint16_t name_length; /* of a send: length of the address at `off` */
    };
    uint64_t addr3, pad;
};

struct cqe {
    uint64_t user_data;
    int32_t res;
    uint32_t flags;
};

struct sq_offsets {
    uint32_t head, tail, ring_mask, ring_entries, flags, dropped, array, reserved;
    uint64_t user_addr;
};

struct cq_offsets {
    uint32_t head, tail, ring_mask, ring_entries, overflow, cqes, flags, reserved;
    uint64_t user_addr;
};

struct params {
    uint32_t sq_entries, cq_entries, flags, sq_thread_cpu, sq_thread_idle, features, wq_fd, reserved[3];
    struct sq_offsets sq_off;
    struct cq_offsets cq_off;
};

/* Entry 0 of a buffer ring shares its last two bytes with the ring's tail. */
struct buf {
    uint64_t addr;
    uint32_t len;
    uint16_t bid, tail;
};

struct buf_reg {
    uint64_t ring_addr;
    uint32_t ring_entries;
    uint16_t bgid, flags;
    uint64_t reserved[3];
};

/* The head that a multishot receive of messages writes into a buffer, before name, control messages and payload. */
struct recvmsg_out {
    uint32_t name_length, control_length, payload_length, flags;
};

struct rsrc_update {
    uint32_t offset, reserved;
    uint64_t data;
};

_Static_assert(sizeof(struct sqe) == 64 && sizeof(struct cqe) == 16, "queue entries");
_Static_assert(sizeof(struct params) == 120 && sizeof(struct buf_reg) == 40, "set-up structures");

#endif
