//! A ring: both queues, in memory shared with the kernel, and the system call that drives them.
//!
//! Indices run through the whole range of `u32` and are masked only to access a slot. Differences
//! use `wrapping_sub`, so the wrap at 2^32 needs no special case.
#![allow(unsafe_code)]

use crate::completion::Completion;
use crate::entry::{Entry, SafeEntry};
use crate::error::QueueFull;
use crate::memory::{MappedArea, RingHandle, RingMemory, SharedWord};
use crate::params::{KernelFeatures, RingUpdate, SetupFlags};
use crate::probe::Probe;
use annulus_kernel::{
    CompletionOffsets, EnterArg, EnterFlags, Fd, Kernel, Register, RingId, SubmissionOffsets,
    prefetch,
};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Distance, in entries, from the tail to the slot that a push prefetches.
const PREFETCH_DISTANCE: u32 = 3;

/// The timeout of a [`Wait::Batch`] without one.
const MAX_BATCH_WAIT: Duration = Duration::from_secs(3600);

/// The wait that [`Ring::enter`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Submit, and run no deferred work.
    No,
    /// Submit, run deferred work, and return.
    Reap,
    /// Submit, then wait.
    For {
        /// Return once this many completions are ready.
        completions: u32,
        /// Return after this time at the latest.
        timeout: Option<Duration>,
    },
    /// Submit, then wait for several completions, or later for one. Needs
    /// [`KernelFeatures::MIN_TIMEOUT`] (6.12).
    Batch {
        /// Return once this many completions are ready.
        completions: u32,
        /// From this time on, return as soon as one completion is ready.
        min_wait: Duration,
        /// Return after this time at the latest.
        timeout: Option<Duration>,
    },
}

/// The outcome of [`Ring::enter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// The call submitted and waited.
    Done,
    /// The timeout expired first.
    TimedOut,
    /// A signal interrupted the call. Take the completions and enter again.
    Interrupted,
    /// No system call was needed: the kernel thread takes the queued entries, and there was nothing
    /// to wait for.
    Unneeded,
    /// The kernel is short of memory or of completion slots. Take the completions and enter again.
    Busy,
}

/// An io_uring instance: submission queue, completion queue, and descriptor.
///
/// A ring belongs to the thread that built it. Dropping it closes the descriptor, and the kernel
/// then cancels operations in flight *asynchronously*, so cancel and drain before you free memory
/// that an operation uses.
pub struct Ring {
    pub(crate) submission_queue: SubmissionQueue,
    pub(crate) completion_queue: CompletionQueue,
    pub(crate) features: KernelFeatures,
    pub(crate) setup: SetupFlags,
    pub(crate) id: RingId,
    // Dropped after the queues, which point into these mappings.
    pub(crate) _rings: RingMemory,
    pub(crate) _entries: RingMemory,
    // Dropped last: the memory is unmapped before the descriptor is closed.
    pub(crate) handle: RingHandle,
}

impl Ring {
    /// Queues an entry that refers to no memory. The kernel sees it at the next
    /// [`enter`](Ring::enter). An entry that refers to memory does not compile:
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
    /// [`QueueFull`] if the queue is full. Enter, then push again.
    #[inline]
    pub fn push(&mut self, entry: SafeEntry) -> Result<(), QueueFull> {
        self.submission_queue.push(entry.into())
    }

    /// Queues an entry that may refer to memory.
    ///
    /// # Errors
    /// Same as [`push`](Ring::push).
    ///
    /// # Safety
    /// Each descriptor in the entry must be -1, or open and one that the caller may use.
    ///
    /// Memory that the entry refers to must stay valid, unmoved and unmodified (and unread, if the
    /// kernel writes it) until the *terminal* completion of the operation, the one without
    /// [`more`](crate::Completion::more), has been taken. For an entry that skips its completion on
    /// success, it must stay so until the enter that consumed the entry has returned and every
    /// completion posted by then, including overflowed ones, has been taken.
    #[inline]
    pub unsafe fn push_unchecked(&mut self, entry: Entry) -> Result<(), QueueFull> {
        self.submission_queue.push(entry)
    }

