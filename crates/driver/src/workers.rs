//! Threads that make the file calls that no ring makes: a system call that blocks delays one of
//! these threads, not the loop.
//!
//! A thread starts only if a call finds all others busy. An eventfd tells the driver that calls
//! have ended. While reads and writes wait for a thread, one signal reports several calls, because
//! a signal costs as much as a short call.
//!
//! Small reads of a file from the page cache form a *group*, which one thread makes, because waking
//! a thread for each read costs as much as the read. The thread first announces all of them, so
//! that the device works on them at the same time.
//!
//! Calls that may wait for another process go to a separate thread: see `poll_thread`. Calls that
//! may hang go to other threads: see `isolated`.
#![allow(unsafe_code)]

mod file_job;
mod isolated;
mod poll_thread;

use crate::event::Event;
use crate::slots::Token;
use annulus_kernel::{EventFd, Fd};
pub(crate) use file_job::FileJob;
use isolated::IsolatedCalls;
use poll_thread::PendingCall;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

/// Number of threads for calls that cannot hang, if as many calls are in flight. It is enough to
/// keep a device busy, and few enough that 32 reads in flight leave some waiting: then no thread
/// has to be woken for the next call.
const USUAL_WORKER_THREADS: usize = 16;
/// Maximum number of these threads, which is used while more calls wait than there are threads.
const MAX_WORKER_THREADS: usize = 24;
/// Maximum number of ended calls that have not been reported to the driver. Without this limit, a
/// long queue would delay the first results until half of it is done.
const MAX_UNREPORTED_CALLS: usize = 32;
/// Bytes of stack per thread, which only makes system calls.
const STACK_BYTES: usize = 64 * 1024;

/// The error of a call that needs a thread when none can be started. No system call for a file
/// fails with this error. `EAGAIN`, the system's error for a failed thread creation, would look
/// like a call that would block.
pub const NO_THREAD: Errno = Errno::USERS;

/// Returns the number of threads that may make calls while `threads` exist or make calls.
fn allowed(waiting: usize, threads: usize) -> usize {
    if waiting > threads { MAX_WORKER_THREADS } else { USUAL_WORKER_THREADS }
}

/// Maximum number of reads in a group, which one thread makes. With smaller groups, more threads
/// have to be woken: with 32 reads in flight, groups of eight took a fifth more CPU time.
const MAX_GROUP_READS: usize = 32;

/// Calls that no thread has taken, oldest first.
#[derive(Default)]
struct JobQueue {
    /// The calls, and the file of each one that may be part of a group.
    jobs: VecDeque<(FileJob, Option<RawFd>)>,
    /// Number of calls that may not be part of a group.
    singles: usize,
}

impl JobQueue {
    fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Adds a call. `file` is its file if it may be part of a group.
    fn push(&mut self, job: FileJob, file: Option<RawFd>) {
        self.singles += usize::from(file.is_none());
        self.jobs.push_back((job, file));
    }

    /// Takes the next call, and the rest of its group: further reads of the same file.
    fn pop_group(&mut self) -> Option<(FileJob, Vec<FileJob>)> {
        let (job, file) = self.jobs.pop_front()?;
        self.singles -= usize::from(file.is_none());
        let is_in_group = |next: &&(FileJob, Option<RawFd>)| file.is_some() && next.1 == file;
        let rest = self.jobs.iter().take(MAX_GROUP_READS - 1).take_while(is_in_group).count();
        Some((job, self.jobs.drain(..rest).map(|(job, _)| job).collect()))
    }

    fn remove(&mut self, target: Token) -> Option<FileJob> {
        let position = self.jobs.iter().position(|(job, _)| job.token() == target)?;
        let (job, file) = self.jobs.remove(position)?;
        self.singles -= usize::from(file.is_none());
        Some(job)
    }

    /// Returns the number of threads that the calls need if each group has one.
    fn threads(&self) -> usize {
        self.singles + (self.jobs.len() - self.singles).div_ceil(MAX_GROUP_READS)
    }
}

