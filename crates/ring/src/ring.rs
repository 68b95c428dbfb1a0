//! A ring: both queues, and the call that drives them.
#![allow(unsafe_code)]

use crate::completion::Completion;
use crate::entry::{Entry, SafeEntry};
use crate::error::SetupError;
use crate::memory::RingMemory;
use crate::params::{KernelFeatures, RingUpdate, SetupFlags};
use crate::probe::Probe;
use crate::queue::{Completed, Completions, Full, Submission};
use annulus_kernel::{EnterArg, EnterFlags, Fd, Kernel, Params, Register, RingId};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

const OFF_RINGS: u64 = 0;
const OFF_ENTRIES: u64 = 0x1000_0000;

/// The condition that [`Ring::enter`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Submit, and run no deferred work.
    No,
    /// Submit, run deferred work, and return.
    Reap,
    /// Submit, then wait.
    For {
        /// Until so many completions are ready.
        completions: u32,
        /// Or this much time has passed.
        timeout: Option<Duration>,
    },
}

/// The outcome of an enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The call submitted and waited.
    Done,
    /// The timeout expired first.
    TimedOut,
    /// A signal interrupted it. Take the completions and enter again.
    Interrupted,
    /// No system call: the kernel thread takes what was queued, and there was nothing to wait for.
    Unneeded,
    /// The kernel is short of memory or of space for completions for now: take completions and enter again.
    Busy,
}

/// An io_uring instance: submission queue, completion queue, and descriptor.
///
/// It belongs to the thread that built it. Dropping it closes the descriptor; the kernel then cancels what is in flight
/// *asynchronously*, so cancel and drain before you free memory that operations name.
pub struct Ring {
    submission: Submission,
    completed: Completed,
    features: KernelFeatures,
    setup: SetupFlags,
    id: RingId,
    // After the queues, which point into these mappings.
    _rings: RingMemory,
    _entries: RingMemory,
    // Last: memory is unmapped before the descriptor is closed.
    handle: Handle,
}

/// The descriptor of the ring, closed on drop.
struct Handle {
    kernel: Rc<dyn Kernel>,
    fd: Fd,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.kernel.close(self.fd);
    }
}

impl Ring {
    /// Maps a ring that was set up. Takes the descriptor over.
    pub(crate) fn open(
        kernel: Rc<dyn Kernel>,
        fd: Fd,
        params: &Params,
    ) -> Result<Self, SetupError> {
        let handle = Handle { kernel, fd };
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
        let rings = map(OFF_RINGS, sq_end.max(cq_end))?;
        let entries = map(OFF_ENTRIES, params.sq_entries as usize * size_of::<Entry>())?;
        if array != 0 {
            fill_identity(&rings, params.sq_off.array, params.sq_entries);
        }
        // SAFETY: the offsets are the kernel's for these mappings, which the ring keeps, and drops after the queues.
        let (submission, completed) = unsafe {
            let submission = Submission::new(rings.area(), entries.area(), &params.sq_off);
            (submission, Completed::new(rings.area(), &params.cq_off))
        };
        Ok(Self {
            submission,
            completed,
            features,
            setup,
            id: RingId { fd: fd.raw(), registered: false },
            _rings: rings,
            _entries: entries,
            handle,
        })
    }

    /// Enables the ring on this thread and registers its descriptor, so that an enter looks up no file.
    pub(crate) fn enable(&mut self) -> Result<(), SetupError> {
        self.register(Register::EnableRings, std::ptr::null_mut(), 0)
            .map_err(|e| SetupError::Step("enabling the ring", e))?;
        let mut update =
            RingUpdate { offset: u32::MAX, reserved: 0, data: self.handle.fd.raw() as u64 };
        // On an older kernel, or if the thread has 16 rings already, the plain descriptor is used.
        if self.register(Register::RingFds, (&raw mut update).cast(), 1).is_ok() {
            self.id = RingId { fd: update.offset as RawFd, registered: true };
        }
        Ok(())
    }

