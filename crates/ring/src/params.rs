//! The arguments of set-up and registration.

use bitflags::bitflags;
use std::time::Duration;

bitflags! {
    /// `IORING_SETUP_*`: what kind of ring to create.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SetupFlags: u32 {
        /// A kernel thread polls the submission queue.
        const SQPOLL = 1 << 1;
        /// The polling kernel thread is bound to the CPU `sq_thread_cpu`.
        const SQ_AFF = 1 << 2;
        /// `cq_entries` has the size of the completion queue.
        const CQSIZE = 1 << 3;
        /// Sizes above the limit are reduced, not refused.
        const CLAMP = 1 << 4;
        /// The ring starts disabled.
        const R_DISABLED = 1 << 6;
        /// One bad entry does not end the batch (5.18).
        const SUBMIT_ALL = 1 << 7;
        /// Completed work does not interrupt the submitting thread (5.19).
        const COOP_TASKRUN = 1 << 8;
        /// A flag in the submission queue shows pending work (5.19).
        const TASKRUN_FLAG = 1 << 9;
        /// One thread submits (6.0).
        const SINGLE_ISSUER = 1 << 12;
        /// Work runs only during an enter of the submitting thread (6.1).
        const DEFER_TASKRUN = 1 << 13;
        /// The submission queue has no index array (6.6).
        const NO_SQARRAY = 1 << 16;
        /// Completions of 16 and of 32 bytes share the queue (6.18).
        const CQE_MIXED = 1 << 18;
        /// Entries of 64 and of 128 bytes share the queue (6.19).
        const SQE_MIXED = 1 << 19;
        /// Each enter submits from the first slot of the queue (7.0).
        const SQ_REWIND = 1 << 20;
        const _ = !0;
    }
}

/// SQ polling: a kernel thread takes entries as soon as they are published, so submitting needs no
/// system call.
///
/// The thread polls without pause, which takes a whole core, until no entry has been published for
/// `idle`. Then it sleeps, and the next submission wakes it with a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqPoll {
    /// How long the thread polls after the last entry: whole milliseconds, 1 ms to 1 minute.
    pub idle: Duration,
    /// The CPU that the thread is bound to. If `None`, it may run where the thread that creates the
    /// ring may run.
    pub cpu: Option<u32>,
}

impl SqPoll {
    /// The longest allowed `idle`.
    pub const MAX_IDLE: Duration = Duration::from_secs(60);

    pub(crate) fn idle_millis(self) -> u32 {
        let whole = self.idle.min(Self::MAX_IDLE).as_nanos().div_ceil(1_000_000);
        (whole as u32).max(1)
    }
}

bitflags! {
    /// `IORING_FEAT_*`: what the kernel reports at set-up.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct KernelFeatures: u32 {
        /// Both queues are in one mapping (5.4).
        const SINGLE_MMAP = 1 << 0;
        /// A completion that overflows the queue is kept, not dropped (5.5).
        const NODROP = 1 << 1;
        /// Arguments that an entry points to may be freed once it is submitted (5.5).
        const SUBMIT_STABLE = 1 << 2;
        /// Operations on sockets need no worker (5.7).
        const FAST_POLL = 1 << 5;
        /// A wait can have a timeout (5.11).
        const EXT_ARG = 1 << 8;
        /// Completions of successful operations can be skipped (5.17).
        const CQE_SKIP = 1 << 11;
        /// Receives and sends can use several buffers at once, a bundle (6.10).
        const RECVSEND_BUNDLE = 1 << 14;
        /// A wait can have a minimum time, for batching (6.12).
        const MIN_TIMEOUT = 1 << 15;
        /// The wait need not count as iowait (6.15).
        const NO_IOWAIT = 1 << 17;
        const _ = !0;
    }
}

/// `struct io_uring_buf_reg`: a buffer ring to register.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct BufferRingSetup {
    pub ring_addr: u64,
    pub ring_entries: u32,
    pub group: u16,
    pub flags: u16,
    pub reserved: [u64; 3],
}

/// `struct io_uring_rsrc_update`: one ring descriptor to register or unregister.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct RingUpdate {
    pub offset: u32,
    pub reserved: u32,
    pub data: u64,
}

/// `struct io_uring_napi`: how long to poll the queues of network devices before each sleep.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub(crate) struct Napi {
    /// Microseconds.
    pub busy_poll_to: u32,
    pub prefer_busy_poll: u8,
    pub opcode: u8,
    pub reserved: [u8; 2],
    pub parameter: u32,
    pub reserved2: u32,
}

/// `struct io_uring_rsrc_register`: a table of registered buffers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct BufferTableSetup {
    pub slots: u32,
    pub flags: u32,
    pub reserved: u64,
    pub data: u64,
    pub tags: u64,
}

impl BufferTableSetup {
    /// `IORING_RSRC_REGISTER_SPARSE`: all slots are empty at first (5.19).
    pub const SPARSE: u32 = 1 << 0;
}

/// `struct io_uring_rsrc_update2`: new buffers for slots of the table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct BufferTableUpdate {
    pub first_slot: u32,
    pub reserved: u32,
    /// The address of an [`IoVec`](annulus_kernel::IoVec) per slot.
    pub data: u64,
    pub tags: u64,
    pub count: u32,
    pub reserved2: u32,
}

const _: () = assert!(size_of::<BufferRingSetup>() == 40);
const _: () = assert!(size_of::<BufferTableSetup>() == 32);
const _: () = assert!(size_of::<BufferTableUpdate>() == 32);
const _: () = assert!(size_of::<RingUpdate>() == 16);
const _: () = assert!(size_of::<Napi>() == 16);

/// The receive queue of a network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceQueue {
    /// The index of the device, as in `/sys/class/net/NAME/ifindex`.
    pub device: u32,
    /// The number of the device's receive queue.
    pub queue: u32,
}
