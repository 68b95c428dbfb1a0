//! Tasks without a runtime: their memory and their threads. Small enough for Miri:
//! `cargo +nightly miri test -p annulus --lib task::`.

use super::owner::{self, is_home};
use super::*;
use crate::runtime::remote::Remote;
use Fate::{AbortsItself, Completes, IsAborted, OutlivesItsHome, Panics};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Wake, Waker};
use std::thread;

const ROUNDS: usize = if cfg!(miri) { 2 } else { 100 };
/// Turns after which a test gives up.
const PATIENCE: usize = 10_000_000;

/// A thread with tasks and no driver.
struct Home {
    remote: Arc<Remote>,
    ready: Rc<Ready>,
}

impl Home {
    fn new() -> Self {
        let home = Self {
            remote: Arc::new(Remote::new(false, None).unwrap()),
            ready: Rc::new(Ready::new()),
        };
        owner::enter(&home.remote, &home.ready);
        home
    }

    #[track_caller]
    fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        self.ready.spawn(&self.remote, future, Location::caller())
    }

    fn turn(&self) {
        self.ready.extend(self.remote.take());
        self.ready.run(1024);
    }

    /// Turns, while other threads have their turns too.
    fn look_around(&self, turns: usize) {
        for _ in 0..turns {
            self.turn();
            thread::yield_now();
        }
    }

    fn turn_until(&self, done: impl Fn() -> bool) {
        for _ in 0..PATIENCE {
            if done() {
                return;
            }
            self.look_around(1);
        }
        panic!("it never came");
    }

    /// Ends as a runtime does. What is left of its tasks is held elsewhere.
    fn end(&self) {
        self.remote.close();
        self.ready.drop_all(|| self.remote.take());
        self.ready.drop_all(|| self.remote.finish());
        owner::leave();
    }

    /// Tasks whose memory is still there: each holds the inbox.
    fn remains(&self) -> usize {
        Arc::strong_count(&self.remote) - 1
    }
}

/// Waits on a thread of its own.
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

/// How a task ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Completes,
    Panics,
    AbortsItself,
    IsAborted,
    OutlivesItsHome,
}

impl Fate {
    /// What its joiner is told.
    fn verdict(self) -> &'static str {
        match self {
            Completes => "done",
            Panics => "the task panicked: enough",
            _ => "the task was aborted",
        }
    }
}

/// A task that hands out its waker at each poll, and drops at home what comes back.
struct Restless {
    polls: usize,
    fate: Fate,
    friends: Vec<Sender<Waker>>,
    returned: Rc<Receiver<Waker>>,
    handle: Rc<Cell<Option<JoinHandle<String>>>>,
}

impl Future for Restless {
    type Output = String;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<String> {
        self.polls += 1;
        for friend in &self.friends {
            _ = friend.send(cx.waker().clone());
        }
        self.returned.try_iter().take(2).for_each(drop);
        match self.fate {
            Completes if self.polls > 20 => return Poll::Ready("done".into()),
            Panics if self.polls > 20 => resume_unwind(Box::new("enough")),
            AbortsItself if self.polls == 20 => {
                self.handle.take().expect("its own handle").abort();
            }
            _ => {}
        }
        Poll::Pending
    }
}

/// Does with wakers all that can be done, until there are no more; some it sends home, one it keeps for last.
fn befriend(wakers: Receiver<Waker>, home: &Sender<Waker>) {
    let mut kept = None;
    for (n, waker) in wakers.iter().enumerate() {
        waker.wake_by_ref();
        let copy = waker.clone();
        match n % 3 {
            0 => copy.wake(),
            1 => _ = home.send(copy),
            _ => kept = Some(copy),
        }
    }
    if let Some(kept) = kept {
        kept.wake_by_ref();
        kept.wake();
    }
}

/// Threads that are given wakers.
fn make_friends(home: &Sender<Waker>) -> (Vec<Sender<Waker>>, Vec<thread::JoinHandle<()>>) {
    let friend = |_| {
        let ((sender, wakers), home) = (channel(), home.clone());
        (sender, thread::spawn(move || befriend(wakers, &home)))
    };
    (0..3).map(friend).unzip()
}

fn conclude(fate: Fate, mut task: JoinHandle<String>) -> String {
    if fate == IsAborted {
        task.abort();
    }
    join(task).unwrap_or_else(|error| error.to_string())
}

