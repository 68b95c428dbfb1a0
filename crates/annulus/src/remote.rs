//! What other threads may touch of a runtime: its inbox and its alarm.

use async_task::Runnable;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tasks woken from elsewhere, and the way to wake a sleeping loop.
///
/// Who wakes puts the task in the inbox, raises `pending`, and then looks at `parked`; who sleeps raises `parked`, and
/// then looks at `pending`. All four are sequentially consistent, so at least one side sees the other: no wake is lost,
/// and a loop that is awake costs its wakers no system call.
pub(crate) struct Remote {
    inbox: Mutex<Inbox>,
    pending: AtomicBool,
    parked: AtomicBool,
    stopped: AtomicBool,
    alarm: Option<OwnedFd>,
}

#[derive(Default)]
struct Inbox {
    tasks: Vec<Runnable>,
    /// Nothing may be spawned any more.
    closed: bool,
    /// Every task was dropped; only what was never polled can still arrive.
    finished: bool,
}

impl Remote {
    /// With an alarm where the kernel is a real one; a simulated one has no other threads.
    pub(crate) fn new(real: bool) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let alarm = if real { Some(eventfd(0, flags)?) } else { None };
        Ok(Self {
            inbox: Mutex::default(),
            pending: AtomicBool::new(false),
            parked: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            alarm,
        })
    }

    /// The descriptor that turns readable when the sleeping loop is wanted.
    pub(crate) fn alarm(&self) -> Option<RawFd> {
        self.alarm.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Puts a task in the inbox.
    pub(crate) fn push(&self, task: Runnable) {
        let mut inbox = self.inbox();
        if inbox.finished {
            drop(inbox);
            return drop(task);
        }
        inbox.tasks.push(task);
        drop(inbox);
        self.ring_the_bell();
    }

    /// Makes the loop look around.
    pub(crate) fn ring_the_bell(&self) {
        self.pending.store(true, Ordering::SeqCst);
        if self.parked.swap(false, Ordering::SeqCst)
            && let Some(alarm) = &self.alarm
        {
            // It fails only where the counter is full: then the alarm is ringing already.
            _ = rustix::io::write(alarm, &1u64.to_ne_bytes());
        }
    }

    /// Asks the loop to end.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.ring_the_bell();
    }

    /// Whether the loop was asked to end since the last call.
    #[inline]
    pub(crate) fn take_stop(&self) -> bool {
        // Acquire pairs with the release in `stop`.
        self.stopped.load(Ordering::Relaxed) && self.stopped.swap(false, Ordering::Acquire)
    }

    /// The loop is about to sleep. False where there is something to do first.
    #[inline]
    pub(crate) fn park(&self) -> bool {
        self.parked.store(true, Ordering::SeqCst);
        let may_sleep = !self.pending.load(Ordering::SeqCst);
        if !may_sleep {
            self.parked.store(false, Ordering::Relaxed);
        }
        may_sleep
    }

    /// The loop is awake again.
    #[inline]
    pub(crate) fn unpark(&self) {
        self.parked.store(false, Ordering::Relaxed);
    }

    /// Takes what others put in.
    #[inline]
    pub(crate) fn take(&self) -> Vec<Runnable> {
        if !self.pending.load(Ordering::Relaxed) {
            return Vec::new();
        }
        // A swap, so that it also sees what was done before the bell was rung.
        self.pending.swap(false, Ordering::SeqCst);
        std::mem::take(&mut self.inbox().tasks)
    }

    /// No more tasks may be spawned from elsewhere. Wakes still arrive, so that every task can be dropped at home.
    pub(crate) fn close(&self) {
        self.inbox().closed = true;
    }

    /// No more tasks are taken in; returns the last ones.
    pub(crate) fn finish(&self) -> Vec<Runnable> {
        let mut inbox = self.inbox();
        inbox.finished = true;
        std::mem::take(&mut inbox.tasks)
    }

    /// Whether [`close`](Self::close) was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.inbox().closed
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