#[derive(Default)]
struct WorkerQueues {
    queue: JobQueue,
    /// Reads that the kernel has been told of, so that the device works on them, oldest first.
    announced: VecDeque<FileJob>,
    done: Vec<Event>,
    /// Whether the driver has been notified of events in `done` since it last took them.
    signalled: bool,
    threads: Vec<JoinHandle<()>>,
    /// Number of threads that are making a call.
    busy: usize,
    /// Number of threads that wait for a call and have not been woken.
    idle: usize,
    /// Number of threads that have been woken and still have to note it. A condition variable may
    /// wake more threads than it was asked to.
    woken: usize,
    pending: Vec<PendingCall>,
    poll_thread: Option<JoinHandle<()>>,
    isolated: IsolatedCalls,
    closed: bool,
}

struct WorkerThreads {
    state: Mutex<WorkerQueues>,
    work: Condvar,
    /// Wakes the threads for calls that may hang.
    isolated_work: Condvar,
    /// Signalled when calls have ended.
    done_fd: EventFd,
    /// The eventfd of another event loop that waits for the driver, signalled together with
    /// `done_fd`.
    notifier: OnceLock<EventFd>,
    /// Wakes the poll thread.
    wake_fd: EventFd,
}

/// The threads of one driver.
pub(crate) struct Workers(Arc<WorkerThreads>);

impl Workers {
    /// Creates the eventfds, but starts no thread yet.
    pub(crate) fn new() -> Result<Self, Errno> {
        let (done_fd, wake_fd) = (EventFd::new()?, EventFd::new()?);
        Ok(Self(Arc::new(WorkerThreads {
            state: Mutex::default(),
            work: Condvar::new(),
            isolated_work: Condvar::new(),
            done_fd,
            notifier: OnceLock::new(),
            wake_fd,
        })))
    }

    /// Makes the workers also signal this eventfd when calls end. Later calls of this function have
    /// no effect.
    pub(crate) fn set_notifier(&self, notifier: EventFd) {
        _ = self.0.notifier.set(notifier);
    }

    /// Returns a descriptor that becomes readable when calls end.
    pub(crate) fn done_fd(&self) -> Fd {
        // The driver that watches the descriptor owns the `Workers`, and drops them last or
        // together with its ring or epoll instance.
        fd_of(&self.0.done_fd)
    }

    /// Returns the eventfd that becomes readable when calls end. The caller may signal it for calls
    /// of its own.
    pub(crate) fn eventfd(&self) -> &EventFd {
        &self.0.done_fd
    }

    /// Queues a call, which has a group if it may hang.
    ///
    /// # Errors
    /// Returns the event of the job, with [`NO_THREAD`], if there is no thread and none can be
    /// started.
    pub(crate) fn submit(&self, job: FileJob, group: Option<u64>) -> Result<(), Event> {
        match (PendingCall::new(job, group.is_some()), group) {
            (Ok(call), _) => self.submit_pending(call),
            (Err(job), None) => self.submit_job(job),
            (Err(job), Some(group)) => self.submit_isolated(group, job),
        }
    }

    fn submit_job(&self, job: FileJob) -> Result<(), Event> {
        let (token, file) = (job.token(), job.buffered_read());
        let mut state = self.0.state();
        state.queue.push(job, file);
        if state.idle == 0 && state.needs_thread() {
            match self.start(WorkerThreads::run_jobs) {
                Ok(thread) => state.threads.push(thread),
                Err(errno) if state.threads.is_empty() => {
                    let job = state.queue.remove(token).expect("the call was queued above");
                    return Err(job.end(Err(errno)));
                }
                Err(_) => {}
            }
        }
        self.0.wake_worker(state);
        Ok(())
    }

    /// Queues a call that is made when its descriptor is ready.
    fn submit_pending(&self, call: PendingCall) -> Result<(), Event> {
        let mut state = self.0.state();
        if state.poll_thread.is_none() {
            match self.start(WorkerThreads::poll_pending) {
                Ok(thread) => state.poll_thread = Some(thread),
                Err(errno) => return Err(call.into_job().end(Err(errno))),
            }
        }
        state.pending.push(call);
        drop(state);
        self.0.wake_fd.signal();
        Ok(())
    }

