//! Ring set-up, with the best set-up flags that the kernel supports.
#![allow(unsafe_code)]

use crate::entry::Entry;
use crate::error::SetupError;
use crate::memory::{RingHandle, RingMemory};
use crate::params::{KernelFeatures, Napi, RingUpdate, SetupFlags, SqPoll};
use crate::restrictions::restrict;
use crate::ring::{CompletionQueue, Ring, SubmissionQueue};
use annulus_kernel::{Fd, Kernel, Linux, Register, RingId, RingParams};
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

const RINGS_OFFSET: u64 = 0;
const ENTRIES_OFFSET: u64 = 0x1000_0000;

/// Maximum number of submission entries that the kernel allows.
const MAX_SUBMISSION_ENTRIES: u32 = 32_768;

/// Flags that every ring uses.
const COMMON_FLAGS: SetupFlags =
    SetupFlags::SUBMIT_ALL.union(SetupFlags::CQSIZE).union(SetupFlags::R_DISABLED);

/// Flags that every ring without SQ polling uses.
const UNPOLLED_FLAGS: SetupFlags = COMMON_FLAGS.union(SetupFlags::TASKRUN_FLAG);

/// The flags to try, from the newest kernel to the oldest one with buffer rings. The
/// builder tries the next set only after `EINVAL`.
const FLAG_CANDIDATES: [SetupFlags; 3] = [
    UNPOLLED_FLAGS
        .union(SetupFlags::SINGLE_ISSUER)
        .union(SetupFlags::DEFER_TASKRUN)
        .union(SetupFlags::NO_SQARRAY),
    UNPOLLED_FLAGS.union(SetupFlags::SINGLE_ISSUER).union(SetupFlags::DEFER_TASKRUN),
    UNPOLLED_FLAGS.union(SetupFlags::COOP_TASKRUN),
];

/// The flags to try with SQ polling. The kernel thread runs task work itself, so no work is
/// deferred or reported.
const SQPOLL_FLAG_CANDIDATES: [SetupFlags; 3] = [
    COMMON_FLAGS
        .union(SetupFlags::SQPOLL)
        .union(SetupFlags::SINGLE_ISSUER)
        .union(SetupFlags::NO_SQARRAY),
    COMMON_FLAGS.union(SetupFlags::SQPOLL).union(SetupFlags::SINGLE_ISSUER),
    COMMON_FLAGS.union(SetupFlags::SQPOLL),
];

/// Configures and sets up a ring. Only the thread that builds the ring may submit to it.
pub struct RingBuilder {
    kernel: Rc<dyn Kernel>,
    entries: u32,
    completions: u32,
    workers: Option<[u32; 2]>,
    without: SetupFlags,
    sq_poll: Option<SqPoll>,
    allowed_operations: Option<Vec<u8>>,
    napi_busy_poll: Duration,
    mixed_completions: bool,
}

impl Ring {
    /// Creates a builder with defaults for a network runtime.
    pub fn builder() -> RingBuilder {
        RingBuilder {
            kernel: Rc::new(Linux),
            entries: 256,
            completions: 4096,
            workers: Some([4, 4]),
            without: SetupFlags::empty(),
            sq_poll: None,
            allowed_operations: None,
            napi_busy_poll: Duration::ZERO,
            mixed_completions: false,
        }
    }

