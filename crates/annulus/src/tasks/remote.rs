//! The part of a runtime that other threads use: its inbox, and the descriptor that wakes its loop.

mod wake_state;

use super::run_queue::is_owner;
use crate::fork_guard::{self, ForkGuard};
use crate::memory::MemoryLimit;
use crate::tasks::TaskRef;
#[cfg(feature = "sim")]
use crate::tasks::panic_message;
use crate::unwind::{Panic, dispose};
use annulus_kernel::{EventFd, named};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::Location;
#[cfg(feature = "sim")]
use std::sync::OnceLock;
use std::sync::atomic::{self, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::thread::{self, ThreadId};
use wake_state::WakeState;

/// Tasks woken by other threads, and the means to wake a sleeping loop. A task is put into the
/// inbox, and then the loop is woken.
pub(crate) struct Remote {
    /// Tasks that the loop takes in its next turn.
    inbox: Mutex<Inbox>,
    /// Whether a wake must end the loop's sleep.
    wake_state: WakeState,
    /// Set when the loop must end.
    stopped: AtomicBool,
    /// An eventfd that the loop polls. `None` on a simulated kernel.
    wake_fd: Option<EventFd>,
    /// Detects a forked child, where no loop takes the tasks. `None` on a simulated kernel.
    guard: Option<ForkGuard>,
    /// The thread that has built the runtime, which is the only one that can run it.
    owner: ThreadId,
    /// Number of wakes by other threads.
    remote_wakes: AtomicU64,
    /// Number of system calls made to end the loop's sleep.
    wakeups: AtomicU64,
    /// Number of open streams of the runtime, as of the last turn.
    streams: AtomicUsize,
    /// The memory limit of the runtime, for its handles.
    memory: Option<MemoryLimit>,
    /// Panics of tasks without a join handle, which make a simulation fail.
    #[cfg(feature = "sim")]
    lost_panics: LostPanics,
}

#[derive(Default)]
struct Inbox {
    tasks: Vec<TaskRef>,
    /// Whether spawning is refused.
    closed: bool,
    /// Whether every task has been dropped. Only tasks that were never polled can still arrive.
    finished: bool,
}

impl Remote {
    /// Creates an inbox, with a descriptor that wakes the loop if the kernel is `real`. A simulated
    /// kernel has no other threads.
    pub(crate) fn new(real: bool, memory: Option<MemoryLimit>) -> io::Result<Self> {
        let wake_fd = real.then(EventFd::new).transpose().map_err(named("eventfd2"))?;
        let guard = real.then(ForkGuard::new).transpose()?;
        Ok(Self {
            inbox: Mutex::default(),
            wake_state: WakeState::new(),
            stopped: AtomicBool::new(false),
            wake_fd,
            guard,
            owner: thread::current().id(),
            remote_wakes: AtomicU64::new(0),
            wakeups: AtomicU64::new(0),
            streams: AtomicUsize::new(0),
            memory,
            #[cfg(feature = "sim")]
            lost_panics: Default::default(),
        })
    }

    /// Returns the descriptor that becomes readable when the sleeping loop is woken.
    pub(crate) fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.wake_fd.as_ref().map(AsFd::as_fd)
    }

    /// Puts a task in the inbox.
    ///
    /// # Errors
    /// Returns the task if the runtime has ended.
    pub(crate) fn push(&self, task: TaskRef) -> Result<(), TaskRef> {
        let mut inbox = self.inbox();
        if inbox.finished {
            return Err(task);
        }
        inbox.tasks.push(task);
        drop(inbox);
        self.wake();
        Ok(())
    }

    /// Makes the loop process its inbox, and counts this as a wake by another thread.
    pub(crate) fn wake(&self) {
        self.remote_wakes.fetch_add(1, Ordering::Relaxed);
        self.wake_loop();
    }

    /// Makes the loop run another turn.
    pub(crate) fn wake_loop(&self) {
        if self.wake_state.wake()
            && let Some(wake_fd) = &self.wake_fd
        {
            self.wakeups.fetch_add(1, Ordering::Relaxed);
            wake_fd.signal();
        }
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake();
    }

    /// Records the panic of a task that was spawned at `spawned_at` and has no join handle. The
    /// panic hook has already reported it. If lost panics are kept, the loop ends.
    #[cold]
    pub(crate) fn record_unhandled_panic(
        &self,
        panic: Panic,
        spawned_at: &'static Location<'static>,
    ) {
        #[cfg(feature = "sim")]
        if self.lost_panics.note(&panic, spawned_at) {
            self.stop();
        }
        #[cfg(not(feature = "sim"))]
        let _ = spawned_at;
        dispose(panic);
    }

    /// From now on, the first panic of a task without a join handle is kept, and every such panic
    /// ends the loop.
    #[cfg(feature = "sim")]
    pub(crate) fn keep_lost_panics(&self) {
        self.lost_panics.keep();
    }

    #[cfg(feature = "sim")]
    pub(crate) fn lost_panic(&self) -> Option<&LostPanic> {
        self.lost_panics.first()
    }

    /// Returns the number of wakes by other threads, and the number of system calls they took.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.remote_wakes.load(Ordering::Relaxed), self.wakeups.load(Ordering::Relaxed))
    }

    /// Publishes the number of open streams for other threads. Only the loop calls this. It costs a
    /// load, and a store if the number has changed.
    #[inline]
    pub(crate) fn publish_streams(&self, count: usize) {
        if self.streams.load(Ordering::Relaxed) != count {
            self.streams.store(count, Ordering::Relaxed);
        }
    }

    /// Returns the number of open streams that the loop published last.
    pub(crate) fn streams(&self) -> usize {
        self.streams.load(Ordering::Relaxed)
    }

    pub(crate) fn memory_limit(&self) -> Option<&MemoryLimit> {
        self.memory.as_ref()
    }

    /// Returns true if the loop has been stopped since the last call.
    #[inline]
    pub(crate) fn take_stop(&self) -> bool {
        // Acquire pairs with the release in `stop`.
        self.stopped.load(Ordering::Relaxed) && self.stopped.swap(false, Ordering::Acquire)
    }

    /// Records that the loop is about to sleep. Returns false if there was a wake that the loop
    /// must handle first.
    #[inline]
    pub(crate) fn park(&self) -> bool {
        self.wake_state.park()
    }

    /// Records that the loop is awake again.
    #[inline]
    pub(crate) fn unpark(&self) {
        self.wake_state.unpark();
    }

    /// Takes the tasks from the inbox, if there was a wake since the last call.
    #[inline]
    pub(crate) fn take(&self) -> Vec<TaskRef> {
        if self.wake_state.take() { std::mem::take(&mut self.inbox().tasks) } else { Vec::new() }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.inbox().tasks.len()
    }

    /// Refuses tasks spawned by other threads from now on. Wakes still arrive, so that every task
    /// can be dropped on its own thread.
    pub(crate) fn close(&self) {
        self.inbox().closed = true;
    }

    /// Stops taking in tasks, and returns the last ones.
    pub(crate) fn finish(&self) -> Vec<TaskRef> {
        let mut inbox = self.inbox();
        inbox.finished = true;
        std::mem::take(&mut inbox.tasks)
    }

    /// Returns an error if no task can be spawned from other threads.
    ///
    /// # Errors
    /// In a forked child, and after the runtime's end.
    pub(crate) fn check_open(&self) -> io::Result<()> {
        // First, because another thread may have held the lock when the process was forked.
        if !self.in_owner_process() {
            return Err(fork_guard::forked());
        }
        if self.inbox().closed {
            return Err(io::Error::other("the runtime has ended; nothing can be spawned on it"));
        }
        Ok(())
    }

    /// Returns true on the thread that has built the runtime.
    pub(crate) fn on_owner_thread(&self) -> bool {
        self.owner == thread::current().id()
    }

    /// Returns false in a forked child.
    pub(crate) fn in_owner_process(&self) -> bool {
        self.guard.as_ref().is_none_or(ForkGuard::in_owner_process)
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A panic of a task without a join handle.
#[cfg(feature = "sim")]
pub(crate) struct LostPanic {
    pub(crate) message: String,
    pub(crate) spawned_at: &'static Location<'static>,
}

/// The panics of tasks without a join handle. A simulation keeps the first one, and fails with it.
#[cfg(feature = "sim")]
#[derive(Default)]
pub(crate) struct LostPanics {
    are_kept: AtomicBool,
    first: OnceLock<LostPanic>,
}

#[cfg(feature = "sim")]
impl LostPanics {
    /// Keeps the first panic from now on.
    pub(crate) fn keep(&self) {
        self.are_kept.store(true, Ordering::Relaxed);
    }

    /// Records a panic. Returns true if panics are kept.
    pub(crate) fn note(&self, panic: &Panic, spawned_at: &'static Location<'static>) -> bool {
        let are_kept = self.are_kept.load(Ordering::Relaxed);
        if are_kept {
            let message = panic_message(panic).to_owned();
            _ = self.first.set(LostPanic { message, spawned_at });
        }
        are_kept
    }

    pub(crate) fn first(&self) -> Option<&LostPanic> {
        self.first.get()
    }
}

/// The waker of the root future, which `block_on` runs. A wake sets a flag, and wakes the loop
/// through the runtime's inbox.
pub(crate) struct RootWaker {
    woken: AtomicBool,
    remote: Arc<Remote>,
}

impl RootWaker {
    /// Creates a waker that starts woken, so that the future is polled once.
    pub(crate) fn new(remote: Arc<Remote>) -> Self {
        Self { woken: AtomicBool::new(true), remote }
    }

    /// Returns true if the future has been woken since the last call.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        // Acquire pairs with the release in `wake`: the poll sees what was done before the wake.
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::Acquire)
    }

    /// Returns true if the future has been woken and not polled since.
    #[inline]
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Relaxed)
    }
}

impl Wake for RootWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        // On the owner's thread this keeps the loop from sleeping at the end of the turn.
        match is_owner(&self.remote) {
            true => self.remote.wake_loop(),
            false => self.remote.wake(),
        }
    }
}
