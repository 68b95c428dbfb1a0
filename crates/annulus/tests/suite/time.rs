//! Timers and signals.

use crate::common;

use annulus::signal::{Signal, signals, until_terminated};
use annulus::sim::{Sim, run_on as simulate_on};
use annulus::time::{
    Instant, MissedTickBehavior, interval, interval_at, sleep, sleep_until, timeout, timeout_at,
};
use annulus::{Runtime, spawn};
use common::{run, run_on};
use std::cell::RefCell;
use std::future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
/// Turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn sleeps_end_in_the_order_of_their_deadlines() {
    simulate(async || {
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
        assert_eq!(slow.unwrap_err().to_string(), "not ready within 1ms");
        let late = timeout_at(Instant::now(), std::future::pending::<()>()).await;
        let error = io::Error::from(late.unwrap_err());
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "not ready by the deadline");
        Ok(())
    });
}

#[test]
fn an_endless_sleep_does_not_overflow() {
    run(async {
        assert!(timeout(MS, sleep(Duration::MAX)).await.is_err());
        Ok(())
    });
}

/// Runs a program on a simulated clock, which advances only while nothing is ready.
fn simulate(program: impl AsyncFnOnce() -> io::Result<()>) {
    let sim = Sim::builder(1).build();
    let mut runtime = Runtime::builder().kernel(sim).build().unwrap();
    runtime.block_on(program()).unwrap();
}

#[test]
fn missed_ticks_are_skipped_repeated_or_delayed() {
    simulate(async || {
        let late = async |missed| {
            let begin = Instant::now();
            let mut ticks = interval_at(begin + MS * 10, MS * 10);
            ticks.set_missed_tick_behavior(missed);
            sleep(MS * 35).await;
            let mut due = Vec::new();
            for _ in 0..5 {
                due.push((ticks.tick().await - begin).as_millis());
            }
            due
        };
        assert_eq!(late(MissedTickBehavior::Skip).await, [10, 40, 50, 60, 70]);
        assert_eq!(late(MissedTickBehavior::Burst).await, [10, 20, 30, 40, 50]);
        assert_eq!(late(MissedTickBehavior::default()).await, [10, 20, 30, 40, 50]);
        assert_eq!(late(MissedTickBehavior::Delay).await, [10, 45, 55, 65, 75]);
        let mut ticks = interval(MS * 10);
        ticks.tick().await;
        sleep(MS * 5).await;
        ticks.reset();
        let now = Instant::now();
        assert_eq!(ticks.tick().await - now, MS * 10);
        Ok(())
    });
}

#[test]
fn a_deadline_ends_a_future_that_always_finds_something_ready() {
    run(async {
        let deadline = Instant::now() + MS * 5;
        let busy = async {
            loop {
                annulus::task::consume_budget().await;
            }
        };
        let ended: Result<(), _> = timeout_at(deadline, busy).await;
        assert!(ended.is_err() && Instant::now() >= deadline);
        // The loop above has used up the budget, so the deadline is not checked again until a later
        // turn.
        let late = timeout_at(deadline, std::future::pending::<()>()).await;
        assert!(late.is_err(), "a deadline in the past did not end the future");
        Ok(())
    });
}

#[test]
fn instants_support_arithmetic() {
    let now = Instant::now();
    let later = now + MS * 3;
    assert_eq!((later - MS, later - now), (now + MS * 2, MS * 3));
    assert_eq!((now.checked_duration_since(later), later.checked_sub(MS * 3)), (None, Some(now)));
    assert_eq!((now.checked_add(Duration::MAX), now.checked_sub(Duration::MAX)), (None, None));
    let mut moment = later;
    moment -= MS * 3;
    assert_eq!(moment, now);
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
        assert_eq!((third - first).as_nanos() % MS.as_nanos(), 0, "the tick lost its rhythm");
        Ok(())
    });
}

