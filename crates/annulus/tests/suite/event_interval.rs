//! Tasks that wake each other run without system calls. Meanwhile, events wait for a bounded number
//! of polls.

use crate::common;

use annulus::net::UnixStream;
use annulus::task::yield_now;
use annulus::time::Instant;
use annulus::{Builder, DriverChoice, Runtime, counters, spawn};
use common::run_on;
use std::cell::Cell;
use std::io::{ErrorKind, Write};
use std::rc::Rc;
use std::time::Duration;
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

/// Returns the number of times that an always-ready task is polled before another task sees bytes
/// that have arrived.
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

/// Number of tasks that are always ready.
const BUSY_TASKS: u32 = 400;

/// The poll of a busy task in which bytes arrive, in the middle of the second round.
const BYTES_ARRIVE_AT: u32 = BUSY_TASKS + BUSY_TASKS / 2;

/// Returns how many polls of always-ready tasks, of 50 µs each, run before another task sees bytes
/// that arrive while half of them have run.
fn long_polls_until_bytes_are_seen(builder: Builder) -> u32 {
    run_on(builder, async {
        let (ours, mut remote) = std::os::unix::net::UnixStream::pair()?;
        let mut stream = UnixStream::from_std(ours)?;
        let receiver = spawn(async move {
            for _ in 0..2 {
                stream.recv().await?.ok_or(ErrorKind::UnexpectedEof)?;
            }
            std::io::Result::Ok(())
        });
        // Arms the receive.
        remote.write_all(b"bytes")?;
        while counters().expect("not in a runtime").enters < 3 {
            yield_now().await;
        }
        let polls = Rc::new(Cell::new(0));
        let remote = Rc::new(remote);
        for _ in 0..BUSY_TASKS {
            let (polls, remote) = (polls.clone(), remote.clone());
            spawn(async move {
                loop {
                    polls.set(polls.get() + 1);
                    if polls.get() == BYTES_ARRIVE_AT {
                        (&*remote).write_all(b"bytes").expect("the socket is full");
                    }
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_micros(50) {
                        std::hint::spin_loop();
                    }
                    yield_now().await;
                }
            });
        }
        receiver.await??;
        Ok(polls.get() - BYTES_ARRIVE_AT)
    })
}

#[test]
fn an_event_waits_about_one_round_of_busy_tasks() {
    for builder in builders() {
        let polls = long_polls_until_bytes_are_seen(builder);
        assert!(polls <= BUSY_TASKS + BUSY_TASKS / 4, "{polls} polls of {BUSY_TASKS} busy tasks");
    }
}

#[test]
fn an_interval_of_zero_is_refused() {
    let error = Runtime::builder().event_interval(0).build().unwrap_err();
    assert!(error.to_string().contains("event_interval of 0"), "{error}");
}