    /// Maps a ring that has been set up, and takes ownership of its descriptor.
    fn open(kernel: Rc<dyn Kernel>, fd: Fd, params: &RingParams) -> Result<Self, SetupError> {
        let handle = RingHandle { kernel, fd };
        let features = KernelFeatures::from_bits_retain(params.features);
        let needed = [
            (KernelFeatures::SINGLE_MMAP, "a single mapping (5.4)"),
            (KernelFeatures::NODROP, "lossless completion overflow (5.5)"),
            (KernelFeatures::SUBMIT_STABLE, "stable submissions (5.5)"),
            (KernelFeatures::EXT_ARG, "timeouts inside the wait (5.11)"),
            (KernelFeatures::CQE_SKIP, "skipped completions (5.17)"),
        ];
        if let Some((_, name)) = needed.iter().find(|(flag, _)| !features.contains(*flag)) {
            return Err(SetupError::Lacks(name));
        }
        let setup = SetupFlags::from_bits_retain(params.flags);
        let array =
            if setup.contains(SetupFlags::NO_SQARRAY) { 0 } else { params.sq_entries as usize * 4 };
        let sq_end = if array == 0 { 0 } else { params.sq_off.array as usize + array };
        let cq_end = params.cq_off.cqes as usize + params.cq_entries as usize * 16;
        let map = |offset, len| {
            RingMemory::map(&handle.kernel, fd, offset, len)
                .map_err(|e| SetupError::Step("mapping the ring", e))
        };
        let rings = map(RINGS_OFFSET, sq_end.max(cq_end))?;
        let entries = map(ENTRIES_OFFSET, params.sq_entries as usize * size_of::<Entry>())?;
        if array != 0 {
            fill_index_array(&rings, params.sq_off.array, params.sq_entries);
        }
        // SAFETY: the offsets are the kernel's for these mappings. The ring keeps the mappings, and
        // drops them after the queues.
        let (submission_queue, completion_queue) = unsafe {
            let queue = SubmissionQueue::new(rings.area(), entries.area(), &params.sq_off);
            (queue, CompletionQueue::new(rings.area(), &params.cq_off))
        };
        Ok(Self {
            submission_queue,
            completion_queue,
            features,
            setup,
            id: RingId { fd: fd.raw(), registered: false },
            _rings: rings,
            _entries: entries,
            handle,
        })
    }

    /// Enables the ring on this thread and registers its descriptor, so that `io_uring_enter` need
    /// not look up a file.
    fn enable(&mut self) -> Result<(), SetupError> {
        // SAFETY: the call has no argument.
        unsafe { self.register(Register::EnableRings, std::ptr::null_mut(), 0) }
            .map_err(|e| SetupError::Step("enabling the ring", e))?;
        let mut update =
            RingUpdate { offset: u32::MAX, reserved: 0, data: self.handle.fd.raw() as u64 };
        // On an older kernel, or if the thread already has 16 rings, the plain descriptor is used.
        // SAFETY: the kernel reads and writes one update during the call.
        if unsafe { self.register(Register::RingFds, (&raw mut update).cast(), 1) }.is_ok() {
            self.id = RingId { fd: update.offset as RawFd, registered: true };
        }
        Ok(())
    }

    fn register_napi(&mut self, max_wait: Duration) -> Result<(), SetupError> {
        let busy_poll_to = u32::try_from(max_wait.as_micros()).unwrap_or(u32::MAX);
        let mut napi = Napi { busy_poll_to, ..Napi::default() };
        // SAFETY: the kernel reads and writes one setting during the call.
        unsafe { self.register(Register::Napi, (&raw mut napi).cast(), 1) }
            .map_err(|e| SetupError::Step("registering NAPI busy polling (6.9)", e))?;
        Ok(())
    }

    fn limit_workers(&mut self, mut max_workers: [u32; 2]) -> Result<(), SetupError> {
        // SAFETY: the kernel reads and writes two numbers during the call.
        unsafe { self.register(Register::IowqMaxWorkers, (&raw mut max_workers).cast(), 2) }
            .map_err(|e| SetupError::Step("limiting the kernel's workers", e))?;
        Ok(())
    }
}

impl RingBuilder {
    /// Sets the kernel. The default is Linux.
    pub fn kernel(mut self, kernel: Rc<dyn Kernel>) -> Self {
        self.kernel = kernel;
        self
    }

    /// Sets the number of submission entries: 1 to 32,768, rounded up to a power of two. The
    /// default is 256.
    pub fn entries(mut self, entries: u32) -> Self {
        self.entries = entries;
        self
    }

    /// Sets the number of completion entries: 1 to 65,536. If it is below the number of submission
    /// entries, that number is used instead. The default is 4,096.
    pub fn completions(mut self, completions: u32) -> Self {
        self.completions = completions;
        self
    }

    /// Sets the maximum number of kernel workers for bounded work (files) and for unbounded work.
    /// The default is 4 of each. `None` keeps the kernel's defaults, which allow tens of thousands
    /// of unbounded workers.
    pub fn workers(mut self, bounded_and_unbounded: Option<[u32; 2]>) -> Self {
        self.workers = bounded_and_unbounded;
        self
    }

    /// Sets the set-up flags to leave out, to get the behaviour of an older kernel.
    pub fn without(mut self, flags: SetupFlags) -> Self {
        self.without = flags;
        self
    }

    /// Makes a kernel thread poll the submission queue. The default is `None`: no polling.
    pub fn sq_poll(mut self, polls: Option<SqPoll>) -> Self {
        self.sq_poll = polls;
        self
    }