    /// Submits all queued entries and waits, in one system call. With SQ polling, often no system
    /// call is needed.
    ///
    /// # Errors
    /// The kernel's error. Back pressure, timeouts and signals are [`Entered`] values instead.
    #[inline]
    pub fn enter(&mut self, wait: Wait) -> io::Result<Entered> {
        let (min_complete, mut flags, arg) = match wait {
            Wait::No => (0, EnterFlags::empty(), EnterArg::default()),
            Wait::Reap => (0, EnterFlags::GETEVENTS, EnterArg::default()),
            Wait::For { completions, timeout } => {
                (completions, EnterFlags::GETEVENTS, EnterArg { timeout, min_wait: None })
            }
            Wait::Batch { completions, min_wait, timeout } => {
                (completions, EnterFlags::GETEVENTS, batch_arg(min_wait, timeout))
            }
        };
        if min_complete > 0 && self.features.contains(KernelFeatures::NO_IOWAIT) {
            flags |= EnterFlags::NO_IOWAIT;
        }
        self.submission_queue.publish();
        if self.setup.contains(SetupFlags::SQPOLL) {
            flags |= self.poller_flags();
            if min_complete == 0
                && !flags.intersects(EnterFlags::SQ_WAKEUP | EnterFlags::SQ_WAIT)
                && !self.overflowed()
            {
                return Ok(Entered::Unneeded);
            }
        }
        let to_submit = self.submission_queue.pending();
        // SAFETY: the ring is open. Every entry came through `push`, as a `SafeEntry`, or through
        // `push_unchecked`, whose caller guarantees what `Kernel::enter` requires of an entry.
        let answer =
            unsafe { self.handle.kernel.enter(self.id, to_submit, min_complete, flags, arg) };
        answer.map_or_else(outcome, |_| Ok(Entered::Done))
    }

    /// Returns the flags that make the kernel thread take the published entries.
    fn poller_flags(&self) -> EnterFlags {
        let pending = self.pending();
        let mut flags = EnterFlags::empty();
        if pending > 0 && self.submission_queue.poller_sleeps() {
            flags |= EnterFlags::SQ_WAKEUP;
        }
        if pending == self.entries() {
            flags |= EnterFlags::SQ_WAIT;
        }
        flags
    }

    /// Registers an eventfd that the kernel signals while it is
    /// [enabled](Self::set_eventfd_enabled), for an event loop that also waits for other things.
    /// The eventfd starts disabled.
    ///
    /// # Errors
    /// The kernel's error: EBUSY if the ring has an eventfd already.
    pub fn register_eventfd(&mut self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        self.completion_queue.set_eventfd_enabled(false);
        let mut number = eventfd.as_raw_fd();
        // SAFETY: the kernel reads one descriptor during the call.
        unsafe { self.register(Register::Eventfd, (&raw mut number).cast(), 1) }.map(drop)
    }

    /// Switches the registered eventfd on or off. While it is on, the kernel signals it for each
    /// new completion or deferred work. Earlier completions are not signalled, so check
    /// [`ready`](Self::ready) and [`has_deferred_work`](Self::has_deferred_work) after switching it
    /// on.
    #[inline]
    pub fn set_eventfd_enabled(&mut self, on: bool) {
        self.completion_queue.set_eventfd_enabled(on);
    }

    /// Returns the number of queued entries that the kernel has not consumed yet. After an enter,
    /// it shows whether the kernel has consumed all entries: the system call loses its own count if
    /// the wait timed out or was interrupted.
    #[inline]
    pub fn pending(&self) -> u32 {
        self.submission_queue.pending()
    }

    /// Returns the number of completions that can be taken now.
    #[inline]
    pub fn ready(&self) -> u32 {
        self.completion_queue.ready()
    }

