//! A thread that polls the descriptors of calls that wait for another process, such as the other
//! end of a pipe or a terminal. Such a wait may never end, and on a worker thread it would hold up
//! calls on other files.
//!
//! A call is *pending* until its descriptor is ready, and *running* while the thread makes it. Then
//! it is done, or pending again if another reader or writer was faster. Until it is done, it can be
//! cancelled.

use super::{FileJob, WorkerQueues, WorkerThreads, fd_of};
use crate::slots::Token;
use annulus_kernel::{Fd, Linux, descriptor};
use rustix::event::PollFlags;
use rustix::fd::RawFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

/// Pause between checks of the descriptors while the kernel refuses to poll all of them together.
const REFUSED_POLL_PAUSE: Duration = Duration::from_millis(10);

/// A call that waits for its descriptor to become ready, or that the poll thread is making.
pub(super) struct PendingCall {
    token: Token,
    /// `None` while the call is running.
    job: Option<FileJob>,
    fd: Fd,
    flags: PollFlags,
    cancelled: bool,
}

impl PendingCall {
    /// # Errors
    /// Returns the job if it waits for nothing, or for a device.
    pub(super) fn new(job: FileJob, may_hang: bool) -> Result<Self, FileJob> {
        // If the file system hangs, asking for the type of the file would hang too.
        let waits = |fd| match may_hang {
            true => !descriptor::has_position(Linux::borrow(fd)),
            false => descriptor::waits_for_a_process(Linux::borrow(fd)),
        };
        match job.awaited_readiness() {
            Some((fd, flags)) if waits(fd) => {
                Ok(Self { token: job.token(), job: Some(job), fd, flags, cancelled: false })
            }
            _ => Err(job),
        }
    }

    /// Returns the job of a call that is not running.
    pub(super) fn into_job(self) -> FileJob {
        self.job.expect("the call is not running")
    }

    pub(super) fn is_running(&self) -> bool {
        self.job.is_none()
    }
}

impl WorkerQueues {
    fn pending(&mut self, token: Token) -> Option<&mut PendingCall> {
        self.pending.iter_mut().find(|call| call.token == token)
    }

    fn end_pending(&mut self, job: FileJob, result: Result<u32, Errno>) {
        self.pending.retain(|call| call.token != job.token());
        self.done.push(job.end(result));
    }

    /// Cancels a call. Returns false if no such call exists, or if it has been cancelled already.
    /// The poll thread ends the call once it no longer polls the descriptor, since the descriptor
    /// may be closed after the event.
    pub(super) fn cancel_pending(&mut self, token: Token) -> bool {
        let call = self.pending(token).filter(|call| !call.cancelled);
        call.map(|call| call.cancelled = true).is_some()
    }

    /// Ends the cancelled calls that are not running. Returns true if there were any.
    fn end_cancelled(&mut self) -> bool {
        let cancelled = self.pending.iter_mut().filter(|call| call.cancelled);
        let jobs: Vec<FileJob> = cancelled.filter_map(|call| call.job.take()).collect();
        let any = !jobs.is_empty();
        jobs.into_iter().for_each(|job| self.end_pending(job, Err(Errno::CANCELED)));
        any
    }
}

impl WorkerThreads {
    pub(super) fn poll_pending(&self) {
        while let Some(set) = self.poll_set() {
            let ready = set.poll(fd_of(&self.wake_fd));
            self.wake_fd.clear();
            ready.into_iter().for_each(|token| self.run_pending(token));
        }
    }

    /// Ends the cancelled calls, and returns the descriptors that the other calls wait for. Returns
    /// `None` once the workers are closed.
    fn poll_set(&self) -> Option<PollSet> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        if state.end_cancelled() {
            self.notify_done();
        }
        Some(PollSet::of(&state.pending))
    }

    /// Makes a call whose descriptor is ready, unless it was cancelled.
    fn run_pending(&self, token: Token) {
        let Some(job) = self.take_ready(token) else { return };
        let result = job.run_ready();
        let mut state = self.state();
        let Some(call) = state.pending(token) else { return };
        match result {
            Err(Errno::AGAIN) if !call.cancelled => {
                call.job = Some(job);
                return;
            }
            Err(Errno::AGAIN) => state.end_pending(job, Err(Errno::CANCELED)),
            result => state.end_pending(job, result),
        }
        drop(state);
        self.notify_done();
    }

    fn take_ready(&self, token: Token) -> Option<FileJob> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.pending(token).filter(|call| !call.cancelled)?.job.take()
    }
}

