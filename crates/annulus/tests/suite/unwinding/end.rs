//! The end of a runtime terminates.

use crate::common::pair;
use crate::unwinding::foreign::{OnDrop, poll_with, waker_of};
use crate::unwinding::mode::everywhere;
use annulus::net::TcpListener;
use annulus::task::{JoinHandle, yield_now};
use annulus::time::{Instant, sleep};
use annulus::{Handle, spawn};
use std::cell::{Cell, RefCell};
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A task that spawns up to `at_once` tasks like itself when it is dropped, while `left` is above
/// zero.
struct Again {
    left: Rc<Cell<u64>>,
    dropped: Rc<Cell<u64>>,
    at_once: usize,
}

impl Future for Again {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        self.dropped.set(self.dropped.get() + 1);
        for _ in 0..self.at_once {
            if self.left.get() == 0 {
                return;
            }
            self.left.set(self.left.get() - 1);
            let Self { left, dropped, at_once } = self;
            spawn(Self { left: left.clone(), dropped: dropped.clone(), at_once: *at_once });
        }
    }
}

#[test]
fn futures_that_spawn_themselves_again_end() {
    // The number is finite, so that a failure does not hang.
    const MANY: u64 = 1_000_000;
    for at_once in [1, 2] {
        everywhere(|mut stage| {
            let (left, dropped) = (Rc::new(Cell::new(MANY)), Rc::new(Cell::new(0)));
            stage.play(async {
                spawn(Again { left: left.clone(), dropped: dropped.clone(), at_once });
                yield_now().await;
                Ok(())
            });
            stage.end();
            assert!((1..1000).contains(&dropped.get()), "{} drops", dropped.get());
        });
    }
}

/// A task spawned during the end is dropped at once, and its joiner gets an error.
#[test]
fn tasks_spawned_during_shutdown_are_dropped_at_once() {
    everywhere(|mut stage| {
        let seen = Rc::new(RefCell::new(None));
        let note = seen.clone();
        stage.play(async {
            spawn(async move {
                let _last = OnDrop(move || {
                    let dropped = Rc::new(Cell::new(false));
                    let flag = dropped.clone();
                    let value = OnDrop(move || flag.set(true));
                    let mut task: JoinHandle<()> = spawn(async move {
                        pending::<()>().await;
                        drop(value);
                    });
                    let joined = poll_with(pin!(&mut task), Waker::noop());
                    let aborted = matches!(joined, Poll::Ready(Err(error)) if error.is_cancelled());
                    *note.borrow_mut() = Some((dropped.get(), aborted));
                });
                pending::<()>().await;
            });
            yield_now().await;
            Ok(())
        });
        stage.end();
        assert_eq!(seen.take(), Some((true, true)));
    });
}

/// Spawns through a handle when it is dropped, and ignores the result.
struct ByHandle(Handle, std::sync::Arc<std::sync::atomic::AtomicU64>);

impl Future for ByHandle {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Drop for ByHandle {
    fn drop(&mut self) {
        let before = self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if before < 1_000_000 {
            drop(self.0.spawn(Self(self.0.clone(), self.1.clone())));
        }
    }
}

#[test]
fn futures_that_spawn_themselves_again_through_a_handle_end() {
    everywhere(|mut stage| {
        let dropped = std::sync::Arc::default();
        let handle = stage.runtime.handle();
        stage.play(async {
            spawn(ByHandle(handle, std::sync::Arc::clone(&dropped)));
            yield_now().await;
            Ok(())
        });
        stage.end();
        let dropped = dropped.load(std::sync::atomic::Ordering::Relaxed);
        assert!((1..1000).contains(&dropped), "{dropped} drops");
    });
}

/// A waker whose drop creates another one of its kind does not keep the loop from turning.
#[test]
fn wakers_that_create_wakers_do_not_occupy_the_loop() {
    fn next(left: Rc<Cell<u64>>) -> Waker {
        waker_of(OnDrop(move || {
            if left.get() > 0 {
                left.set(left.get() - 1);
                let Ok(listener) = TcpListener::bind("127.0.0.1:0") else { return };
                let mut accepts = Box::pin(async move { listener.accept().await.map(drop) });
                assert!(poll_with(accepts.as_mut(), &next(left.clone())).is_pending());
            }
        }))
    }

    everywhere(|mut stage| {
        const MANY: u64 = 20_000;
        let left = Rc::new(Cell::new(MANY));
        let turned = stage.play(async {
            let (mut stream, peer) = pair().await?;
            assert!(poll_with(pin!(stream.recv()), &next(left.clone())).is_pending());
            drop((stream, peer));
            sleep(Duration::from_nanos(1)).await;
            Ok(MANY - left.get())
        });
        assert!(turned < MANY, "the loop ran nothing else");
        left.set(left.get().min(100));
        stage.end();
    });
}

/// A task's send waits for another task, which holds the other end and never reads.
#[test]
fn shutdown_takes_no_longer_than_its_deadlines() {
    everywhere(|mut stage| {
        stage.play(async {
            let (mut one, other) = pair().await?;
            spawn(async move { one.send(vec![1; 64 << 20]).await });
            spawn(async move {
                let _other = other;
                pending::<()>().await;
            });
            yield_now().await;
            Ok(())
        });
        let began = Instant::now();
        stage.end();
        assert!(began.elapsed() < Duration::from_secs(20));
    });
}