    /// Returns the completion that is `ahead` places after the next one, without taking it.
    #[inline]
    pub fn peek(&self, ahead: u32) -> Option<Completion> {
        self.completion_queue.peek(ahead)
    }

    /// Takes the completions that are ready now.
    #[inline]
    pub fn completions(&mut self) -> Completions<'_> {
        self.completion_queue.drain()
    }

    /// Returns true if the kernel holds completions that did not fit into the queue. The next enter
    /// flushes them.
    #[inline]
    pub fn overflowed(&self) -> bool {
        self.submission_queue.overflowed()
    }

    /// Returns true if deferred work waits for an enter.
    #[inline]
    pub fn has_deferred_work(&self) -> bool {
        self.submission_queue.has_deferred_work()
    }

    /// Returns the number of completions that the kernel dropped because it had no memory.
    pub fn dropped(&self) -> u32 {
        self.completion_queue.dropped()
    }

    /// Returns the capacity of the submission queue, in entries.
    pub fn entries(&self) -> u32 {
        self.submission_queue.capacity()
    }

    /// Returns the capacity of the completion queue, in entries.
    pub fn completion_entries(&self) -> u32 {
        self.completion_queue.capacity()
    }

    /// Returns the set-up flags that the kernel accepted.
    pub fn setup_flags(&self) -> SetupFlags {
        self.setup
    }

    /// Returns the features that the kernel reported at set-up.
    pub fn kernel_features(&self) -> KernelFeatures {
        self.features
    }

    /// Returns the kernel that the ring runs on.
    pub fn kernel(&self) -> &Rc<dyn Kernel> {
        &self.handle.kernel
    }

    /// Returns the operations that the kernel supports.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn probe(&self) -> io::Result<Probe> {
        let mut probe = Probe::empty();
        // SAFETY: the probe has room for this many operations, and is filled during the call.
        unsafe { self.register(Register::Probe, probe.as_mut_ptr(), Probe::MAX_OPCODES) }?;
        Ok(*probe)
    }

    /// Makes a registration of the ring.
    ///
    /// # Safety
    /// The same conditions as for [`Kernel::register`].
    pub(crate) unsafe fn register(
        &self,
        what: Register,
        arg: *mut u8,
        count: u32,
    ) -> io::Result<u32> {
        // SAFETY: the caller fulfils this function's contract, which is that of the call.
        unsafe { self.handle.kernel.register(self.handle.fd, what, arg, count) }
    }

    /// Makes a registration that refers to no ring. Unlike others, it needs no permission on a
    /// restricted ring.
    ///
    /// # Safety
    /// The same conditions as for [`Kernel::register`], with a count of 0.
    pub(crate) unsafe fn register_without_ring(
        &self,
        what: Register,
        arg: *mut u8,
    ) -> io::Result<u32> {
        // SAFETY: the caller fulfils this function's contract, which is that of the call.
        unsafe { self.handle.kernel.register(Fd::NONE, what, arg, 0) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.id.registered {
            // Otherwise the thread's table of registered rings, which has 16 entries, would keep
            // this ring alive.
            let mut update = RingUpdate { offset: self.id.fd as u32, ..RingUpdate::default() };
            // SAFETY: the kernel reads one update during the call.
            _ = unsafe { self.register(Register::UnregisterRingFds, (&raw mut update).cast(), 1) };
        }
    }
}