#[test]
fn an_interval_that_is_too_late_to_count_keeps_its_rhythm() {
    let sim = Sim::builder(1).build();
    let late: io::Result<()> = simulate_on(&sim, Runtime::builder(), async {
        let mut ticks = interval(MS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let first = ticks.tick().await;
        // The ticks are late by `u32::MAX` periods, and then by more.
        for periods in [u64::from(u32::MAX), 1 << 33] {
            let now = Instant::now();
            // One more period, since the tick after the last one was not late yet.
            sleep(Duration::from_millis(periods + 1)).await;
            ticks.tick().await;
            let next = ticks.tick().await;
            assert_eq!((next - first).as_nanos() % MS.as_nanos(), 0, "the tick lost its rhythm");
            assert!(next > now + Duration::from_millis(periods), "missed ticks were not skipped");
            assert!(next.elapsed() < MS, "a tick that was not missed was skipped");
        }
        Ok(())
    });
    late.unwrap();
}

#[test]
fn signals_are_awaited() {
    // A budget of 1 must be enough for every wait.
    run_on(Runtime::builder().task_budget(1), async {
        let mut caught = signals(&[Signal::SIGINT, Signal::SIGTERM])?;
        for (send, expected) in [(15, Signal::SIGTERM), (2, Signal::SIGINT), (15, Signal::SIGTERM)]
        {
            raise(send);
            assert_eq!(timeout(PATIENCE, caught.recv()).await.unwrap()?, expected);
        }
        let mut later = signals(&[Signal::SIGTERM])?;
        let waits = spawn(async move { later.recv().await });
        annulus::task::yield_now().await;
        let waiting = annulus::handle()?.tasks().await?;
        assert!(waiting.iter().any(|task| task.waits_for == ["for a signal"]), "{waiting:?}");
        raise(15);
        assert_eq!(waits.await.unwrap()?, Signal::SIGTERM);
        drop(caught);
        // `ctrl_c` catches signals from its call on, not only from the first poll. This is part of
        // the same test, since signals belong to the whole process.
        let pressed = annulus::signal::ctrl_c();
        raise(2);
        timeout(PATIENCE, pressed).await.unwrap()?;
        let failed = until_terminated(async { Err(io::Error::other("of the future")) }).await;
        assert_eq!(failed.unwrap_err().to_string(), "of the future");
        let served = async {
            raise(15);
            future::pending().await
        };
        timeout(PATIENCE, until_terminated(served)).await.unwrap()?;
        // The same signal also ends a future that starts later.
        timeout(PATIENCE, until_terminated(future::pending())).await.unwrap()
    });
}

#[test]
fn every_catchable_signal_reaches_all_its_receivers() {
    run(async {
        let real_time = Signal::from_number(40)?;
        let which = [Signal::SIGUSR1, Signal::SIGHUP, Signal::SIGWINCH, real_time];
        let (mut one, mut two) = (signals(&which)?, signals(&which)?);
        for signal in which {
            raise(signal.number());
            for caught in [&mut one, &mut two] {
                assert_eq!(timeout(PATIENCE, caught.recv()).await.unwrap()?, signal);
            }
        }
        // Many signals of one kind do not hide another kind.
        raise(Signal::SIGHUP.number());
        raise(Signal::SIGWINCH.number());
        let first = timeout(PATIENCE, two.recv()).await.unwrap()?;
        raise(first.number());
        assert_ne!(timeout(PATIENCE, two.recv()).await.unwrap()?, first);
        assert_eq!(format!("{real_time} {:?}", Signal::SIGUSR1), "signal 40 SIGUSR1");
        for (number, error) in [(9, "signal 9 cannot be caught"), (0, "number 0"), (65, "1–64")] {
            let text = Signal::from_number(number).unwrap_err().to_string();
            assert!(text.contains(error), "{text}");
        }
        // The C library keeps this one for itself.
        let text = signals(&[Signal::from_number(32)?]).unwrap_err().to_string();
        assert!(text.starts_with("catching signal 32: "), "{text}");
        Ok(())
    });
}

#[test]
fn a_simulation_has_only_the_signals_of_its_network() {
    simulate(async || {
        assert!(
            timeout(MS, annulus::signal::ctrl_c()).await.is_err(),
            "a signal arrived that was not sent"
        );
        let served = async {
            sleep(Duration::from_secs(1)).await;
            Ok(())
        };
        until_terminated(served).await?;
        Ok(())
    });
}

#[allow(unsafe_code)]
fn raise(signal: i32) {
    // SAFETY: the test has installed a handler that catches the signal.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}
