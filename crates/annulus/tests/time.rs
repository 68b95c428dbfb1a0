//! Timers and signals.

mod common;

use annulus::signal::{Signal, signals};
use annulus::sim::{Sim, run_on as simulate_on};
use annulus::time::{Instant, interval, sleep, sleep_until, timeout};
use annulus::{Runtime, spawn};
use common::run;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

#[test]
fn sleeps_end_in_the_order_of_their_deadlines() {
    run(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let start = Instant::now();
        let tasks: Vec<_> = [5u32, 1, 9, 3, 7]
            .into_iter()
            .map(|n| {
                let order = order.clone();
                spawn(async move {
                    sleep_until(start + MS * n).await;
                    order.borrow_mut().push(n);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.borrow(), [1, 3, 5, 7, 9]);
        assert!(start.elapsed() >= MS * 9);
        Ok(())
    });
}

#[test]
fn a_timeout_lets_a_ready_future_through_and_ends_a_slow_one() {
    run(async {
        assert_eq!(timeout(Duration::ZERO, async { 1 }).await, Ok(1));
        let slow = timeout(MS, std::future::pending::<()>()).await;
        assert_eq!(slow.unwrap_err().to_string(), "timed out");
        Ok(())
    });
}

#[test]
fn a_sleep_of_ever_does_not_overflow() {
    run(async {
        assert!(timeout(MS, sleep(Duration::MAX)).await.is_err());
        Ok(())
    });
}

#[test]
fn ticks_keep_their_rhythm() {
    run(async {
        let mut ticks = interval(MS);
        let first = ticks.tick().await;
        let third = {
            ticks.tick().await;
            ticks.tick().await
        };
        assert!(third - first >= MS * 2);
        assert_eq!((third - first).as_nanos() % MS.as_nanos(), 0, "ticks stand on the rhythm");
        Ok(())
    });
}

#[test]
fn an_interval_that_is_later_than_it_can_count_keeps_its_rhythm() {
    let sim = Sim::builder(1).build();
    let late: io::Result<()> = simulate_on(&sim, Runtime::builder(), async {
        let mut ticks = interval(MS);
        let first = ticks.tick().await;
        // Late by u32::MAX periods, and then by more.
        for periods in [u64::from(u32::MAX), 1 << 33] {
            let now = Instant::now();
            // One more: the tick after the last one was not late yet.
            sleep(Duration::from_millis(periods + 1)).await;
            ticks.tick().await;
            let next = ticks.tick().await;
            assert_eq!((next - first).as_nanos() % MS.as_nanos(), 0, "it stands on the rhythm");
            assert!(next > now + Duration::from_millis(periods), "missed ticks are skipped");
            assert!(next.elapsed() < MS, "and no more than these");
        }
        Ok(())
    });
    late.unwrap();
}

#[test]
fn signals_are_awaited() {
    run(async {
        let mut caught = signals(&[Signal::Sigint, Signal::Sigterm])?;
        for (send, expected) in [(15, Signal::Sigterm), (2, Signal::Sigint), (15, Signal::Sigterm)]
        {
            raise(send);
            assert_eq!(timeout(Duration::from_secs(5), caught.recv()).await.unwrap()?, expected);
        }
        Ok(())
    });
}

#[allow(unsafe_code)]
fn raise(signal: i32) {
    // SAFETY: the signal is caught by the handler that the test has installed.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}