/// Returns the times of a [`Wait::Batch`]. Linux compares the minimum wait with the timeout as if the
/// latter were a point in time, so the minimum is bounded here. Without a timeout, Linux would return
/// after the minimum wait even if no completion is ready.
fn batch_arg(min_wait: Duration, timeout: Option<Duration>) -> EnterArg {
    let timeout = timeout.unwrap_or(MAX_BATCH_WAIT);
    EnterArg { timeout: Some(timeout), min_wait: Some(min_wait.min(timeout)) }
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

/// `IORING_SQ_NEED_WAKEUP`
const NEED_WAKEUP: u32 = 1 << 0;
/// `IORING_SQ_CQ_OVERFLOW`
const CQ_OVERFLOW: u32 = 1 << 1;
/// `IORING_SQ_TASKRUN`
const TASKRUN: u32 = 1 << 2;

/// `IORING_CQ_EVENTFD_DISABLED`
const EVENTFD_DISABLED: u32 = 1 << 0;

pub(crate) struct SubmissionQueue {
    head: SharedWord,
    shared_tail: SharedWord,
    flags: SharedWord,
    entries: *mut Entry,
    mask: u32,
    len: u32,
    tail: u32,
}

impl SubmissionQueue {
    /// # Safety
    /// The areas must be mappings of the ring that has these offsets, and must stay mapped as long
    /// as the queue is used.
    pub(crate) unsafe fn new(
        ring: MappedArea,
        entries: MappedArea,
        offsets: &SubmissionOffsets,
    ) -> Self {
        // SAFETY: the caller guarantees that the offsets are the kernel's for this area, and that
        // the area stays mapped.
        let word = |offset| unsafe { SharedWord::at(ring, offset) };
        let len = word(offsets.ring_entries).load(Ordering::Relaxed);
        let shared_tail = word(offsets.tail);
        Self {
            head: word(offsets.head),
            shared_tail,
            flags: word(offsets.flags),
            entries: entries.at(0, len as usize * size_of::<Entry>()).cast(),
            mask: word(offsets.ring_mask).load(Ordering::Relaxed),
            len,
            tail: shared_tail.load(Ordering::Relaxed),
        }
    }

    /// Writes one entry; the kernel sees it after [`publish`](Self::publish).
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) -> Result<(), QueueFull> {
        if self.pending() == self.len {
            return Err(QueueFull);
        }
        // SAFETY: the masked index lies inside the mapped array, and the kernel has consumed the
        // slot, since `head` has passed it.
        unsafe { self.entries.add((self.tail & self.mask) as usize).write(entry) };
        // Prefetches the slot of a later push, which has left the first-level cache since it was
        // last used.
        let ahead = self.tail.wrapping_add(PREFETCH_DISTANCE) & self.mask;
        prefetch(self.entries.wrapping_add(ahead as usize), size_of::<Entry>());
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Returns the number of entries written but not yet consumed by the kernel.
    #[inline]
    pub(crate) fn pending(&self) -> u32 {
        // Acquire pairs with the kernel's release store of `head`, which follows its reads of the
        // entries below: only then may they be overwritten.
        self.tail.wrapping_sub(self.head.load(Ordering::Acquire))
    }

    /// Returns true if the kernel thread sleeps, and must be woken to see published entries.
    #[inline]
    pub(crate) fn poller_sleeps(&self) -> bool {
        // The thread sets the flag, then reads the tail again, and sleeps only if it has not
        // changed. This side has stored the tail and now reads the flag. At least one side must see
        // the other's store, which takes a full fence on both sides: a release store and a later
        // load may be reordered.
        fence(Ordering::SeqCst);
        self.flags.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    /// Publishes every entry pushed so far.
    #[inline]
    pub(crate) fn publish(&self) {
        // Release pairs with the kernel's acquire load of `tail`: if it sees the tail, it sees the
        // entries below.
        self.shared_tail.store(self.tail, Ordering::Release);
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.len
    }

    /// Returns true if the kernel holds completions that did not fit. An enter flushes them.
    #[inline]
    pub(crate) fn overflowed(&self) -> bool {
        // Relaxed: a hint. The enter that follows synchronises with the kernel.
        self.flags.load(Ordering::Relaxed) & CQ_OVERFLOW != 0
    }

    /// Returns true if deferred work waits for an enter.
    #[inline]
    pub(crate) fn has_deferred_work(&self) -> bool {
        // Relaxed: a hint. The enter that follows synchronises with the kernel.
        self.flags.load(Ordering::Relaxed) & TASKRUN != 0
    }
}

pub(crate) struct CompletionQueue {
    shared_head: SharedWord,
    tail: SharedWord,
    flags: SharedWord,
    overflow: SharedWord,
    completions: *const Completion,
    mask: u32,
    len: u32,
    head: u32,
}

impl CompletionQueue {
    /// # Safety
    /// The area must be the mapping of the ring that has these offsets, and must stay mapped as
    /// long as the queue is used.
    pub(crate) unsafe fn new(ring: MappedArea, offsets: &CompletionOffsets) -> Self {
        // SAFETY: the caller guarantees that the offsets are the kernel's for this area, and that
        // the area stays mapped.
        let word = |offset| unsafe { SharedWord::at(ring, offset) };
        let len = word(offsets.ring_entries).load(Ordering::Relaxed);
        let shared_head = word(offsets.head);
        Self {
            shared_head,
            tail: word(offsets.tail),
            flags: word(offsets.flags),
            overflow: word(offsets.overflow),
            completions: ring.at(offsets.cqes, len as usize * size_of::<Completion>()).cast(),
            mask: word(offsets.ring_mask).load(Ordering::Relaxed),
            len,
            head: shared_head.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.len
    }

    /// Switches signals to the registered eventfd on or off. After switching them on, check for
    /// earlier completions.
    #[inline]
    pub(crate) fn set_eventfd_enabled(&self, on: bool) {
        self.flags.store(if on { 0 } else { EVENTFD_DISABLED }, Ordering::Relaxed);
        if on {
            // The kernel posts a completion or records deferred work, then reads the flag. This
            // side has cleared the flag, and its caller now checks for both. At least one side must
            // see the other's store, which takes a full fence on both sides.
            fence(Ordering::SeqCst);
        }
    }

    /// Returns the number of completions that can be taken.
    #[inline]
    pub(crate) fn ready(&self) -> u32 {
        // Acquire pairs with the kernel's release store of `tail`: if this side sees the tail, it
        // sees the completions below.
        self.tail.load(Ordering::Acquire).wrapping_sub(self.head)
    }

    /// Returns the completion that is `ahead` places after the next one, without taking it.
    #[inline]
    pub(crate) fn peek(&self, ahead: u32) -> Option<Completion> {
        let slot = (self.head.wrapping_add(ahead) & self.mask) as usize;
        // SAFETY: the masked index lies inside the mapped array. The slot is below the acquired
        // tail and not below the head that the kernel sees, so the kernel does not write it.
        (ahead < self.ready()).then(|| unsafe { self.completions.add(slot).read() })
    }

    /// Takes the completions that are ready now.
    #[inline]
    pub(crate) fn drain(&mut self) -> Completions<'_> {
        let end = self.head.wrapping_add(self.ready());
        Completions { queue: self, end }
    }

    /// Returns the number of completions that the kernel dropped because it had no memory.
    pub(crate) fn dropped(&self) -> u32 {
        self.overflow.load(Ordering::Relaxed)
    }
}

/// An iterator over the completions that were ready when it was created. Dropping it returns the
/// slots of the taken completions to the kernel, with one store.
pub struct Completions<'a> {
    queue: &'a mut CompletionQueue,
    end: u32,
}

impl Iterator for Completions<'_> {
    type Item = Completion;

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        if self.queue.head == self.end {
            return None;
        }
        let slot = (self.queue.head & self.queue.mask) as usize;
        // SAFETY: the masked index lies inside the mapped array. The slot is below the acquired
        // tail and not below the head that the kernel sees, so the kernel does not write it.
        let completion = unsafe { self.queue.completions.add(slot).read() };
        self.queue.head = self.queue.head.wrapping_add(1);
        Some(completion)
    }
}

impl Drop for Completions<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release orders the reads above before this store. The kernel reads `head` before it
        // reuses a slot (a control dependency, which release pairs with).
        self.queue.shared_head.store(self.queue.head, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
