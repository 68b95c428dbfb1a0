//! Tasks that wake each other run without system calls. Meanwhile, events wait for a bounded number
//! of polls.

use crate::common;

use annulus::net::UnixStream;
use annulus::task::yield_now;
use annulus::{Builder, DriverChoice, Runtime, counters, spawn};
use common::run_on;
use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;
use tokio::sync::mpsc;

const ROUNDS: u32 = 1000;

fn builders() -> [Builder; 2] {
    [DriverChoice::Uring, DriverChoice::Epoll].map(|choice| Runtime::builder().driver(choice))
}

/// Returns how many system calls the loop's turns make while two tasks pass a value back and forth.
fn calls_of_an_exchange(builder: Builder) -> u64 {
    run_on(builder, async {
        let (to, mut at) = mpsc::channel(1);
        let (back, mut home) = mpsc::channel(1);
        spawn(async move {
            while let Some(value) = at.recv().await {
                back.send(value).await.expect("the other task has ended");
            }
        });
        let before = counters().expect("not in a runtime").enters;
        for round in 0..ROUNDS {
            to.send(round).await.expect("the other task has ended");
            assert_eq!(home.recv().await, Some(round));
        }
        Ok(counters().expect("not in a runtime").enters - before)
    })
}

#[test]
fn tasks_that_wake_one_another_make_few_system_calls() {
    for builder in builders() {
        let calls = calls_of_an_exchange(builder.clone());
        assert!(calls <= u64::from(2 * ROUNDS / 61 + 2), "{calls} system calls");
        let calls = calls_of_an_exchange(builder.event_interval(1));
        assert!(calls >= u64::from(ROUNDS), "{calls} system calls, one per turn");
    }
}

/// Returns how often an always-ready task is polled before another task sees bytes that have
/// arrived.
fn polls_until_bytes_are_seen(builder: Builder) -> u32 {
    run_on(builder, async {
        let (ours, mut remote) = std::os::unix::net::UnixStream::pair()?;
        let mut stream = UnixStream::from_std(ours)?;
        let received = Rc::new(Cell::new(0));
        let receiver = spawn({
            let received = received.clone();
            async move {
                while stream.recv().await?.is_some() {
                    received.set(received.get() + 1);
                }
                std::io::Result::Ok(())
            }
        });
        let mut polls = 0;
        for count in 1..=2 {
            // The bytes have arrived by the time the write returns. The second time, the receive is
            // armed.
            remote.write_all(b"bytes")?;
            polls = 0;
            while received.get() < count && polls < 10_000 {
                polls += 1;
                yield_now().await;
            }
        }
        drop(remote);
        receiver.await??;
        Ok(polls)
    })
}

#[test]
fn a_task_that_is_always_ready_delays_events_by_the_interval() {
    for builder in builders() {
        for interval in [1, 10, 200] {
            let polls = polls_until_bytes_are_seen(builder.clone().event_interval(interval));
            assert!(polls <= 2 * interval + 10, "{polls} polls, at most {interval} between checks");
        }
    }
}

#[test]
fn an_interval_of_zero_is_refused() {
    let error = Runtime::builder().event_interval(0).build().unwrap_err();
    assert!(error.to_string().contains("event_interval of 0"), "{error}");
}
