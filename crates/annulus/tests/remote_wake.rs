//! The bell that wakes a sleeping loop, with loom's atomics in place of the real ones: every order of its steps that the
//! memory model allows is tried.

use loom::sync::atomic::{self, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

#[path = "../src/runtime/remote/wake_state.rs"]
mod wake_state;

use wake_state::Bell;

/// As `Remote`: an inbox, a bell, and in place of the eventfd something that can be waited for.
struct Remote {
    /// How many tasks were put in. No lock: the bell alone must make it seen.
    inbox: AtomicUsize,
    bell: Bell,
    alarm: Mutex<usize>,
    rings: Condvar,
}

impl Remote {
    fn new() -> Self {
        Self {
            inbox: AtomicUsize::new(0),
            bell: Bell::new(),
            alarm: Mutex::new(0),
            rings: Condvar::new(),
        }
    }

    /// What a waker does.
    fn push(&self) {
        self.inbox.fetch_add(1, Ordering::Relaxed);
        if self.bell.ring() {
            *self.alarm.lock().unwrap() += 1;
            self.rings.notify_one();
        }
    }

    /// The loop's sleep, which only an alarm ends. Loom reports a sleep without end.
    fn sleep(&self) {
        let mut alarm = self.alarm.lock().unwrap();
        while *alarm == 0 {
            alarm = self.rings.wait(alarm).unwrap();
        }
        *alarm = 0;
    }

    /// The loop: turns until it has seen so many tasks. Whoever has heard the bell looks into the inbox once.
    fn turn_until(&self, tasks: usize) {
        let mut seen = 0;
        while seen < tasks {
            if self.bell.heard() {
                seen = self.inbox.load(Ordering::Relaxed);
            } else if self.bell.park() {
                self.sleep();
                self.bell.unpark();
            }
        }
    }
}

/// Tries every order with at most so many preemptions: all there are of a short run take minutes.
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
fn no_wake_is_lost_by_the_one_before() {
    model(1, 2, 4);
}

#[test]
fn no_wake_is_lost_between_two_wakers() {
    model(2, 1, 2);
}

/// A loop that is awake costs its wakers no alarm, and a sleeping one costs one.
#[test]
fn only_a_sleeper_is_woken_and_only_once() {
    loom::model(|| {
        let bell = Bell::new();
        assert!(!bell.ring(), "the loop is awake");
        assert!(!bell.park(), "the bell was rung");
        assert!(!bell.ring(), "the loop is awake again");
        assert!(bell.heard() && !bell.heard());
        assert!(bell.park());
        assert!(bell.park(), "the sleep failed, and is tried again");
        assert!(bell.ring() && !bell.ring(), "one alarm is enough");
        bell.unpark();
        assert!(bell.heard());
    });
}
