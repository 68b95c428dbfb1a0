//! Threads that make the calls which io_uring cannot: a plain system call that may wait holds up one of them, not the loop.
//!
//! They start when they are first needed, and only as many as have work. What they finish is told by an eventfd. What waits
//! for somebody, not for a device, is another thread's: see `lookout`.
#![allow(unsafe_code)]

mod lookout;

use crate::event::Event;
use crate::token::Token;
use annulus_kernel::Fd;
use annulus_kernel::file::FileCall;
use lookout::Errand;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Calls at once: as io_uring's own workers are capped, so are these.
const MOST: usize = 4;
/// They make system calls and nothing else.
const STACK: usize = 64 * 1024;

/// What a call ends with that needs a thread, if none can be started. No call on a file answers this by itself; what the system says
/// of threads (`EAGAIN`) could be mistaken for a call that would wait.
pub const NO_THREAD: Errno = Errno::USERS;

/// A call to make, and what to say of it.
#[derive(Clone, Copy)]
struct Job {
    token: Token,
    call: FileCall,
}

// SAFETY: the memory a call names is, until its event was taken, nobody's but the worker's: see `Workers::submit`.
unsafe impl Send for Job {}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    done: Vec<(Token, Result<u32, Errno>)>,
    threads: Vec<JoinHandle<()>>,
    /// Of the threads, those in a call.
    busy: usize,
    errands: Vec<Errand>,
    lookout: Option<JoinHandle<()>>,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    bell: OwnedFd,
    /// What wakes the lookout.
    news: OwnedFd,
}

/// The threads of one driver.
pub(crate) struct Workers(Arc<Shared>);

impl Workers {
    /// No thread yet.
    pub(crate) fn new() -> Result<Self, Errno> {
        let eventfd = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let (bell, news) = (eventfd()?, eventfd()?);
        Ok(Self(Arc::new(Shared { state: Mutex::default(), work: Condvar::new(), bell, news })))
    }

    /// What turns readable, edge by edge, when calls are done.
    pub(crate) fn bell(&self) -> Fd {
        // SAFETY: it is open as long as the workers, whom the driver holds.
        unsafe { Fd::from_raw(self.0.bell.as_raw_fd()) }
    }

    /// Has a call made.
    ///
    /// # Errors
    /// [`NO_THREAD`] if there is no thread, and none can be started: the call is not made.
    ///
    /// # Safety
    /// The memory that the call names must stay valid, unmoved and untouched until its event was taken, and its descriptors open.
    pub(crate) unsafe fn submit(&self, token: Token, call: FileCall) -> Result<(), Errno> {
        let job = Job { token, call };
        // SAFETY: the caller's promise, passed on.
        if let Some(errand) = unsafe { Errand::new(job) } {
            return self.send_on(errand);
        }
        let mut state = self.0.state();
        if state.jobs.len() + state.busy >= state.threads.len() && state.threads.len() < MOST {
            match self.start(Shared::work) {
                Ok(thread) => state.threads.push(thread),
                Err(errno) if state.threads.is_empty() => return Err(errno),
                Err(_) => {}
            }
        }
        state.jobs.push_back(job);
        drop(state);
        self.0.work.notify_one();
        Ok(())
    }

    /// Has a call made when its descriptor is ready.
    fn send_on(&self, errand: Errand) -> Result<(), Errno> {
        let mut state = self.0.state();
        if state.lookout.is_none() {
            state.lookout = Some(self.start(Shared::look_out)?);
        }
        state.errands.push(errand);
        drop(state);
        ring(&self.0.news);
        Ok(())
    }

    fn start(&self, life: fn(&Shared)) -> Result<JoinHandle<()>, Errno> {
        let shared = self.0.clone();
        let thread = thread::Builder::new().name("annulus-file".into()).stack_size(STACK);
        thread.spawn(move || life(&shared)).map_err(|_| NO_THREAD)
    }

    /// Takes a call back that has not begun; false where there is none.
    pub(crate) fn cancel(&self, target: Token) -> bool {
        let mut state = self.0.state();
        if state.cancel_errand(target) {
            // Lets go of the descriptor.
            ring(&self.0.news);
        } else if let Some(place) = state.jobs.iter().position(|job| job.token == target) {
            state.jobs.remove(place);
            state.done.push((target, Err(Errno::CANCELED)));
        } else {
            return false;
        }
        drop(state);
        self.0.ring();
        true
    }