/// The descriptors to poll, each once: many calls may wait for one pipe, and `poll` rejects more
/// entries than the process may have descriptors.
struct PollSet {
    /// The descriptors by number, with the events that any of their calls wait for.
    fds: BTreeMap<RawFd, (Fd, PollFlags)>,
    calls: Vec<(Token, RawFd, PollFlags)>,
}

impl PollSet {
    fn of(pending: &[PendingCall]) -> Self {
        let mut fds = BTreeMap::new();
        for call in pending {
            let (_, flags) = fds.entry(call.fd.raw()).or_insert((call.fd, PollFlags::empty()));
            *flags |= call.flags;
        }
        let calls = pending.iter().map(|call| (call.token, call.fd.raw(), call.flags)).collect();
        Self { fds, calls }
    }

    /// Waits for one of the descriptors or the eventfd. Returns the calls whose descriptors are
    /// ready.
    fn poll(&self, wake_fd: Fd) -> Vec<Token> {
        let mut polled: Vec<(Fd, PollFlags)> = self.fds.values().copied().collect();
        polled.push((wake_fd, PollFlags::IN));
        let ready = match descriptor::poll(&polled, None) {
            Err(Errno::INTR) => return Vec::new(),
            Err(_) => poll_singly(&polled),
            Ok(ready) => ready,
        };
        let ready: BTreeMap<RawFd, PollFlags> = self.fds.keys().copied().zip(ready).collect();
        let always = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        let calls =
            self.calls.iter().filter(|(_, fd, flags)| ready[fd].intersects(*flags | always));
        calls.map(|(token, ..)| *token).collect()
    }
}

/// Checks one descriptor at a time, for when `poll` refuses all together: there are more than the
/// process may have since its limit was lowered, or memory is short. Waits briefly unless one is
/// ready, because this may be so for long.
fn poll_singly(polled: &[(Fd, PollFlags)]) -> Vec<PollFlags> {
    let check = |one: &(Fd, PollFlags)| {
        let ready = descriptor::poll(&[*one], Some(Duration::ZERO));
        ready.map_or(PollFlags::empty(), |ready| ready[0])
    };
    let ready: Vec<PollFlags> = polled.iter().map(check).collect();
    if ready.iter().all(PollFlags::is_empty) {
        thread::sleep(REFUSED_POLL_PAUSE);
    }
    ready
}

#[cfg(test)]
mod tests {
    use super::super::tests::{submit, token, wait_for};
    use super::super::{MAX_WORKER_THREADS, Workers};
    use super::*;
    use annulus_kernel::IoVec;
    use annulus_kernel::file::{CURSOR_OFFSET, FileCall, PIPE_BUF};
    use annulus_skip::skip;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::os::fd::AsRawFd;

    fn read(fd: RawFd, byte: &mut u8) -> FileCall {
        FileCall::Read { fd, buffer: byte, len: 1, offset: CURSOR_OFFSET, nowait: false }
    }

    #[test]
    fn calls_waiting_for_a_process_occupy_no_worker_and_can_be_cancelled() {
        let workers = Workers::new().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut bytes = [0u8; 2 * MAX_WORKER_THREADS];
        for (slot, byte) in bytes.iter_mut().enumerate() {
            submit(&workers, slot as u32, read(reader.as_raw_fd(), byte));
        }
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        submit(&workers, 99, FileCall::Sync { fd: file.as_raw_fd(), data_only: true });
        assert_eq!(wait_for(&workers, 1)[0].token, token(99));
        assert!(
            workers.cancel(token(3)) && !workers.cancel(token(3)),
            "the call was not cancelled exactly once"
        );
        let event = wait_for(&workers, 1)[0];
        assert_eq!((event.token, event.result), (token(3), Err(Errno::CANCELED)));
        rustix::io::write(&writer, &[1; 2 * MAX_WORKER_THREADS]).unwrap();
        let events = wait_for(&workers, 2 * MAX_WORKER_THREADS - 1);
        assert!(events.iter().all(|event| event.result == Ok(1) && event.token != token(3)));
        assert_eq!((bytes[3], bytes.iter().sum::<u8>()), (0, 2 * MAX_WORKER_THREADS as u8 - 1));
    }