    fn start(&self, main: fn(&WorkerThreads)) -> Result<JoinHandle<()>, Errno> {
        let shared = self.0.clone();
        let thread = thread::Builder::new().name("annulus-file".into()).stack_size(STACK_BYTES);
        thread.spawn(move || main(&shared)).map_err(|_| NO_THREAD)
    }

    /// Cancels a call that has not started. Returns false if no such call exists.
    pub(crate) fn cancel(&self, target: Token) -> bool {
        let mut state = self.0.state();
        if state.cancel_pending(target) {
            self.0.wake_fd.signal();
            return true;
        }
        let announced = state.announced.iter().position(|job| job.token() == target);
        let job = announced.and_then(|position| state.announced.remove(position));
        let job = job.or_else(|| state.queue.remove(target));
        let job = match job.or_else(|| state.isolated.remove_waiting(target)) {
            Some(job) => job,
            None => return false,
        };
        state.done.push(job.end(Err(Errno::CANCELED)));
        drop(state);
        self.0.notify_done();
        true
    }

    /// Makes [`done_fd`](Self::done_fd) unreadable, before events are taken. Edge-triggered epoll
    /// does not need this: it reports each signal, even if the descriptor is already readable.
    pub(crate) fn clear_signal(&self) {
        self.0.done_fd.clear();
    }

    /// Takes the events of calls that have ended.
    pub(crate) fn take_events(&self, events: &mut VecDeque<Event>) {
        let mut state = self.0.state();
        state.signalled = false;
        events.extend(state.done.drain(..));
    }
}

impl Drop for Workers {
    /// Ends the threads, and joins them if none is in a call, since a call cannot be interrupted.
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.closed = true;
        let threads =
            std::mem::take(&mut state.threads).into_iter().chain(state.poll_thread.take());
        let isolated = state.isolated.close();
        let idle = state.busy == 0
            && state.isolated.is_quiet()
            && !state.pending.iter().any(PendingCall::is_running);
        drop(state);
        self.0.work.notify_all();
        self.0.isolated_work.notify_all();
        self.0.wake_fd.signal();
        if idle {
            threads.chain(isolated).for_each(|thread| _ = thread.join());
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state();
        write!(f, "Workers({} threads, {} calls waiting)", state.threads.len(), state.queue.len())
    }
}

impl WorkerQueues {
    /// Takes the next call, and the rest of its group if it has one.
    fn take_jobs(&mut self) -> Option<(FileJob, Vec<FileJob>)> {
        match self.announced.pop_front() {
            Some(job) => Some((job, Vec::new())),
            None => self.queue.pop_group(),
        }
    }

    /// Returns true if the queued calls need another thread, and may have it.
    fn needs_thread(&self) -> bool {
        let awake = self.threads.len() - self.idle;
        let needed = self.busy + self.queue.threads();
        // The call that has just been queued does not count: a thread that ends its call takes it.
        awake < needed.min(allowed(self.queue.len().saturating_sub(1), awake))
    }
}

impl WorkerThreads {
    fn state(&self) -> MutexGuard<'_, WorkerQueues> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals that calls have ended.
    fn notify_done(&self) {
        self.done_fd.signal();
        self.notifier.get().into_iter().for_each(EventFd::signal);
    }

    fn run_jobs(&self) {
        let mut next = self.wait_for_job();
        while let Some(job) = next {
            let result = job.run();
            next = self.end_job(job.end(result)).or_else(|| self.wait_for_job());
        }
    }