    pub(crate) fn limit_workers(&mut self, mut most: [u32; 2]) -> Result<(), SetupError> {
        self.register(Register::IowqMaxWorkers, (&raw mut most).cast(), 2)
            .map_err(|e| SetupError::Step("limiting the kernel's workers", e))?;
        Ok(())
    }

    /// Queues an entry that names no memory; the kernel sees it at the next [`enter`](Ring::enter). An entry that names memory does
    /// not compile:
    ///
    /// ```compile_fail,E0308
    /// use annulus_ring::{Ring, op};
    ///
    /// fn sends(ring: &mut Ring, fd: annulus_kernel::Fd) {
    ///     let (buffer, len, flags) = (std::ptr::null(), 64, 0);
    ///     _ = ring.push(op::Send { fd, buffer, len, flags }.entry());
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Full`] if the queue has no space: enter, then push again.
    #[inline]
    pub fn push(&mut self, entry: SafeEntry) -> Result<(), Full> {
        self.submission.push(entry.into())
    }

    /// Queues any entry.
    ///
    /// # Errors
    /// As [`push`](Ring::push).
    ///
    /// # Safety
    /// Descriptors that the entry names must be open and the caller's to use, or -1.
    ///
    /// Memory that the entry names must stay valid, unmoved and unmodified (unread, if the kernel writes it) until the *terminal*
    /// completion of the operation has been taken: the one without [`more`](crate::Completion::more). For an entry that skips its
    /// completion on success, until the enter that consumed it has returned and every completion posted by then, overflowed ones
    /// too, has been taken.
    #[inline]
    pub unsafe fn push_unchecked(&mut self, entry: Entry) -> Result<(), Full> {
        self.submission.push(entry)
    }

    /// Submits everything queued, and waits: one system call. With a kernel thread, a system call only to wait, to wake the thread,
    /// or to wait for space if the queue is full.
    ///
    /// # Errors
    /// The kernel's, except back pressure, a timeout or a signal, which are [`Entered`] values.
    #[inline]
    pub fn enter(&mut self, wait: Wait) -> io::Result<Entered> {
        let (min_complete, mut flags, timeout) = match wait {
            Wait::No => (0, EnterFlags::empty(), None),
            Wait::Reap => (0, EnterFlags::GETEVENTS, None),
            Wait::For { completions, timeout } => (completions, EnterFlags::GETEVENTS, timeout),
        };
        if min_complete > 0 && self.features.contains(KernelFeatures::NO_IOWAIT) {
            flags |= EnterFlags::NO_IOWAIT;
        }
        self.submission.publish();
        if self.setup.contains(SetupFlags::SQPOLL) {
            flags |= self.poller_flags();
            if min_complete == 0
                && !flags.intersects(EnterFlags::SQ_WAKEUP | EnterFlags::SQ_WAIT)
                && !self.overflowed()
            {
                return Ok(Entered::Unneeded);
            }
        }
        let to_submit = self.submission.pending();
        // SAFETY: the ring is open. Every entry came through `push`, as a `SafeEntry`, or through `push_unchecked`, whose caller
        // guarantees what `Kernel::enter` demands of an entry.
        let answer = unsafe {
            self.handle.kernel.enter(self.id, to_submit, min_complete, flags, EnterArg { timeout })
        };
        answer.map_or_else(outcome, |_| Ok(Entered::Done))
    }

    /// The flags that the kernel thread needs to take what was published.
    fn poller_flags(&self) -> EnterFlags {
        let pending = self.pending();
        let mut flags = EnterFlags::empty();
        if pending > 0 && self.submission.poller_sleeps() {
            flags |= EnterFlags::SQ_WAKEUP;
        }
        if pending == self.entries() {
            flags |= EnterFlags::SQ_WAIT;
        }
        flags
    }

    /// Has the kernel signal this eventfd while [`notify`](Self::notify) is on: for an event loop that waits for other things too. It
    /// starts switched off.
    ///
    /// # Errors
    /// The kernel's: EBUSY if the ring has one already.
    pub fn register_eventfd(&mut self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        self.completed.notify(false);
        let mut number = eventfd.as_raw_fd();
        self.register(Register::Eventfd, (&raw mut number).cast(), 1).map(drop)
    }

    /// Whether the registered eventfd is signalled when a completion or deferred work comes. Earlier completions are not signalled: once
    /// it is on, look at [`ready`](Self::ready) and [`work_pending`](Self::work_pending).
    #[inline]
    pub fn notify(&mut self, on: bool) {
        self.completed.notify(on);
    }

    /// Entries that are queued and not yet consumed by the kernel. After an enter it shows whether all were submitted: the count that
    /// the system call returns is lost if the wait timed out or was interrupted.
    #[inline]
    pub fn pending(&self) -> u32 {
        self.submission.pending()
    }

    /// How many completions can be taken now.
    #[inline]
    pub fn ready(&self) -> u32 {
        self.completed.ready()
    }

    /// The completion `ahead` completions after the next one, without taking it.
    #[inline]
    pub fn peek(&self, ahead: u32) -> Option<Completion> {
        self.completed.peek(ahead)
    }

    /// Takes the completions that are ready now.
    #[inline]
    pub fn completions(&mut self) -> Completions<'_> {
        self.completed.drain()
    }

    /// Whether the kernel holds completions that found no space in the queue; the next enter flushes them.
    #[inline]
    pub fn overflowed(&self) -> bool {
        self.submission.overflowed()
    }

    /// Whether deferred work waits for an enter.
    #[inline]
    pub fn work_pending(&self) -> bool {
        self.submission.work_pending()
    }

    /// Completions that the kernel dropped because it had no memory.
    pub fn dropped(&self) -> u32 {
        self.completed.dropped()
    }

    /// The number of entries of the submission queue.
    pub fn entries(&self) -> u32 {
        self.submission.capacity()
    }

    /// The number of entries of the completion queue.
    pub fn completion_entries(&self) -> u32 {
        self.completed.capacity()
    }

    /// The set-up flags that the kernel accepted.
    pub fn setup_flags(&self) -> SetupFlags {
        self.setup
    }

    /// The features that the kernel reported at set-up.
    pub fn kernel_features(&self) -> KernelFeatures {
        self.features
    }

    /// The kernel under the ring.
    pub fn kernel(&self) -> &Rc<dyn Kernel> {
        &self.handle.kernel
    }

    /// The operations that the kernel has.
    ///
    /// # Errors
    /// The kernel's.
    pub fn probe(&self) -> io::Result<Probe> {
        let mut probe = Probe::empty();
        self.register(Register::Probe, probe.as_mut_ptr(), Probe::CAPACITY)?;
        Ok(*probe)
    }

    pub(crate) fn register(&self, what: Register, arg: *mut u8, count: u32) -> io::Result<u32> {
        // SAFETY: each caller in this crate passes a live structure of the type that `what` expects. The kernel keeps only buffer
        // rings, which are unregistered before their memory is freed, or leaked.
        unsafe { self.handle.kernel.register(self.handle.fd, what, arg, count) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.id.registered {
            // The thread's table of registered rings, which has 16 entries, would keep this one alive.
            let mut update = RingUpdate { offset: self.id.fd as u32, ..RingUpdate::default() };
            _ = self.register(Register::UnregisterRingFds, (&raw mut update).cast(), 1);
        }
    }
}

/// Initializes the index array of an older kernel: slot n names entry n permanently.
fn fill_identity(rings: &RingMemory, array: u32, entries: u32) {
    let first: *mut u32 = rings.area().at(array, entries as usize * 4).cast();
    for index in 0..entries {
        // SAFETY: `at` has checked that the array lies inside the mapping, and the kernel does not read it before a submission.
        unsafe { first.add(index as usize).write(index) };
    }
}

fn outcome(error: io::Error) -> io::Result<Entered> {
    use rustix::io::Errno;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::TIME) => Ok(Entered::TimedOut),
        Some(Errno::INTR) => Ok(Entered::Interrupted),
        Some(Errno::BUSY | Errno::AGAIN | Errno::NOMEM) => Ok(Entered::Busy),
        _ => Err(error),
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("fd", &self.handle.fd.raw())
            .field("setup", &self.setup)
            .finish_non_exhaustive()
    }
}