    /// A timer accepts seeks like a file on a disk. Its mount is unknown where `/proc` is missing.
    #[test]
    fn read_of_a_timer_on_an_unknown_mount_waits_for_its_expiry() {
        let flags = TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).unwrap();
        let workers = Workers::new().unwrap();
        let mut expiries = 0u64;
        let (fd, buffer) = (timer.as_raw_fd(), (&raw mut expiries).cast());
        let call = FileCall::Read { fd, buffer, len: 8, offset: CURSOR_OFFSET, nowait: false };
        // SAFETY: the timer and the buffer outlive the call, whose event is awaited below.
        let job = unsafe { FileJob::new(token(1), call) };
        assert!(workers.submit(job, Some(7)).is_ok(), "no thread can be started");
        assert_eq!(workers.0.state().pending.len(), 1);
        let once = Timespec { tv_sec: 0, tv_nsec: 1 };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: once };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once).unwrap();
        assert_eq!(wait_for(&workers, 1)[0].result, Ok(8));
        assert_eq!(expiries, 1);
    }

    /// One pipe has more calls than the process may have descriptors, so `poll` would reject one
    /// entry per call.
    #[test]
    fn many_calls_on_a_descriptor_are_polled_as_one() {
        use rustix::process::{Resource, getrlimit};
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        if limit > 100_000 {
            skip!("this process may have only {limit} descriptors");
            return;
        }
        let count = limit as usize + 1;
        let workers = Workers::new().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut bytes = vec![0u8; count];
        for (slot, byte) in bytes.iter_mut().enumerate() {
            submit(&workers, slot as u32, read(reader.as_raw_fd(), byte));
        }
        rustix::io::write(&writer, &[1]).unwrap();
        assert_eq!(wait_for(&workers, 1)[0].result, Ok(1));
        drop(writer);
        assert!(wait_for(&workers, count - 1).iter().all(|event| event.result == Ok(0)));
    }

    #[test]
    fn vectored_calls_wait_like_plain_ones() {
        let workers = Workers::new().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let (mut into, from) = ([0u8; 2], [7u8; 2 * PIPE_BUF as usize]);
        let vectors = [&mut into[..1], &mut []]
            .map(|part| IoVec { base: part.as_mut_ptr(), len: part.len() });
        let (fd, offset, count) = (reader.as_raw_fd(), CURSOR_OFFSET, vectors.len() as u32);
        let vectors = vectors.as_ptr();
        (0..=MAX_WORKER_THREADS as u32).for_each(|slot| {
            let read = FileCall::ReadVector { fd, vectors, count, offset, nowait: false };
            submit(&workers, slot, read);
        });
        assert!(workers.0.state().threads.is_empty(), "a call occupies a worker");
        let parts =
            [&from[..0], &from[..]].map(|part| IoVec { base: part.as_ptr(), len: part.len() });
        let (fd, vectors, count) = (writer.as_raw_fd(), parts.as_ptr(), parts.len() as u32);
        submit(&workers, 99, FileCall::WriteVector { fd, vectors, count, offset });
        let events = wait_for(&workers, MAX_WORKER_THREADS + 2);
        let written = events.iter().find(|event| event.token == token(99));
        assert_eq!(written.map(|event| event.result), Some(Ok(PIPE_BUF)));
        let reads = events.iter().filter(|event| event.token != token(99));
        assert!(reads.map(|event| event.result).all(|result| result == Ok(1)));
        assert_eq!(into[0], 7);
    }

    #[test]
    fn a_write_is_limited_to_the_free_space_of_the_pipe() {
        let workers = Workers::new().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let bytes = vec![7u8; 1 << 20];
        let (fd, len) = (writer.as_raw_fd(), bytes.len() as u32);
        let call = FileCall::Write { fd, buffer: bytes.as_ptr(), len, offset: CURSOR_OFFSET };
        submit(&workers, 1, call);
        assert_eq!(wait_for(&workers, 1)[0].result, Ok(PIPE_BUF));
        drop(reader);
        submit(&workers, 2, call);
        assert_eq!(wait_for(&workers, 1)[0].result, Err(Errno::PIPE));
    }
}
