//! File calls, made by the ring if it has the operation, otherwise by worker threads. Worker
//! threads also make two kinds of calls that the ring handles wrongly: calls that use the position
//! of a file, and calls after which the ring would still keep the file open.
//!
//! A locked-down ring allows no file operation: a seccomp filter sees the workers' system calls,
//! but would not see entries.
#![allow(unsafe_code)]

use super::Uring;
use crate::event::Event;
use crate::op::{FileStart, is_early_batch};
use crate::slots::Token;
use crate::workers::{FileJob, Workers};
use annulus_kernel::file::CURSOR_OFFSET;
use annulus_kernel::{EventFd, Fd, Kernel};
use annulus_ring::op::{PollMulti, poll, with_registered_buffer};
use annulus_ring::{Entry, Probe, SafeEntry, opcode};
use rustix::io::Errno;
use std::collections::VecDeque;

/// How a call is made.
enum CallRoute {
    /// The ring makes the call.
    Ring(Entry),
    /// A worker makes the call. The entry, if any, polls the workers' eventfd and must be
    /// submitted.
    Worker(Option<SafeEntry>),
    /// The call has already ended or failed, and its event is queued.
    Done,
}

/// Chooses how each call is made, and keeps the events of calls that the ring did not make.
#[derive(Debug)]
pub(super) struct FileCalls {
    probe: Probe,
    restricted: bool,
    workers: Option<Workers>,
    /// The eventfd that the workers will also signal once they exist.
    notifier: Option<EventFd>,
    /// Whether the ring polls the workers' eventfd.
    polling: bool,
    ready_events: VecDeque<Event>,
}

impl FileCalls {
    /// The token of the poll of the workers' eventfd.
    pub(super) const WORKERS_DONE: Token = Token::internal(2);

    pub(super) fn new(probe: Probe, restricted: bool, kernel: &dyn Kernel) -> Self {
        // Created now, so that a later call does not fail because no descriptor is left.
        let workers = kernel.real_descriptors().then(Workers::new);
        Self {
            probe,
            restricted,
            workers: workers.and_then(Result::ok),
            notifier: None,
            polling: false,
            ready_events: VecDeque::new(),
        }
    }

    /// Returns true if the ring allows only the operations of the driver.
    pub(super) fn is_restricted(&self) -> bool {
        self.restricted
    }

    /// Returns true if the kernel's io_uring has an operation.
    pub(super) fn has_opcode(&self, opcode: u8) -> bool {
        self.probe.has(opcode)
    }

    fn submit(&mut self, job: FileJob, group: Option<u64>, kernel: &dyn Kernel) -> CallRoute {
        let stays_open = || kernel.real_descriptors() && job.outlives_its_completion();
        // The ring has few threads, and a call that hangs (one with a group) would occupy one of
        // them.
        if !self.restricted
            && group.is_none()
            && !job.moves_position(kernel)
            && !stays_open()
            && let Some(entry) = job.entry(&self.probe)
        {
            return CallRoute::Ring(entry);
        }
        if !kernel.real_descriptors() {
            let result = job.run_on(kernel);
            return self.end(job.end(result));
        }
        match self.workers() {
            Ok(workers) => match workers.submit(job, group) {
                Ok(()) => CallRoute::Worker(self.poll_workers()),
                Err(event) => self.end(event),
            },
            Err(errno) => self.end(job.end(Err(errno))),
        }
    }

    fn workers(&mut self) -> Result<&Workers, Errno> {
        if self.workers.is_none() {
            let workers = Workers::new()?;
            self.notifier.take().into_iter().for_each(|notifier| workers.set_notifier(notifier));
            self.workers = Some(workers);
        }
        Ok(self.workers.as_ref().expect("the workers were created above"))
    }

    /// Makes the workers also signal this eventfd from now on.
    pub(super) fn set_notifier(&mut self, notifier: EventFd) {
        match &self.workers {
            Some(workers) => workers.set_notifier(notifier),
            None => self.notifier = Some(notifier),
        }
    }

    fn end(&mut self, event: Event) -> CallRoute {
        self.ready_events.push_back(event);
        CallRoute::Done
    }

    /// Takes the workers' events after a completion of the poll. Returns the entry of the next poll
    /// if the current one has ended.
    pub(super) fn workers_done(&mut self, more: bool) -> Option<SafeEntry> {
        let workers = self.workers.as_ref()?;
        workers.clear_signal();
        workers.take_events(&mut self.ready_events);
        self.polling = more;
        self.poll_workers()
    }

    /// Returns the entry that polls the workers' eventfd, unless a poll is in flight.
    fn poll_workers(&mut self) -> Option<SafeEntry> {
        let fd = self.workers.as_ref()?.done_fd();
        let polls = std::mem::replace(&mut self.polling, true);
        let entry = PollMulti { fd, events: poll::IN }.entry();
        (!polls).then(|| entry.user_data(Self::WORKERS_DONE.bits()))
    }

    /// Closes a descriptor whose close may hang.
    pub(super) fn close_isolated(&mut self, group: u64, fd: Fd) {
        if let Ok(workers) = self.workers() {
            workers.close_isolated(group, fd);
        }
    }