    /// What was done since the last call.
    pub(crate) fn collect(&self, events: &mut VecDeque<Event>) {
        // It fails only where it has not rung.
        _ = rustix::io::read(&self.0.bell, &mut [0; 8]);
        let done = std::mem::take(&mut self.0.state().done);
        let event = |(token, result)| Event { token, result, more: false, buffer: None };
        events.extend(done.into_iter().map(event));
    }
}

impl Drop for Workers {
    /// The threads end. Where one is in a call, which nothing can hurry, they do so by themselves.
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.closed = true;
        let threads = std::mem::take(&mut state.threads).into_iter().chain(state.lookout.take());
        let idle = state.busy == 0 && !state.errands.iter().any(|errand| errand.under_way);
        drop(state);
        self.0.work.notify_all();
        ring(&self.0.news);
        if idle {
            threads.for_each(|thread| _ = thread.join());
        }
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state();
        write!(f, "Workers({} threads, {} calls waiting)", state.threads.len(), state.jobs.len())
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        ring(&self.bell);
    }

    /// A thread's life.
    fn work(&self) {
        while let Some(Job { token, call }) = self.next_job() {
            // SAFETY: the submitter keeps what the call names until the event was taken.
            let result = unsafe { make(&call) };
            let mut state = self.state();
            state.busy -= 1;
            state.done.push((token, result));
            drop(state);
            self.ring();
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                state.busy += 1;
                return Some(job);
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Wakes whoever waits for an eventfd.
fn ring(eventfd: &OwnedFd) {
    // It fails only where the counter is full: then it is ringing already.
    _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
}

/// Makes a call.
///
/// # Safety
/// As [`FileCall::call`].
unsafe fn make(call: &FileCall) -> Result<u32, Errno> {
    // SAFETY: the caller's promise, passed on.
    let answer = unsafe { call.call() };
    answer.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Kind;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::FlockOperation;

    pub(super) fn token(slot: u32) -> Token {
        Token::new(Kind::File, 1, slot)
    }

    pub(super) fn wait_for(workers: &Workers, count: usize) -> Vec<Event> {
        let mut events = VecDeque::new();
        while events.len() < count {
            poll(&mut [PollFd::new(&workers.0.bell, PollFlags::IN)], None).unwrap();
            workers.collect(&mut events);
        }
        events.into()
    }

    #[test]
    fn calls_come_back_with_their_answers() {
        let workers = Workers::new().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let mut bytes = [[0; 4]; 20];
        let calls: Vec<FileCall> = bytes
            .iter_mut()
            .map(|bytes| FileCall::Read {
                fd: file.as_raw_fd(),
                buffer: bytes.as_mut_ptr(),
                len: 4,
                offset: 0,
                nowait: false,
            })
            .collect();
        for (slot, call) in calls.iter().enumerate() {
            // SAFETY: the bytes outlive the wait below.
            unsafe { workers.submit(token(slot as u32), *call) }.unwrap();
        }
        let mut events = wait_for(&workers, calls.len());
        events.sort_by_key(|event| event.token.slot());
        let told: Vec<u32> = events.iter().map(|event| event.token.slot()).collect();
        assert_eq!(told, (0..20).collect::<Vec<_>>());
        assert!(events.iter().all(|event| event.result == Ok(4) && !event.more));
        assert!(bytes.iter().all(|bytes| bytes == b"\x7fELF"));
        assert!(workers.0.state().threads.len() <= MOST);
    }

    #[test]
    fn what_has_not_begun_can_be_taken_back() {
        let workers = Workers::new().unwrap();
        // As many waits for a lock keep every thread.
        let path = std::env::temp_dir().join(format!("annulus-workers-{}", std::process::id()));
        let held = std::fs::File::create(&path).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        let wanted = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        let call = FileCall::Lock { fd: wanted.as_raw_fd(), operation: 2 };
        for slot in 0..=MOST {
            // SAFETY: the call names no memory.
            unsafe { workers.submit(token(slot as u32), call) }.unwrap();
        }
        while workers.0.state().jobs.len() > 1 {
            thread::yield_now();
        }
        let last = token(workers.0.state().jobs[0].token.slot());
        assert!(workers.cancel(last));
        assert!(!workers.cancel(last), "only once");
        let cancelled = wait_for(&workers, 1);
        assert_eq!((cancelled[0].token, cancelled[0].result), (last, Err(Errno::CANCELED)));
        rustix::fs::flock(&held, FlockOperation::Unlock).unwrap();
        assert!(wait_for(&workers, MOST).iter().all(|event| event.result == Ok(0)));
    }
}