    /// Restricts the ring to these operations, permanently. Any other operation fails with EACCES,
    /// and so does any registration that this crate does not need. Entries may have the flags that
    /// select a buffer or skip a completion, but no others.
    pub fn only_operations(mut self, operations: &[u8]) -> Self {
        self.allowed_operations = Some(operations.to_vec());
        self
    }

    /// Before each sleep, polls the queues of the network devices that sockets of the ring receive
    /// from, for up to this long (NAPI busy polling, 6.9). The default is zero: no polling.
    pub fn napi_busy_poll(mut self, max_wait: Duration) -> Self {
        self.napi_busy_poll = max_wait;
        self
    }

    /// Allows [large](crate::Completion::is_large) completions, which a zero-copy receive needs
    /// (6.18). A completion of the kernel itself, whose `user_data` is zero, may then fill the last
    /// place of the queue. The default is false.
    pub fn mixed_completions(mut self, mixed: bool) -> Self {
        self.mixed_completions = mixed;
        self
    }

    /// Sets up and enables the ring, and registers its descriptor with this thread.
    ///
    /// # Errors
    /// [`SetupError`] with the step that failed.
    pub fn build(self) -> Result<Ring, SetupError> {
        check_range("a submission queue", self.entries, MAX_SUBMISSION_ENTRIES)?;
        check_range("a completion queue", self.completions, 2 * MAX_SUBMISSION_ENTRIES)?;
        let (fd, params) = self.set_up()?;
        // `Ring::open` takes ownership of the descriptor, even if it fails.
        let mut ring = Ring::open(self.kernel, fd, &params)?;
        if !self.napi_busy_poll.is_zero() {
            ring.register_napi(self.napi_busy_poll)?;
        }
        if let Some(operations) = self.allowed_operations {
            restrict(&ring, &operations)?;
        }
        ring.enable()?;
        if let Some(workers) = self.workers {
            ring.limit_workers(workers)?;
        }
        Ok(ring)
    }

    fn set_up(&self) -> Result<(Fd, RingParams), SetupError> {
        let mut refusal = std::io::Error::from(rustix::io::Errno::INVAL);
        let candidates =
            if self.sq_poll.is_some() { SQPOLL_FLAG_CANDIDATES } else { FLAG_CANDIDATES };
        for flags in candidates.into_iter().filter(|flags| !flags.intersects(self.without)) {
            let mut params = self.params(flags);
            // SAFETY: `params` refers to neither memory nor another ring. The returned descriptor
            // is new; the ring owns it and closes it once.
            let fd =
                unsafe { self.kernel.setup(self.entries, &mut params).map(|fd| Fd::from_raw(fd)) };
            match fd {
                Ok(fd) => return Ok((fd, params)),
                Err(error) => refusal = error,
            }
            if refusal.raw_os_error() != Some(rustix::io::Errno::INVAL.raw_os_error()) {
                break;
            }
        }
        Err(match self.sq_poll {
            None => SetupError::Refused(refusal),
            Some(SqPoll { cpu, .. }) => SetupError::SqPoll(cpu, refusal),
        })
    }

    fn params(&self, flags: SetupFlags) -> RingParams {
        let mut params = RingParams {
            flags: flags.bits(),
            cq_entries: self.completions.max(self.entries),
            ..RingParams::default()
        };
        if self.mixed_completions {
            params.flags |= SetupFlags::CQE_MIXED.bits();
        }
        if let Some(polls) = self.sq_poll {
            params.sq_thread_idle = polls.idle_millis();
            params.sq_thread_cpu = polls.cpu.unwrap_or_default();
            params.flags |= polls.cpu.map_or(0, |_| SetupFlags::SQ_AFF.bits());
        }
        params
    }
}

fn check_range(what: &'static str, given: u32, limit: u32) -> Result<(), SetupError> {
    if (1..=limit).contains(&given) { Ok(()) } else { Err(SetupError::Size { what, given, limit }) }
}

/// Initialises the index array of an older kernel: slot n refers to entry n, permanently.
fn fill_index_array(rings: &RingMemory, array: u32, entries: u32) {
    let first: *mut u32 = rings.area().at(array, entries as usize * 4).cast();
    for index in 0..entries {
        // SAFETY: `at` has checked that the array lies inside the mapping, and the kernel does not
        // read it before a submission.
        unsafe { first.add(index as usize).write(index) };
    }
}
