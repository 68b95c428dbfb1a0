//! A ring: both queues, in memory shared with the kernel, and the call that drives them.
//!
//! Indices count through all of `u32`, and are masked only to access a slot. Differences are taken with `wrapping_sub`, so that
//! the wrap at 2^32 needs no special case.
#![allow(unsafe_code)]

use crate::completion::Completion;
use crate::entry::{Entry, SafeEntry};
use crate::error::Full;
use crate::memory::{Area, Handle, RingMemory, Word};
use crate::params::{KernelFeatures, RingUpdate, SetupFlags};
use crate::probe::Probe;
use annulus_kernel::{
    CompletionOffsets, EnterArg, EnterFlags, Kernel, Register, RingId, SubmissionOffsets, prefetch,
};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// How many entries ahead the submission queue is prefetched.
const AHEAD: u32 = 3;

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
    pub(crate) submission: Submission,
    pub(crate) completed: Completed,
    pub(crate) features: KernelFeatures,
    pub(crate) setup: SetupFlags,
    pub(crate) id: RingId,
    // After the queues, which point into these mappings.
    pub(crate) _rings: RingMemory,
    pub(crate) _entries: RingMemory,
    // Last: memory is unmapped before the descriptor is closed.
    pub(crate) handle: Handle,
}

impl Ring {
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

/// The submission queue.
pub(crate) struct Submission {
    head: Word,
    shared_tail: Word,
    flags: Word,
    entries: *mut Entry,
    mask: u32,
    len: u32,
    tail: u32,
}

impl Submission {
    /// # Safety
    /// The areas must be mappings of the ring whose offsets these are, and stay mapped as long as the queue is used.
    pub(crate) unsafe fn new(ring: Area, entries: Area, offsets: &SubmissionOffsets) -> Self {
        // SAFETY: the offsets are the kernel's for this area, which stays mapped; both are demanded by this function.
        let word = |offset| unsafe { Word::at(ring, offset) };
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
    pub(crate) fn push(&mut self, entry: Entry) -> Result<(), Full> {
        if self.pending() == self.len {
            return Err(Full);
        }
        // SAFETY: the masked index lies inside the mapped array, and the kernel has consumed the slot, since `head` has passed it.
        unsafe { self.entries.add((self.tail & self.mask) as usize).write(entry) };
        // By the next round of the queue, an entry has left the nearest cache.
        let ahead = self.tail.wrapping_add(AHEAD) & self.mask;
        prefetch(self.entries.wrapping_add(ahead as usize), size_of::<Entry>());
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Entries written and not yet consumed by the kernel.
    #[inline]
    pub(crate) fn pending(&self) -> u32 {
        // Acquire pairs with the kernel's release store of `head`, after it has read the entries below: only then may they be
        // overwritten.
        self.tail.wrapping_sub(self.head.load(Ordering::Acquire))
    }

    /// Whether the kernel thread sleeps, and must be woken to see what was published.
    #[inline]
    pub(crate) fn poller_sleeps(&self) -> bool {
        // The thread sets the flag, then reads the tail once more, and sleeps only if it has not changed. This side has stored
        // the tail, and now reads the flag. At least one must see the store of the other, which takes a full fence on both
        // sides: a release store and a later load may be reordered.
        fence(Ordering::SeqCst);
        self.flags.load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    /// Publishes every entry pushed so far.
    #[inline]
    pub(crate) fn publish(&self) {
        // Release pairs with the kernel's acquire load of `tail`: if it sees the tail, it sees the entries below.
        self.shared_tail.store(self.tail, Ordering::Release);
    }

    /// Entries the queue can hold.
    pub(crate) fn capacity(&self) -> u32 {
        self.len
    }

    /// Whether the kernel holds completions that found no space; an enter flushes them.
    #[inline]
    pub(crate) fn overflowed(&self) -> bool {
        // Relaxed: a hint. The enter that follows synchronizes with the kernel.
        self.flags.load(Ordering::Relaxed) & CQ_OVERFLOW != 0
    }

    /// Deferred work waits for an enter.
    #[inline]
    pub(crate) fn work_pending(&self) -> bool {
        // Relaxed: a hint. The enter that follows synchronizes with the kernel.
        self.flags.load(Ordering::Relaxed) & TASKRUN != 0
    }
}

/// The completion queue.
pub(crate) struct Completed {
    shared_head: Word,
    tail: Word,
    flags: Word,
    overflow: Word,
    completions: *const Completion,
    mask: u32,
    len: u32,
    head: u32,
}

impl Completed {
    /// # Safety
    /// The area must be the mapping of the ring whose offsets these are, and stay mapped as long as the queue is used.
    pub(crate) unsafe fn new(ring: Area, offsets: &CompletionOffsets) -> Self {
        // SAFETY: the offsets are the kernel's for this area, which stays mapped; both are demanded by this function.
        let word = |offset| unsafe { Word::at(ring, offset) };
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

    /// Completions the queue can hold.
    pub(crate) fn capacity(&self) -> u32 {
        self.len
    }

    /// Whether the registered eventfd is signalled for what comes from now on. Once it is on, look for what came before.
    #[inline]
    pub(crate) fn notify(&self, on: bool) {
        self.flags.store(if on { 0 } else { EVENTFD_DISABLED }, Ordering::Relaxed);
        if on {
            // The kernel posts, or notes deferred work, then reads the flag. This side has cleared the flag, and its caller now
            // reads what was posted. At least one must see the store of the other, which takes a full fence on both sides.
            fence(Ordering::SeqCst);
        }
    }

    /// How many completions wait to be taken.
    #[inline]
    pub(crate) fn ready(&self) -> u32 {
        // Acquire pairs with the kernel's release store of `tail`: if this side sees the tail, it sees the completions below.
        self.tail.load(Ordering::Acquire).wrapping_sub(self.head)
    }

    /// The completion `ahead` completions after the next one, without taking it.
    #[inline]
    pub(crate) fn peek(&self, ahead: u32) -> Option<Completion> {
        let slot = (self.head.wrapping_add(ahead) & self.mask) as usize;
        // SAFETY: the masked index lies inside the mapped array. The slot is below the tail that was acquired, and not below the
        // head that the kernel sees, so that the kernel does not write it.
        (ahead < self.ready()).then(|| unsafe { self.completions.add(slot).read() })
    }

    /// Takes the completions that are ready now.
    #[inline]
    pub(crate) fn drain(&mut self) -> Completions<'_> {
        let end = self.head.wrapping_add(self.ready());
        Completions { queue: self, end }
    }

    /// Completions that the kernel dropped: none on a kernel with `NODROP`.
    pub(crate) fn dropped(&self) -> u32 {
        self.overflow.load(Ordering::Relaxed)
    }
}

/// The completions that were ready when it was made. Dropping it gives the slots of those that were taken back, with one store.
pub struct Completions<'a> {
    queue: &'a mut Completed,
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
        // SAFETY: the masked index lies inside the mapped array. The slot is below the tail that was acquired, and not below the
        // head that the kernel sees, so that the kernel does not write it.
        let completion = unsafe { self.queue.completions.add(slot).read() };
        self.queue.head = self.queue.head.wrapping_add(1);
        Some(completion)
    }
}

impl Drop for Completions<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the kernel's acquire load of `head`: it reuses a slot only after the reads above.
        self.queue.shared_head.store(self.queue.head, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