#[test]
fn wakers_on_all_threads_outlive_their_task_in_every_way() {
    for round in 0..ROUNDS {
        for fate in [Completes, Panics, AbortsItself, IsAborted, OutlivesItsHome] {
            be_restless(fate, fate != AbortsItself && round % 2 == 0);
        }
    }
}

/// One such task, whose handle is at home or on another thread.
fn be_restless(fate: Fate, is_joined_elsewhere: bool) {
    let home = Home::new();
    let (to_home, returned) = channel();
    let (friends, threads) = make_friends(&to_home);
    let (returned, handle) = (Rc::new(returned), Rc::new(Cell::new(None)));
    let (back, own) = (returned.clone(), handle.clone());
    let task = home.spawn(Restless { polls: 0, fate, friends, returned: back, handle: own });
    let joiner = match is_joined_elsewhere {
        true => Some(thread::spawn(move || conclude(fate, task))),
        false => {
            handle.set(Some(task));
            None
        }
    };
    home.look_around(50);
    if matches!(fate, Completes | Panics) {
        home.turn_until(|| home.ready.tasks().is_empty());
    }
    let mut here: Option<JoinHandle<String>> = handle.take();
    if fate == IsAborted {
        here.iter_mut().for_each(JoinHandle::abort);
    }
    home.end();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let told = joiner.map(|thread| thread.join().unwrap());
    for verdict in here.map(|task| conclude(fate, task)).into_iter().chain(told) {
        assert_eq!(verdict, fate.verdict());
    }
    drop(returned);
    assert_eq!(home.remains(), 0, "{fate:?}");
}

#[test]
fn no_wake_from_elsewhere_is_lost() {
    for _ in 0..ROUNDS {
        let home = Home::new();
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
        let task = home.spawn(std::future::poll_fn(move |cx| {
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
        home.turn_until(|| task.is_finished());
        drop(task);
        home.end();
        caller.join().unwrap();
        assert_eq!(home.remains(), 0);
    }
}

#[test]
fn tasks_from_elsewhere_run_at_home_or_end_where_they_are() {
    for _ in 0..ROUNDS {
        let home = Home::new();
        let remote = home.remote.clone();
        let spawner = thread::spawn(move || {
            let tasks = (0..20).map(|n| spawn_remotely(&remote, async move { n }));
            tasks.map(join).filter(Result::is_ok).count()
        });
        home.look_around(20);
        home.end();
        assert!(spawner.join().unwrap() <= 20);
        assert_eq!(home.remains(), 0);
    }
}

#[test]
fn a_handle_dropped_elsewhere_takes_the_result_with_it() {
    struct Tells(Arc<AtomicUsize>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    for round in 1..=ROUNDS {
        let home = Home::new();
        let result = Tells(dropped.clone());
        let task = home.spawn(async move {
            yield_now().await;
            result
        });
        let elsewhere = thread::spawn(move || drop(task));
        home.turn_until(|| home.ready.tasks().is_empty());
        elsewhere.join().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), round);
        home.end();
        assert_eq!(home.remains(), 0);
    }
}

#[test]
fn a_task_that_is_awake_is_queued_once() {
    let home = Home::new();
    let polls = Rc::new(Cell::new(0));
    let count = polls.clone();
    let task = home.spawn(std::future::poll_fn(move |cx| {
        count.set(count.get() + 1);
        (0..3).for_each(|_| cx.waker().wake_by_ref());
        if count.get() < 5 { Poll::Pending } else { Poll::Ready(()) }
    }));
    assert!(is_home(&home.remote) && !task.is_finished());
    for turn in 1..=5 {
        home.turn();
        assert_eq!(polls.get(), turn);
    }
    assert!(task.is_finished() && home.ready.is_empty());
    drop(task);
    assert_eq!(home.remains(), 0);
    home.end();
}

#[test]
fn what_a_task_spawns_while_it_is_dropped_is_dropped_as_well() {
    struct Spawns(Rc<Home>, u32);
    impl Drop for Spawns {
        fn drop(&mut self) {
            if self.1 > 0 {
                let next = Spawns(self.0.clone(), self.1 - 1);
                self.0.spawn(async move {
                    std::future::pending::<()>().await;
                    drop(next);
                });
            }
        }
    }
    let home = Rc::new(Home::new());
    let first = Spawns(home.clone(), 5);
    drop(home.spawn(async move {
        std::future::pending::<()>().await;
        drop(first);
    }));
    home.turn();
    home.end();
    assert_eq!((Rc::strong_count(&home), home.remains()), (1, 0));
}
