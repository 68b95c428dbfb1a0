//! Timers, deadlines and clocks.

use annulus::spawn;
use annulus::task::yield_now;
use annulus::time::{Elapsed, Instant, interval, sleep, sleep_until, timeout};
use std::cell::RefCell;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Retries if the machine was so slow that the first sleep was due before all sleepers had started.
pub(crate) async fn sleeps_end_in_order() -> io::Result<()> {
    while !sleepers_end_in_order().await {}
    Ok(())
}

/// Returns true if all sleepers had started before the first sleep was due. The order has then been
/// checked.
async fn sleepers_end_in_order() -> bool {
    let order = Rc::new(RefCell::new(Vec::new()));
    let start = Instant::now();
    let sleeper = |n: u32| {
        let order = order.clone();
        spawn(async move {
            sleep_until(start + MS * n).await;
            order.borrow_mut().push(n);
        })
    };
    let sleepers: Vec<_> = [5, 1, 9, 3, 7].into_iter().map(sleeper).collect();
    // Each is polled once, so its timer is set.
    yield_now().await;
    let in_time = start.elapsed() < MS;
    for sleeper in sleepers {
        sleeper.await.expect("the task panicked");
    }
    assert!(!in_time || *order.borrow() == [1, 3, 5, 7, 9], "{order:?}");
    assert!(start.elapsed() >= MS * 9);
    in_time
}

pub(crate) async fn a_timeout_ends_only_slow_futures() -> io::Result<()> {
    let start = Instant::now();
    let slow: Result<(), Elapsed> = timeout(MS * 5, pending()).await;
    assert!(slow.is_err() && start.elapsed() >= MS * 5);
    assert_eq!(timeout(MS * 1000, async { 1 }).await, Ok(1));
    assert_eq!(timeout(Duration::ZERO, async { 2 }).await, Ok(2));
    assert!(timeout(MS * 1000, sleep(MS)).await.is_ok());
    assert!(timeout(MS, sleep(Duration::MAX)).await.is_err());
    Ok(())
}

/// The tasks poll once and return `Pending`, so only the timer wakes them.
pub(crate) async fn a_reset_sleep_wakes_the_task_that_waits() -> io::Result<()> {
    let shared = Rc::new(RefCell::new(sleep(MS * 3_600_000)));
    let waits = shared.clone();
    let waiting = spawn(poll_fn(move |cx| Pin::new(&mut *waits.borrow_mut()).poll(cx)));
    yield_now().await;
    let start = Instant::now();
    // To an earlier time, to a later one, and to one that has passed.
    for after in [MS * 5, MS * 10] {
        shared.borrow_mut().reset(start + after);
    }
    timeout(MS * 20_000, waiting).await.expect("the task was not woken").expect("it panicked");
    assert!(start.elapsed() >= MS * 10);
    let mut ticks = interval(MS * 3_600_000);
    ticks.tick().await;
    let reset_while_polled = poll_fn(|cx| {
        let polled = ticks.poll_tick(cx);
        if polled.is_pending() {
            ticks.reset_at(start);
        }
        polled
    });
    let tick = timeout(MS * 20_000, reset_while_polled).await;
    assert_eq!(tick.expect("the task was not woken"), start);
    Ok(())
}

pub(crate) async fn a_thousand_timers_are_set_and_removed() -> io::Result<()> {
    let start = Instant::now();
    let tasks: Vec<_> = (0..1000u32)
        .map(|n| {
            spawn(async move {
                // Most timers are dropped long before they are due.
                let timed_out = timeout(MS * (n % 7), sleep(MS * 3_600_000)).await.is_err();
                sleep_until(start + MS * 10).await;
                timed_out && start.elapsed() >= MS * 10
            })
        })
        .collect();
    for task in tasks {
        assert!(task.await.expect("the task panicked"));
    }
    Ok(())
}
