//! Tests the memory of tasks and their use on several threads, without a runtime. Small enough for
//! Miri: `cargo +nightly miri test -p annulus --lib tasks::`.

use super::run_queue::{self, is_owner};
use super::*;
use crate::tasks::remote::Remote;
use crate::tasks::run_queue::{TurnState, Unmeasured};
use Fate::{AbortsItself, Completes, IsAborted, OutlivesItsOwner, Panics};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

/// A turn whose clock stands still.
struct Timeless;

impl TurnState for Timeless {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn max_polling(&self) -> Option<Duration> {
        None
    }
}

const RACE_ROUNDS: usize = if cfg!(miri) { 2 } else { 100 };
/// Number of turns after which a test gives up.
const MAX_SPINS: usize = 10_000_000;

/// A thread with tasks and no driver.
struct Owner {
    remote: Arc<Remote>,
    run_queue: Rc<RunQueue>,
}

impl Owner {
    fn new() -> Self {
        let owner = Self {
            remote: Arc::new(Remote::new(false, None).unwrap()),
            run_queue: Rc::new(RunQueue::new()),
        };
        run_queue::set_owner_thread(&owner.remote, &owner.run_queue);
        owner
    }

    #[track_caller]
    fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        JoinHandle::new(self.run_queue.spawn(&self.remote, future, Location::caller()))
    }

    fn turn(&self) {
        self.run_queue.extend(self.remote.take());
        self.run_queue.run(1024, &Unmeasured, &Timeless);
    }

    /// Runs turns, and lets other threads run in between.
    fn turns(&self, count: usize) {
        for _ in 0..count {
            self.turn();
            thread::yield_now();
        }
    }

    fn turn_until(&self, done: impl Fn() -> bool) {
        for _ in 0..MAX_SPINS {
            if done() {
                return;
            }
            self.turns(1);
        }
        panic!("the condition was never met");
    }

    /// Drops all tasks, as the end of a runtime does. Other threads may still hold their memory.
    fn end(&self) {
        self.remote.close();
        self.run_queue.drop_all(|| self.remote.take());
        self.run_queue.drop_all(|| self.remote.finish());
        run_queue::clear_owner_thread();
    }

    /// Returns the number of tasks whose memory still exists: each of them holds the inbox.
    fn remains(&self) -> usize {
        Arc::strong_count(&self.remote) - 1
    }
}

/// Blocks the thread until the task is done.
fn join<T>(task: JoinHandle<T>) -> Result<T, JoinError> {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut task = pin!(task);
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Completes,
    Panics,
    AbortsItself,
    IsAborted,
    OutlivesItsOwner,
}

impl Fate {
    /// Returns the result that the task's join handle returns, as text.
    fn verdict(self) -> &'static str {
        match self {
            Completes => "done",
            Panics => "the task panicked: enough",
            _ => "cancelled",
        }
    }
}

/// A task that sends its waker to other threads at each poll, and drops returned wakers on its own
/// thread.
struct SharesWakers {
    polls: usize,
    fate: Fate,
    peers: Vec<Sender<Waker>>,
    returned: Rc<Receiver<Waker>>,
    handle: Rc<Cell<Option<JoinHandle<String>>>>,
}

impl Future for SharesWakers {
    type Output = String;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<String> {
        self.polls += 1;
        for peer in &self.peers {
            _ = peer.send(cx.waker().clone());
        }
        self.returned.try_iter().take(2).for_each(drop);
        match self.fate {
            Completes if self.polls > 20 => return Poll::Ready("done".into()),
            Panics if self.polls > 20 => resume_unwind(Box::new("enough")),
            AbortsItself if self.polls == 20 => {
                self.handle.take().expect("the task has no handle of its own").abort();
            }
            _ => {}
        }
        Poll::Pending
    }
}

/// Uses wakers in every way until the channel closes. Some are sent back to the owner, and one is
/// kept until the end.
fn use_wakers(wakers: Receiver<Waker>, owner: &Sender<Waker>) {
    let mut kept = None;
    for (n, waker) in wakers.iter().enumerate() {
        waker.wake_by_ref();
        let copy = waker.clone();
        match n % 3 {
            0 => copy.wake(),
            1 => _ = owner.send(copy),
            _ => kept = Some(copy),
        }
    }
    if let Some(kept) = kept {
        kept.wake_by_ref();
        kept.wake();
    }
}

fn spawn_peers(owner: &Sender<Waker>) -> (Vec<Sender<Waker>>, Vec<thread::JoinHandle<()>>) {
    let peer = |_| {
        let ((sender, wakers), owner) = (channel(), owner.clone());
        (sender, thread::spawn(move || use_wakers(wakers, &owner)))
    };
    (0..3).map(peer).unzip()
}

fn conclude(fate: Fate, task: JoinHandle<String>) -> String {
    if fate == IsAborted {
        task.abort();
    }
    join(task).unwrap_or_else(|error| {
        if error.is_cancelled() { "cancelled".to_owned() } else { error.to_string() }
    })
}

#[test]
fn wakers_on_other_threads_may_outlive_their_task() {
    for round in 0..RACE_ROUNDS {
        for fate in [Completes, Panics, AbortsItself, IsAborted, OutlivesItsOwner] {
            share_wakers(fate, fate != AbortsItself && round % 2 == 0);
        }
    }
}