    /// Ends a call, and returns the next one if one is queued. Tells the driver of the end, unless
    /// few calls have ended compared with those that wait for a thread, and the next one ends soon.
    fn end_job(&self, event: Event) -> Option<FileJob> {
        let mut state = self.state();
        state.done.push(event);
        let next = if state.closed { None } else { state.take_jobs() };
        state.busy -= usize::from(next.is_none());
        let waiting = state.queue.len() + state.announced.len();
        let waits = state.done.len() <= waiting.min(MAX_UNREPORTED_CALLS)
            && next.as_ref().is_some_and(|(job, _)| job.moves_bytes_at_offset());
        let signals = !waits && !std::mem::replace(&mut state.signalled, true);
        self.wake_worker(state);
        if signals {
            self.notify_done();
        }
        next.map(|(job, group)| self.announce(job, group))
    }

    fn wait_for_job(&self) -> Option<FileJob> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            if let Some((job, group)) = state.take_jobs() {
                state.busy += 1;
                self.wake_worker(state);
                return Some(self.announce(job, group));
            }
            state.idle += 1;
            while state.woken == 0 && !state.closed {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.woken = state.woken.saturating_sub(1);
        }
    }

    /// Wakes an idle thread if the queued calls need one.
    fn wake_worker(&self, mut state: MutexGuard<'_, WorkerQueues>) {
        let wakes = state.idle > 0 && state.queue.len() > 0 && state.needs_thread();
        if wakes {
            (state.idle, state.woken) = (state.idle - 1, state.woken + 1);
        }
        drop(state);
        if wakes {
            self.work.notify_one();
        }
    }

    /// Tells the kernel of all reads of a group, so that the device works on them at the same time,
    /// and returns the first one, to be made now. If this thread waits long for it, others make the
    /// rest.
    fn announce(&self, first: FileJob, rest: Vec<FileJob>) -> FileJob {
        if !rest.is_empty() {
            first.announce();
            rest.iter().for_each(FileJob::announce);
            self.state().announced.extend(rest);
        }
        first
    }
}

