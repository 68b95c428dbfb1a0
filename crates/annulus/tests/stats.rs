//! Other threads ask a runtime about itself.

mod common;

use annulus::shards::channel;
use annulus::{Runtime, spawn, yield_now};
use common::run;
use std::future::pending;
use std::io;
use std::sync::mpsc::channel as std_channel;
use std::thread;
use std::time::Duration;

/// Far longer than an answer takes.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn another_thread_gets_the_stats_by_awaiting_and_by_blocking() {
    run(async {
        let _idle = [spawn(pending::<()>()), spawn(pending::<()>())];
        yield_now().await;
        let handle = annulus::handle()?;
        let (sender, mut receiver) = channel(2);
        let thread = thread::spawn(move || {
            let awaited = Runtime::new().unwrap().block_on(handle.stats());
            sender.try_send(awaited).unwrap();
            sender.try_send(handle.stats_blocking(PATIENCE)).unwrap();
        });
        for _ in 0..2 {
            let stats = receiver.recv().await.unwrap()?;
            // The task that asks is one more.
            assert_eq!(stats.tasks.alive, 3);
            assert!(stats.turns > 0);
            assert_eq!(stats.counters.enters, stats.counters.iter().next().unwrap().value);
        }
        thread.join().unwrap();
        Ok(())
    });
}

#[test]
fn a_blocking_request_on_the_runtimes_own_thread_is_answered_at_once() {
    run(async {
        let handle = annulus::handle()?;
        let stats = handle.stats_blocking(Duration::ZERO)?;
        assert_eq!(stats.tasks.alive, 0, "no task was needed");
        assert_eq!(annulus::stats().unwrap().turns, stats.turns);
        Ok(())
    });
}

#[test]
fn a_loop_that_does_not_turn_is_told_as_a_time_out() {
    let mut runtime = Runtime::new().unwrap();
    let handle = runtime.handle();
    let error = thread::spawn(move || handle.stats_blocking(Duration::from_millis(1)).unwrap_err());
    let error = error.join().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(error.to_string().contains("has not turned for 1ms"), "{error}");
    // What was given up leaves no task behind.
    runtime.block_on(annulus::yield_now());
    assert_eq!(runtime.stats().unwrap().tasks.alive, 0);
}

#[test]
fn after_the_end_there_are_no_stats() {
    let runtime = Runtime::new().unwrap();
    let handle = runtime.handle();
    // Asked before the end, and never answered.
    let (sender, receiver) = std_channel();
    let asking = {
        let handle = handle.clone();
        thread::spawn(move || {
            sender.send(()).unwrap();
            handle.stats_blocking(PATIENCE)
        })
    };
    receiver.recv().unwrap();
    drop(runtime);
    assert!(asking.join().unwrap().unwrap_err().to_string().contains("has ended"));
    assert!(handle.stats_blocking(PATIENCE).unwrap_err().to_string().contains("has ended"));
    let awaited = Runtime::new().unwrap().block_on(handle.stats());
    assert!(awaited.unwrap_err().to_string().contains("has ended"));
    assert!(annulus::stats().is_none());
}
