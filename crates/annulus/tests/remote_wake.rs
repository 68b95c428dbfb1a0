//! The state by which a sleeping loop is woken, with loom's atomics instead of the real ones. Loom
//! tries every order of its steps that the memory model allows.

use loom::sync::atomic::{self, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

#[path = "../src/tasks/remote/wake_state.rs"]
mod wake_state;

use wake_state::WakeState;

/// Like `Remote`: an inbox, a wake state, and a counter that can be waited for instead of the
/// eventfd.
struct Remote {
    /// Number of tasks pushed. Not protected by a lock: the wake state alone must make it visible.
    inbox: AtomicUsize,
    state: WakeState,
    wake_fd: Mutex<usize>,
    written: Condvar,
}

impl Remote {
    fn new() -> Self {
        Self {
            inbox: AtomicUsize::new(0),
            state: WakeState::new(),
            wake_fd: Mutex::new(0),
            written: Condvar::new(),
        }
    }

    /// Does what a waker does: pushes a task, and wakes the loop if it sleeps.
    fn push(&self) {
        self.inbox.fetch_add(1, Ordering::Relaxed);
        if self.state.wake() {
            *self.wake_fd.lock().unwrap() += 1;
            self.written.notify_one();
        }
    }

    /// The sleep of the loop, which only a write ends. Loom reports an endless sleep.
    fn sleep(&self) {
        let mut wake_fd = self.wake_fd.lock().unwrap();
        while *wake_fd == 0 {
            wake_fd = self.written.wait(wake_fd).unwrap();
        }
        *wake_fd = 0;
    }

    /// The loop: runs turns until it has seen this many tasks. It checks the inbox once for each
    /// wake that it takes.
    fn turn_until(&self, tasks: usize) {
        let mut seen = 0;
        while seen < tasks {
            if self.state.take() {
                seen = self.inbox.load(Ordering::Relaxed);
            } else if self.state.park() {
                self.sleep();
                self.state.unpark();
            }
        }
    }
}

/// Tries every order with at most this many preemptions. Trying all orders takes minutes even for a
/// short run.
fn model(wakers: usize, pushes: usize, preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let remote = Arc::new(Remote::new());
        let threads: Vec<_> = (0..wakers)
            .map(|_| {
                let remote = remote.clone();
                thread::spawn(move || (0..pushes).for_each(|_| remote.push()))
            })
            .collect();
        remote.turn_until(wakers * pushes);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn no_wake_is_lost() {
    model(1, 1, 8);
}

#[test]
fn no_wake_is_lost_after_an_earlier_one() {
    model(1, 2, 4);
}

#[test]
fn no_wake_is_lost_between_two_wakers() {
    model(2, 1, 2);
}

/// Waking a loop that is awake takes no system call, and waking a sleeping one takes one.
#[test]
fn only_a_sleeping_loop_is_woken_and_only_once() {
    loom::model(|| {
        let state = WakeState::new();
        assert!(!state.wake(), "a wake of an awake loop needs a system call");
        assert!(!state.park(), "the loop parked despite a wake");
        assert!(!state.wake(), "a wake of an awake loop needs a system call");
        assert!(state.take() && !state.take());
        assert!(state.park());
        assert!(state.park(), "the loop cannot park again after a failed sleep");
        assert!(state.wake() && !state.wake(), "two wakes did not need exactly one system call");
        state.unpark();
        assert!(state.take());
    });
}
