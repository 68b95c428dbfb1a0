//! The tokio task that runs the guest's turns.

use crate::state::turn;
use annulus::GuestNext;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, Sleep, sleep_until};

/// The resolution of tokio's timers. A deadline that moves by at most this keeps its timer.
const TICK: Duration = Duration::from_millis(1);

/// Thirty years. A deadline this far away needs no timer, and adding a much longer time to an
/// instant would overflow.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Takes turns until annulus cannot continue, and returns why. The future is `Send`, as tokio
/// requires, because the guest stays in a thread-local variable.
pub(crate) async fn drive(notifier: AsyncFd<OwnedFd>, thread: ThreadId) -> io::Error {
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| match thread::current().id() == thread {
        true => poll_turn(&notifier, &mut timer, cx),
        false => Poll::Ready(wrong_thread()),
    })
    .await
}

fn wrong_thread() -> io::Error {
    io::Error::other(
        "annulus was entered on a thread other than the one that runs tokio's tasks: call enter on the thread \
         that calls block_on, and run that runtime on no other thread",
    )
}

fn poll_turn(
    notifier: &AsyncFd<OwnedFd>,
    timer: &mut Option<Pin<Box<Sleep>>>,
    cx: &mut Context<'_>,
) -> Poll<io::Error> {
    // The readiness is cleared before the turn, which handles all wakes so far. A later wake sets
    // it again.
    while let Poll::Ready(Ok(mut ready)) = notifier.poll_read_ready(cx) {
        ready.clear_ready();
    }
    match turn(cx.waker()) {
        None => return Poll::Ready(io::Error::other("this thread has left annulus")),
        Some(Err(error)) => return Poll::Ready(error),
        Some(Ok(GuestNext::Turn)) => cx.waker().wake_by_ref(),
        Some(Ok(GuestNext::Wait(Some(left)))) if left < FOREVER => {
            poll_timer(timer, Instant::now() + left, cx);
        }
        Some(Ok(GuestNext::Wait(_))) => *timer = None,
    }
    Poll::Pending
}

/// Sets the timer, so that it wakes the task at the deadline.
fn poll_timer(timer: &mut Option<Pin<Box<Sleep>>>, deadline: Instant, cx: &mut Context<'_>) {
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
    let set = timer.deadline();
    if timer.is_elapsed() || set > deadline + TICK || set + TICK < deadline {
        timer.as_mut().reset(deadline);
    }
    if timer.as_mut().poll(cx).is_ready() {
        cx.waker().wake_by_ref();
    }
}
