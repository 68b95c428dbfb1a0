//! The part of a task that threads share, with loom's atomics: the reference count and the remote
//! flags. Loom tries every order of their steps that the memory model allows, and reports when
//! another thread uses a cell of the owner at the same time.
#![allow(unsafe_code)]

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

mod atomic {
    pub(crate) use loom::cell::Cell;
    pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU8, AtomicUsize, Ordering, fence};
}

#[path = "../src/tasks/refs.rs"]
mod refs;

use atomic::{AtomicUsize, Ordering};
use refs::{Refs, RemoteFlags};

/// A task's reference count, and a cell that represents the task's memory to loom.
struct Task {
    refs: Refs,
    memory: UnsafeCell<u32>,
    /// A reference on its way to the owner.
    sent: Mutex<bool>,
    freed: AtomicUsize,
}

// SAFETY: only the thread that passes `owner` uses the cell in the count, which loom checks here.
unsafe impl Sync for Task {}
// SAFETY: its fields do not depend on the thread that created it.
unsafe impl Send for Task {}

impl Task {
    fn new(drawn: i64) -> Arc<Self> {
        Arc::new(Self {
            refs: Refs::new(drawn),
            memory: UnsafeCell::new(0),
            sent: Mutex::new(false),
            freed: AtomicUsize::new(0),
        })
    }

    fn add(&self, owner: bool) {
        self.memory.with(|_| self.refs.add(owner));
    }

    fn release(&self, owner: bool) {
        let last = self.memory.with(|_| self.refs.release(owner));
        if last {
            // Represents freeing the memory: loom fails if another thread can still use it.
            self.memory.with_mut(|_| ());
            self.freed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Acts as another thread that has a reference.
    fn use_remotely(&self) {
        self.add(false);
        self.release(false);
        self.release(false);
    }

    /// Acts as another thread that sends a copy of its reference to the owner.
    fn send_to_owner(&self) {
        self.add(false);
        *self.sent.lock().unwrap() = true;
        self.release(false);
    }

    /// Acts as the owner, which drops the reference that was sent, if any.
    fn receive(&self) {
        let sent = std::mem::take(&mut *self.sent.lock().unwrap());
        if sent {
            self.release(true);
        }
    }

    /// Acts as the owner, which holds one reference.
    fn own(&self) {
        self.add(true);
        self.release(true);
        self.receive();
        assert!(!self.refs.is_returned());
        self.refs.return_reserve();
        assert!(self.refs.is_returned());
        self.add(true);
        self.receive();
        self.release(true);
        self.release(true);
    }
}

/// Runs the owner and these other threads, each with a reference that the owner has drawn. At the
/// end, the task must have been freed once.
fn model(others: &'static [fn(&Task)], preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let task = Task::new(1 + others.len() as i64);
        let threads: Vec<_> = others
            .iter()
            .map(|other| {
                let task = task.clone();
                thread::spawn(move || other(&task))
            })
            .collect();
        task.own();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        task.receive();
        assert_eq!(task.freed.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_remote_reference_counts_before_and_after_the_task_is_done() {
    model(&[Task::use_remotely], 6);
}

#[test]
fn the_owner_drops_references_created_by_other_threads() {
    model(&[Task::send_to_owner], 6);
}

#[test]
fn the_last_reference_frees_on_any_thread() {
    model(&[Task::use_remotely, Task::send_to_owner], 2);
}

/// A task's remote flags, and the inbox.
struct Remote {
    flags: RemoteFlags,
    /// The work for which the task is woken. Not protected by a lock: the flags alone must make it
    /// visible.
    news: AtomicUsize,
    inbox: Mutex<usize>,
    pushed: Condvar,
}

impl Remote {
    fn wake(&self) {
        self.news.fetch_add(1, Ordering::Relaxed);
        if self.flags.mark_in_inbox() {
            *self.inbox.lock().unwrap() += 1;
            self.pushed.notify_one();
        }
    }

    /// Runs the task whenever it leaves the inbox, until it has seen this many wakes. Loom reports
    /// an endless wait.
    fn run_until(&self, news: usize) {
        while self.news_after_a_wake() < news {}
    }

    fn news_after_a_wake(&self) -> usize {
        let mut inbox = self.inbox.lock().unwrap();
        while *inbox == 0 {
            inbox = self.pushed.wait(inbox).unwrap();
        }
        assert_eq!(std::mem::take(&mut *inbox), 1, "the inbox does not have the task exactly once");
        drop(inbox);
        self.flags.leave_inbox();
        self.news.load(Ordering::Relaxed)
    }
}

#[test]
fn no_wake_is_lost() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let remote = Arc::new(Remote {
            flags: RemoteFlags::new(),
            news: AtomicUsize::new(0),
            inbox: Mutex::new(0),
            pushed: Condvar::new(),
        });
        let wakers = [remote.clone(), remote.clone()];
        let threads = wakers.map(|remote| thread::spawn(move || remote.wake()));
        remote.run_until(2);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn an_abort_is_visible_once_the_task_leaves_the_inbox() {
    loom::model(|| {
        let flags = RemoteFlags::new();
        assert!(!flags.is_aborted() && flags.mark_in_inbox());
        flags.abort();
        assert!(!flags.mark_in_inbox(), "the task entered the inbox twice");
        flags.leave_inbox();
        assert!(flags.is_aborted() && flags.mark_in_inbox());
    });
}