    /// Cancels a call that no worker has started. Returns false if no such call exists: the ring
    /// may have the call.
    pub(super) fn cancel(&mut self, target: Token) -> bool {
        self.workers.as_ref().is_some_and(|workers| workers.cancel(target))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready_events.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<Event> {
        self.ready_events.pop_front()
    }
}

impl Uring {
    #[cold]
    pub(crate) fn submit_job(&mut self, job: FileJob, start: FileStart, in_flight: u32) {
        let kernel = self.common.kernel.clone();
        match self.files.submit(job, start.group(), &*kernel) {
            CallRoute::Ring(entry) => {
                self.common.counters.file_ring += 1;
                let entry = self.with_registered_buffer(entry);
                // SAFETY: the entry refers to the same memory and descriptors as the call, which
                // belong to the job until the terminal event (`FileJob::new`). A registered buffer
                // at this address is this memory (`BufferRegistry::add`).
                unsafe { self.push_file(entry, start == FileStart::Early, in_flight) };
            }
            CallRoute::Worker(poll) => {
                self.common.counters.file_worker += 1;
                poll.into_iter().for_each(|entry| self.push(entry));
            }
            CallRoute::Done => self.common.counters.file_inline += 1,
        }
    }

    pub(crate) fn close_isolated(&mut self, group: u64, fd: Fd) {
        self.files.close_isolated(group, fd);
    }

    /// Makes a read or write at an offset use a registered buffer, if its memory is in one.
    fn with_registered_buffer(&mut self, entry: Entry) -> Entry {
        let Some(buffers) = &self.buffers else { return entry };
        if entry.off == CURSOR_OFFSET || !matches!(entry.opcode, opcode::READ | opcode::WRITE) {
            return entry;
        }
        let slot = buffers.slot_of(&self.ring, entry.addr, entry.len);
        let registered = slot.and_then(|slot| with_registered_buffer(entry, slot));
        self.common.counters.file_registered += u64::from(registered.is_some());
        registered.unwrap_or(entry)
    }

    /// # Safety
    /// See [`Ring::push_unchecked`](annulus_ring::Ring::push_unchecked).
    unsafe fn push_file(&mut self, entry: Entry, is_early: bool, in_flight: u32) {
        // SAFETY: the caller guarantees what `push_unchecked` requires.
        unsafe { self.push_unchecked(entry) };
        if is_early {
            self.early_calls += 1;
            if is_early_batch(self.early_calls, in_flight) {
                self.submit_queued();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::OpKind;
    use annulus_kernel::Linux;
    use annulus_kernel::file::FileCall;
    use annulus_ring::Ring;
    use rustix::event::{PollFd, PollFlags, poll as poll_fds};
    use std::os::fd::AsRawFd;

    #[test]
    fn workers_are_polled_once_from_the_first_call_on() {
        let Ok(ring) = Ring::builder().entries(8).build() else { return };
        let mut files = FileCalls::new(ring.probe().unwrap(), false, &Linux);
        let call = FileCall::Lock { fd: -1, operation: 0 };
        let token = Token::new(OpKind::File, 1, 1);
        // SAFETY: the call refers to no memory and no descriptor: it fails with EBADF.
        let job = || unsafe { FileJob::new(token, call) };
        assert!(matches!(files.submit(job(), None, &Linux), CallRoute::Worker(Some(_))));
        assert!(matches!(files.submit(job(), None, &Linux), CallRoute::Worker(None)));
        assert!(files.workers_done(true).is_none());
        assert!(files.workers_done(false).is_some());
    }

    #[test]
    fn calls_that_keep_files_open_after_completion_are_not_entries() {
        let Ok(ring) = Ring::builder().entries(8).build() else { return };
        let mut files = FileCalls::new(ring.probe().unwrap(), false, &Linux);
        let path = std::env::temp_dir().join(format!("annulus-route-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let fd = file.as_raw_fd();
        let calls = [
            FileCall::Sync { fd, data_only: true },
            FileCall::SetLen { fd, len: 1 },
            FileCall::Allocate { fd, mode: 0, offset: 0, len: 1 },
            FileCall::Advise { fd, offset: 0, len: 1, advice: 0 },
            FileCall::Write { fd, buffer: b"x".as_ptr(), len: 1, offset: 0 },
        ];
        for (slot, call) in (0..).zip(calls) {
            let token = Token::new(OpKind::File, 1, slot);
            // SAFETY: the bytes are static, and the file stays open until the events of all calls
            // have been taken.
            let job = unsafe { FileJob::new(token, call) };
            assert!(matches!(files.submit(job, None, &Linux), CallRoute::Worker(_)), "{call:?}");
        }
        while files.ready_events.len() < calls.len() {
            let fd = Linux::borrow(files.workers().unwrap().done_fd());
            poll_fds(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], None).unwrap();
            files.workers_done(true);
        }
        assert!(files.ready_events.iter().all(|event| event.result.is_ok()));
    }
}