/// Returns the descriptor of an eventfd that [`WorkerThreads`] owns.
fn fd_of(eventfd: &EventFd) -> Fd {
    // SAFETY: the eventfd is open as long as `WorkerThreads` exists, and no watch or poll of the
    // eventfd outlives that.
    unsafe { Fd::from_raw(eventfd.as_fd().as_raw_fd()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::OpKind;
    use annulus_kernel::file::FileCall;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::FlockOperation;

    pub(super) fn token(slot: u32) -> Token {
        Token::new(OpKind::File, 1, slot)
    }

    /// Submits a call that cannot hang and uses memory and descriptors of the test.
    pub(super) fn submit(workers: &Workers, slot: u32, call: FileCall) {
        // SAFETY: each test keeps its buffers and files, and reads the buffers only after it has
        // waited for the events.
        let job = unsafe { FileJob::new(token(slot), call) };
        assert!(workers.submit(job, None).is_ok(), "no thread can be started");
    }

    pub(super) fn wait_for(workers: &Workers, count: usize) -> Vec<Event> {
        let mut events = VecDeque::new();
        while events.len() < count {
            poll(&mut [PollFd::new(&workers.0.done_fd, PollFlags::IN)], None).unwrap();
            workers.clear_signal();
            workers.take_events(&mut events);
        }
        events.into()
    }

    #[test]
    fn each_call_has_its_own_result() {
        let workers = Workers::new().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let mut bytes = [[0; 4]; 20];
        for (slot, bytes) in bytes.iter_mut().enumerate() {
            let (fd, buffer) = (file.as_raw_fd(), bytes.as_mut_ptr());
            let read = FileCall::Read { fd, buffer, len: 4, offset: 0, nowait: false };
            submit(&workers, slot as u32, read);
        }
        let mut events = wait_for(&workers, 20);
        events.sort_by_key(|event| event.token.slot());
        let slots: Vec<u32> = events.iter().map(|event| event.token.slot()).collect();
        assert_eq!(slots, (0..20).collect::<Vec<_>>());
        assert!(events.iter().all(|event| event.result == Ok(4) && !event.more));
        assert!(bytes.iter().all(|bytes| bytes == b"\x7fELF"));
        assert!(workers.0.state().threads.len() <= MAX_WORKER_THREADS);
    }

    #[test]
    fn reads_that_have_ended_are_reported_although_all_later_calls_wait() {
        const READS: u32 = 20;
        let workers = Workers::new().unwrap();
        let (held, wanted) = held_lock("reported");
        let lock = |slot| {
            submit(&workers, slot, FileCall::Lock { fd: wanted.as_raw_fd(), operation: 2 });
        };
        (0..USUAL_WORKER_THREADS as u32 - 1).for_each(lock);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let mut bytes = [[0; 4]; READS as usize];
        for (slot, bytes) in (100..).zip(&mut bytes) {
            let (fd, buffer) = (file.as_raw_fd(), bytes.as_mut_ptr());
            submit(&workers, slot, FileCall::Read { fd, buffer, len: 4, offset: 0, nowait: false });
        }
        (200..240).for_each(lock);
        let mut events = wait_for(&workers, READS as usize);
        events.sort_by_key(|event| event.token.slot());
        let slots: Vec<u32> = events.iter().map(|event| event.token.slot()).collect();
        assert_eq!(slots, (100..100 + READS).collect::<Vec<_>>());
        rustix::fs::flock(&held, FlockOperation::Unlock).unwrap();
        assert_eq!(
            wait_for(&workers, USUAL_WORKER_THREADS - 1 + 40).len(),
            USUAL_WORKER_THREADS + 39
        );
    }

    #[test]
    fn results_of_a_long_queue_are_reported_early() {
        let workers = Workers::new().unwrap();
        let buffer = std::ptr::null_mut();
        let call = FileCall::Read { fd: -1, buffer, len: 0, offset: 0, nowait: false };
        // SAFETY: no thread exists that could make the calls.
        let job = |slot| unsafe { FileJob::new(token(slot), call) };
        (0..1000).for_each(|slot| workers.0.state().queue.push(job(slot), None));
        workers.0.state().busy = 1;
        while !workers.0.state().signalled {
            assert!(workers.0.end_job(job(1000).end(Ok(0))).is_some(), "no call was left");
        }
        assert_eq!(workers.0.state().done.len(), MAX_UNREPORTED_CALLS + 1);
    }

    #[test]
    fn small_reads_of_a_file_are_taken_together() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let other = std::fs::File::open("/proc/self/exe").unwrap();
        let mut queue = JobQueue::default();
        let buffer = std::ptr::null_mut();
        let mut push = |file: &std::fs::File, len| {
            let call =
                FileCall::Read { fd: file.as_raw_fd(), buffer, len, offset: 0, nowait: false };
            // SAFETY: the call is not made.
            let job = unsafe { FileJob::new(token(1), call) };
            let in_group = job.buffered_read();
            queue.push(job, in_group);
        };
        (0..MAX_GROUP_READS + 3).for_each(|_| push(&file, 4096));
        (0..2).for_each(|_| push(&other, 4096));
        (0..2).for_each(|_| push(&file, 1 << 20));
        push(&file, 4096);
        assert_eq!(queue.threads(), 4);
        let groups: Vec<usize> =
            std::iter::from_fn(|| queue.pop_group()).map(|(_, rest)| rest.len() + 1).collect();
        assert_eq!(groups, [MAX_GROUP_READS, 3, 2, 1, 1, 1]);
        assert_eq!((queue.len(), queue.threads()), (0, 0));
    }

    #[test]
    fn an_announced_read_can_be_cancelled() {
        let workers = Workers::new().unwrap();
        let buffer = std::ptr::null_mut();
        let call = FileCall::Read { fd: -1, buffer, len: 1, offset: 0, nowait: false };
        // SAFETY: no thread exists that could make the call.
        workers.0.state().announced.push_back(unsafe { FileJob::new(token(1), call) });
        assert!(workers.cancel(token(1)));
        assert!(!workers.cancel(token(1)), "the read was cancelled twice");
        assert_eq!(wait_for(&workers, 1)[0].result, Err(Errno::CANCELED));
    }

    #[test]
    fn a_call_that_has_not_started_can_be_cancelled() {
        let workers = Workers::new().unwrap();
        // Calls that wait for a lock occupy every thread.
        let path = std::env::temp_dir().join(format!("annulus-workers-{}", std::process::id()));
        let held = std::fs::File::create(&path).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        let wanted = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let call = FileCall::Lock { fd: wanted.as_raw_fd(), operation: 2 };
        (0..=USUAL_WORKER_THREADS).for_each(|slot| submit(&workers, slot as u32, call));
        while workers.0.state().queue.len() > 1 {
            thread::yield_now();
        }
        let last = workers.0.state().queue.jobs[0].0.token();
        assert!(workers.cancel(last));
        assert!(!workers.cancel(last), "a call was cancelled twice");
        let cancelled = wait_for(&workers, 1);
        assert_eq!((cancelled[0].token, cancelled[0].result), (last, Err(Errno::CANCELED)));
        rustix::fs::flock(&held, FlockOperation::Unlock).unwrap();
        assert!(wait_for(&workers, USUAL_WORKER_THREADS).iter().all(|event| event.result == Ok(0)));
    }

    /// Submits a call that locks the given file, marked as a call that may hang.
    pub(super) fn submit_hanging(workers: &Workers, group: u64, slot: u32, lock: &std::fs::File) {
        let call = FileCall::Lock { fd: lock.as_raw_fd(), operation: 2 };
        // SAFETY: each test keeps its files open as long as calls may use them.
        let job = unsafe { FileJob::new(token(slot), call) };
        assert!(workers.submit(job, Some(group)).is_ok(), "no thread can be started");
    }

    /// Opens a file twice: the first returned handle holds its lock, and a lock call on the second
    /// waits.
    pub(super) fn held_lock(name: &str) -> (std::fs::File, std::fs::File) {
        let path = std::env::temp_dir().join(format!("annulus-{name}-{}", std::process::id()));
        let held = std::fs::File::create(&path).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        let wanted = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        (held, wanted)
    }

    #[test]
    fn hanging_calls_delay_no_other_group_and_no_local_file() {
        const HANGING_CALLS: u32 = 100;
        let workers = Workers::new().unwrap();
        let (held, wanted) = held_lock("isolated");
        (0..HANGING_CALLS).for_each(|slot| submit_hanging(&workers, 1, slot, &wanted));
        let free = std::fs::File::open("/proc/self/exe").unwrap();
        submit_hanging(&workers, 2, 1000, &free);
        assert_eq!(
            wait_for(&workers, 1)[0].token,
            token(1000),
            "the call of another group did not end"
        );
        submit(&workers, 1001, FileCall::Sync { fd: free.as_raw_fd(), data_only: true });
        assert_eq!(
            wait_for(&workers, 1)[0].token,
            token(1001),
            "the call on a local file did not end"
        );
        assert!(
            workers.cancel(token(HANGING_CALLS - 1)),
            "a call of the hanging group has started"
        );
        let cancelled = wait_for(&workers, 1)[0];
        assert_eq!(
            (cancelled.token, cancelled.result),
            (token(HANGING_CALLS - 1), Err(Errno::CANCELED))
        );
        rustix::fs::flock(&held, FlockOperation::Unlock).unwrap();
        assert!(
            wait_for(&workers, HANGING_CALLS as usize - 1)
                .iter()
                .all(|event| event.result == Ok(0))
        );
    }

    #[test]
    fn drop_does_not_wait_for_hanging_calls_and_closes_descriptors() {
        let (held, wanted) = held_lock("isolated-end");
        let workers = Workers::new().unwrap();
        (0..100).for_each(|slot| submit_hanging(&workers, 1, slot, &wanted));
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        // SAFETY: the descriptor has no other owner, and the workers close it.
        let writer = unsafe { Fd::from_raw(std::os::fd::IntoRawFd::into_raw_fd(writer)) };
        workers.close_isolated(2, writer);
        drop(workers);
        // A thread may still be about to lock this file.
        std::mem::forget(wanted);
        assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0), "the write end was not closed");
        rustix::fs::flock(&held, FlockOperation::Unlock).unwrap();
    }
}
