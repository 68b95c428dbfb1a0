//! What threads share of a task, with loom's atomics in place of the real ones: how many hold it, and who has called it.
//! Every order of their steps that the memory model allows is tried; loom also reports a cell of home's own that somebody
//! else touches at the same time.
#![allow(unsafe_code)]

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

mod atomic {
    pub(crate) use loom::cell::Cell;
    pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU8, AtomicUsize, Ordering, fence};
}

#[path = "../src/task/refs.rs"]
mod refs;
#[path = "../src/task/remote_flags.rs"]
mod remote_flags;

use atomic::{AtomicUsize, Ordering};
use refs::Refs;
use remote_flags::Calls;

/// A task's count, and in place of its memory something that loom watches.
struct Task {
    refs: Refs,
    memory: UnsafeCell<u32>,
    /// A reference on its way home.
    parcel: Mutex<bool>,
    freed: AtomicUsize,
}

// SAFETY: the cell in the count is touched by the thread that passes `home` only, which is what loom checks here.
unsafe impl Sync for Task {}
// SAFETY: as above.
unsafe impl Send for Task {}

impl Task {
    fn new(drawn: i64) -> Arc<Self> {
        Arc::new(Self {
            refs: Refs::new(drawn),
            memory: UnsafeCell::new(0),
            parcel: Mutex::new(false),
            freed: AtomicUsize::new(0),
        })
    }

    fn add(&self, home: bool) {
        self.memory.with(|_| self.refs.add(home));
    }

    fn release(&self, home: bool) {
        let last = self.memory.with(|_| self.refs.release(home));
        if last {
            // Freeing: loom objects where anybody could still look.
            self.memory.with_mut(|_| ());
            self.freed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Another thread, with a reference of its own.
    fn visit(&self) {
        self.add(false);
        self.release(false);
        self.release(false);
    }

    /// Another thread, that sends a copy home.
    fn send_home(&self) {
        self.add(false);
        *self.parcel.lock().unwrap() = true;
        self.release(false);
    }

    /// Home drops what was sent, if anything was.
    fn receive(&self) {
        let sent = std::mem::take(&mut *self.parcel.lock().unwrap());
        if sent {
            self.release(true);
        }
    }

    /// The task's life at home, which holds one reference.
    fn live(&self) {
        self.add(true);
        self.release(true);
        self.receive();
        self.refs.settle();
        self.add(true);
        self.receive();
        self.release(true);
        self.release(true);
    }
}

/// Runs others beside home, each with a reference that home has drawn; in the end the task was freed once.
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
        task.live();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        task.receive();
        assert_eq!(task.freed.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_visitor_is_counted_before_and_after_the_task_is_over() {
    model(&[Task::visit], 6);
}

#[test]
fn what_others_have_made_is_dropped_at_home() {
    model(&[Task::send_home], 6);
}

#[test]
fn who_is_last_frees_whoever_it_is() {
    model(&[Task::visit, Task::send_home], 2);
}

/// A task's calls, and the inbox.
struct Called {
    calls: Calls,
    /// What the calls are about. No lock: the calls alone must make it seen.
    news: AtomicUsize,
    inbox: Mutex<usize>,
    pushed: Condvar,
}

impl Called {
    fn call(&self) {
        self.news.fetch_add(1, Ordering::Relaxed);
        if self.calls.call() {
            *self.inbox.lock().unwrap() += 1;
            self.pushed.notify_one();
        }
    }

    /// Runs the task whenever it comes out of the inbox, until it has seen so much. Loom reports a wait without end.
    fn run_until(&self, news: usize) {
        while self.news_after_a_call() < news {}
    }

    fn news_after_a_call(&self) -> usize {
        let mut inbox = self.inbox.lock().unwrap();
        while *inbox == 0 {
            inbox = self.pushed.wait(inbox).unwrap();
        }
        assert_eq!(std::mem::take(&mut *inbox), 1, "it lies there once");
        drop(inbox);
        self.calls.answer();
        self.news.load(Ordering::Relaxed)
    }
}

#[test]
fn no_call_is_lost() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let called = Arc::new(Called {
            calls: Calls::new(),
            news: AtomicUsize::new(0),
            inbox: Mutex::new(0),
            pushed: Condvar::new(),
        });
        let callers = [called.clone(), called.clone()];
        let threads = callers.map(|called| thread::spawn(move || called.call()));
        called.run_until(2);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn an_abort_is_seen_by_who_answers() {
    loom::model(|| {
        let calls = Calls::new();
        assert!(!calls.is_aborted() && calls.call());
        calls.abort();
        assert!(!calls.call(), "it lies in the inbox already");
        calls.answer();
        assert!(calls.is_aborted() && calls.call());
    });
}
