//! A channel's values and waiting tasks, with loom's lock instead of the real one. Loom tries every
//! order of their steps that the memory model allows. A lost wake leads to an endless wait, which
//! loom reports.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::task::{Context, Poll, Wake, Waker};

mod sync {
    pub(crate) use loom::sync::{Mutex, MutexGuard};
}

/// Loom reports failures by panicking, so no panic is caught here.
mod unwind {
    use std::task::Waker;

    pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn dispose_each<T>(values: impl IntoIterator<Item = T>) {
        values.into_iter().for_each(drop);
    }
}

/// Replaces the check of whether a waker's task is done. No waker here is one of a task.
mod tasks {
    pub(crate) fn is_done(_: &std::task::Waker) -> Option<bool> {
        None
    }
}

#[allow(dead_code, reason = "not everything is modelled")]
#[path = "../src/shards/channel/queue.rs"]
mod queue;

#[allow(dead_code, reason = "a channel needs only some of it")]
#[path = "../src/waiters.rs"]
mod waiters;

use queue::ChannelQueue;

/// A thread that sleeps until it is woken.
struct Sleeper {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Sleeper {
    fn wake(self: std::sync::Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

impl Sleeper {
    fn sleep(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.changed.wait(woken).unwrap();
        }
        *woken = false;
    }
}

/// Polls until ready, and sleeps in between.
fn wait_for<R>(mut poll: impl FnMut(&Context<'_>) -> Poll<R>) -> R {
    let sleeper =
        std::sync::Arc::new(Sleeper { woken: Mutex::new(false), changed: Condvar::new() });
    let waker = Waker::from(sleeper.clone());
    let cx = Context::from_waker(&waker);
    loop {
        match poll(&cx) {
            Poll::Ready(value) => return value,
            Poll::Pending => sleeper.sleep(),
        }
    }
}

/// Sends a value. Returns false if the receiver is gone.
fn send(line: &ChannelQueue<u32>, value: u32) -> bool {
    let (mut value, mut id) = (Some(value), None);
    wait_for(|cx| line.poll_push(&mut value, &mut id, cx));
    value.is_none()
}

fn receive(line: &ChannelQueue<u32>) -> Option<u32> {
    wait_for(|cx| line.poll_pop(cx))
}

/// Starts to send and gives up. The receiver may wake the sender in between.
fn give_up(line: &ChannelQueue<u32>) -> bool {
    let (mut value, mut id) = (Some(9), None);
    let cx = Context::from_waker(Waker::noop());
    let sent = line.poll_push(&mut value, &mut id, &cx).is_ready();
    line.leave(&mut id);
    sent
}

/// Starts to send and is forgotten. Its value must never arrive.
fn forget(line: &ChannelQueue<u32>) -> bool {
    let (mut value, mut id) = (Some(9), None);
    line.poll_push(&mut value, &mut id, &Context::from_waker(Waker::noop())).is_ready()
}

/// Tries every order with at most this many preemptions. Trying all orders takes minutes even for a
/// short run.
fn model(preemptions: usize, run: impl Fn(Arc<ChannelQueue<u32>>) + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    // Room for one value: the second sender waits.
    model.check(move || run(Arc::new(ChannelQueue::new(1))));
}

#[test]
fn every_waiting_sender_sends() {
    model(3, |line| {
        let senders = [1, 2].map(|value| {
            let line = line.clone();
            thread::spawn(move || assert!(send(&line, value)))
        });
        let got = [receive(&line).unwrap(), receive(&line).unwrap()];
        assert_eq!(got.iter().sum::<u32>(), 3);
        senders.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn dropped_waiter_wakes_the_next_one() {
    model(3, |line| {
        assert!(send(&line, 0));
        let steady = thread::spawn({
            let line = line.clone();
            move || assert!(send(&line, 1))
        });
        let fickle = thread::spawn({
            let line = line.clone();
            move || give_up(&line)
        });
        let mut got = vec![receive(&line).unwrap(), receive(&line).unwrap()];
        if fickle.join().unwrap() {
            got.push(receive(&line).unwrap());
        }
        steady.join().unwrap();
        assert!(got.starts_with(&[0]) && got.contains(&1), "{got:?}");
    });
}

#[test]
fn forgotten_waiter_does_not_block_others() {
    model(2, |line| {
        assert!(send(&line, 0));
        let steady = thread::spawn({
            let line = line.clone();
            move || assert!(send(&line, 1))
        });
        let sent = forget(&line) as usize + forget(&line) as usize;
        assert_eq!(sent, 0, "a value was sent into a full channel");
        assert_eq!((receive(&line), receive(&line)), (Some(0), Some(1)));
        steady.join().unwrap();
    });
}

#[test]
fn end_is_seen_from_either_side() {
    model(4, |line| {
        let sender = thread::spawn({
            let line = line.clone();
            move || {
                assert!(send(&line, 1));
                line.remove_sender();
            }
        });
        assert_eq!((receive(&line), receive(&line)), (Some(1), None));
        sender.join().unwrap();
    });
    model(4, |line| {
        let sender = thread::spawn({
            let line = line.clone();
            move || (send(&line, 1), send(&line, 2))
        });
        line.close();
        let (_, second) = sender.join().unwrap();
        assert!(!second, "two values were sent into space for one");
    });
}