/// Runs a [`SharesWakers`] task, with its handle on the owner's thread or on another one.
fn share_wakers(fate: Fate, is_joined_remotely: bool) {
    let owner = Owner::new();
    let (to_owner, returned) = channel();
    let (peers, threads) = spawn_peers(&to_owner);
    let (returned, handle) = (Rc::new(returned), Rc::new(Cell::new(None)));
    let (back, own) = (returned.clone(), handle.clone());
    let task = owner.spawn(SharesWakers { polls: 0, fate, peers, returned: back, handle: own });
    let joiner = match is_joined_remotely {
        true => Some(thread::spawn(move || conclude(fate, task))),
        false => {
            handle.set(Some(task));
            None
        }
    };
    for _ in 0..50 {
        owner.turn();
        if owner.run_queue.tasks().is_empty() {
            break;
        }
        // Blocks instead of yielding, so that the other threads also run on a busy machine.
        drop(returned.recv_timeout(Duration::from_micros(100)));
    }
    if matches!(fate, Completes | Panics) {
        owner.turn_until(|| owner.run_queue.tasks().is_empty());
    }
    let here: Option<JoinHandle<String>> = handle.take();
    if fate == IsAborted {
        here.iter().for_each(JoinHandle::abort);
    }
    owner.end();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let there = joiner.map(|thread| thread.join().unwrap());
    for verdict in here.map(|task| conclude(fate, task)).into_iter().chain(there) {
        assert_eq!(verdict, fate.verdict());
    }
    drop(returned);
    assert_eq!(owner.remains(), 0, "{fate:?}");
}

#[test]
fn no_remote_wake_is_lost() {
    for _ in 0..RACE_ROUNDS {
        let owner = Owner::new();
        let news = Arc::new(AtomicUsize::new(0));
        let (sender, wakers) = channel::<Waker>();
        let caller = thread::spawn({
            let news = news.clone();
            move || {
                for waker in wakers {
                    news.fetch_add(1, Ordering::Relaxed);
                    waker.wake();
                }
            }
        });
        let mut seen = 0;
        let task = owner.spawn(std::future::poll_fn(move |cx| {
            if seen == news.load(Ordering::Relaxed) {
                if seen == 0 {
                    sender.send(cx.waker().clone()).unwrap();
                }
                return Poll::Pending;
            }
            seen = news.load(Ordering::Relaxed);
            sender.send(cx.waker().clone()).unwrap();
            if seen == 10 { Poll::Ready(()) } else { Poll::Pending }
        }));
        owner.turn_until(|| task.is_finished());
        drop(task);
        owner.end();
        caller.join().unwrap();
        assert_eq!(owner.remains(), 0);
    }
}

#[test]
fn a_waker_tells_whether_its_task_is_done() {
    let owner = Owner::new();
    let (mut polls, kept) = (0, Rc::new(Cell::new(None)));
    let task = owner.spawn(poll_fn({
        let kept = kept.clone();
        move |cx| {
            polls += 1;
            kept.set(Some(cx.waker().clone()));
            if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
        }
    }));
    owner.turn();
    let waker = kept.take().expect("the task was not polled");
    assert_eq!((is_done(&waker), is_done(Waker::noop())), (Some(false), None));
    waker.wake_by_ref();
    owner.turn();
    assert!(task.is_finished());
    assert_eq!(is_done(&waker), Some(true));
    drop((task, waker, kept));
    owner.end();
    assert_eq!(owner.remains(), 0);
}

#[test]
fn remotely_spawned_task_runs_on_its_owner_or_ends_on_the_spawning_thread() {
    for _ in 0..RACE_ROUNDS {
        let owner = Owner::new();
        let remote = owner.remote.clone();
        let spawner = thread::spawn(move || {
            let tasks = (0..20).map(|n| spawn_remotely(&remote, async move { n }));
            tasks.map(join).filter(Result::is_ok).count()
        });
        owner.turns(20);
        owner.end();
        assert!(spawner.join().unwrap() <= 20);
        assert_eq!(owner.remains(), 0);
    }
}

#[test]
fn join_handle_dropped_on_another_thread_drops_the_result() {
    struct CountsDrops(Arc<AtomicUsize>);
    impl Drop for CountsDrops {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    for round in 1..=RACE_ROUNDS {
        let owner = Owner::new();
        let result = CountsDrops(dropped.clone());
        let task = owner.spawn(async move {
            yield_now().await;
            result
        });
        let other = thread::spawn(move || drop(task));
        owner.turn_until(|| owner.run_queue.tasks().is_empty());
        other.join().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), round);
        owner.end();
        assert_eq!(owner.remains(), 0);
    }
}

#[test]
fn task_woken_several_times_is_queued_once() {
    let owner = Owner::new();
    let polls = Rc::new(Cell::new(0));
    let count = polls.clone();
    let task = owner.spawn(std::future::poll_fn(move |cx| {
        count.set(count.get() + 1);
        (0..3).for_each(|_| cx.waker().wake_by_ref());
        if count.get() < 5 { Poll::Pending } else { Poll::Ready(()) }
    }));
    assert!(is_owner(&owner.remote) && !task.is_finished());
    for turn in 1..=5 {
        owner.turn();
        assert_eq!(polls.get(), turn);
    }
    assert!(task.is_finished() && owner.run_queue.is_empty());
    drop(task);
    assert_eq!(owner.remains(), 0);
    owner.end();
}

#[test]
fn tasks_spawned_while_a_task_is_dropped_are_dropped_too() {
    struct SpawnsOnDrop(Rc<Owner>, u32);
    impl Drop for SpawnsOnDrop {
        fn drop(&mut self) {
            if self.1 > 0 {
                let next = SpawnsOnDrop(self.0.clone(), self.1 - 1);
                self.0.spawn(async move {
                    std::future::pending::<()>().await;
                    drop(next);
                });
            }
        }
    }
    let owner = Rc::new(Owner::new());
    let first = SpawnsOnDrop(owner.clone(), 5);
    drop(owner.spawn(async move {
        std::future::pending::<()>().await;
        drop(first);
    }));
    owner.turn();
    owner.end();
    assert_eq!((Rc::strong_count(&owner), owner.remains()), (1, 0));
}
