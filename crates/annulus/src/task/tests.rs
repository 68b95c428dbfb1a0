//! Tasks without a runtime: their memory and their threads. Small enough for Miri:
//! `cargo +nightly miri test -p annulus --lib task::`.

use super::home::{self, is_home};
use super::*;
use crate::remote::Remote;
use std::cell::Cell;
use std::panic::resume_unwind;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Wake, Waker};
use std::thread;
use Fate::{AbortsItself, Completes, IsAborted, OutlivesItsHome, Panics};

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
        let home = Self { remote: Arc::new(Remote::new(false).unwrap()), ready: Rc::new(Ready::new()) };
        home::enter(&home.remote, &home.ready);
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

    fn turn_until(&self, done: impl Fn() -> bool) {
        for _ in 0..PATIENCE {
            if done() {
                return;
            }
            self.turn();
            thread::yield_now();
        }
        panic!("it never came");
    }

    /// Ends as a runtime does. What is left of its tasks is held elsewhere.
    fn end(&self) {
        self.remote.close();
        self.ready.drop_all(|| self.remote.take());
        self.ready.drop_all(|| self.remote.finish());
        home::leave();
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
        kept.clone().wake();
    }
}

#[test]
fn wakers_on_all_threads_outlive_their_task_in_every_way() {
    for round in 0..ROUNDS {
        for fate in [Completes, Panics, AbortsItself, IsAborted, OutlivesItsHome] {
            be_restless(fate, round % 2 == 0);
        }
    }
}

/// One such task, whose handle is here or on another thread.
fn be_restless(fate: Fate, is_joined_elsewhere: bool) {
    let home = Home::new();
    let (to_home, returned) = channel();
    let returned = Rc::new(returned);
    let (friends, threads): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| {
            let (sender, wakers) = channel();
            let to_home = to_home.clone();
            (sender, thread::spawn(move || befriend(wakers, &to_home)))
        })
        .unzip();
    let handle = Rc::new(Cell::new(None));
    let future =
        Restless { polls: 0, fate, friends, returned: returned.clone(), handle: handle.clone() };
    let mut task = home.spawn(future);
    let elsewhere = match fate {
        Completes | Panics if is_joined_elsewhere => Some(thread::spawn(move || verdict(join(task)))),
        IsAborted if is_joined_elsewhere => Some(thread::spawn(move || {
            task.abort();
            verdict(join(task))
        })),
        _ => {
            handle.set(Some(task));
            None
        }
    };
    for _ in 0..50 {
        home.turn();
        thread::yield_now();
    }
    if fate == IsAborted && let Some(mut task) = handle.take() {
        task.abort();
        assert_eq!(verdict(join(task)), "the task was aborted");
    }
    if matches!(fate, Completes | Panics) {
        home.turn_until(|| home.ready.tasks().is_empty());
    }
    home.end();
    let said = elsewhere.map(|thread| thread.join().unwrap());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    if let Some(said) = said {
        let expected = match fate {
            Completes => "done",
            Panics => "the task panicked: enough",
            _ => "the task was aborted",
        };
        assert_eq!(said, expected);
    }
    drop((handle, returned));
    assert_eq!(home.remains(), 0, "{fate:?}");
}

fn verdict(result: Result<String, JoinError>) -> String {
    result.unwrap_or_else(|error| error.to_string())
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
        for _ in 0..20 {
            home.turn();
            thread::yield_now();
        }
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
