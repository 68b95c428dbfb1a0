//! The arguments of `io_uring_setup`, `io_uring_enter` and `io_uring_register`, with the kernel's
//! layout.

use bitflags::bitflags;
use std::os::fd::RawFd;
use std::time::Duration;

bitflags! {
    /// `IORING_ENTER_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct EnterFlags: u32 {
        /// Run deferred work and wait for completions.
        const GETEVENTS = 1 << 0;
        /// Wake the kernel thread.
        const SQ_WAKEUP = 1 << 1;
        /// Wait until the kernel thread has taken entries.
        const SQ_WAIT = 1 << 2;
        /// An [`EnterArg`] is given (5.11).
        const EXT_ARG = 1 << 3;
        /// The descriptor is an index of a registered ring (5.18).
        const REGISTERED_RING = 1 << 4;
        /// Do not count the wait as iowait (6.15).
        const NO_IOWAIT = 1 << 7;
    }
}

/// How a call refers to a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingId {
    /// A descriptor, or an index if `registered`.
    pub fd: RawFd,
    /// Whether `fd` is an index into the registered rings of this thread.
    pub registered: bool,
}

/// Options for a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnterArg {
    /// The longest wait.
    pub timeout: Option<Duration>,
    /// If fewer completions than requested are ready after this time, one is enough (6.12). Needs a
    /// longer timeout, because Linux returns after this time if it has none.
    pub min_wait: Option<Duration>,
}

/// The `IORING_REGISTER_*` operations in use, with the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Register {
    Eventfd = 4,
    Probe = 8,
    Restrictions = 11,
    EnableRings = 12,
    Buffers = 15,
    BuffersUpdate = 16,
    IowqMaxWorkers = 19,
    RingFds = 20,
    UnregisterRingFds = 21,
    BufferRing = 22,
    UnregisterBufferRing = 23,
    /// Polls the queues of network devices before each sleep (6.9).
    Napi = 27,
    /// Registers memory that the network stack fills (6.15).
    ZeroCopyReceive = 32,
    /// Needs no ring (6.18).
    Query = 35,
    /// Controls a zero-copy receive (6.19).
    ZeroCopyControl = 36,
}

/// `struct io_sqring_offsets`: offsets in the mapping of the submission queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct SubmissionOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub flags: u32,
    pub dropped: u32,
    pub array: u32,
    pub reserved: u32,
    pub user_addr: u64,
}

/// `struct io_cqring_offsets`: offsets in the mapping of the completion queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct CompletionOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub overflow: u32,
    pub cqes: u32,
    pub flags: u32,
    pub reserved: u32,
    pub user_addr: u64,
}

/// `struct io_uring_params`: the caller's requests before the call, and the kernel's grants after
/// it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct RingParams {
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub flags: u32,
    pub sq_thread_cpu: u32,
    pub sq_thread_idle: u32,
    pub features: u32,
    pub wq_fd: u32,
    pub reserved: [u32; 3],
    pub sq_off: SubmissionOffsets,
    pub cq_off: CompletionOffsets,
}

const _: () = assert!(size_of::<RingParams>() == 120);
