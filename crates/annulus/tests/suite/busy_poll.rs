//! Busy polling finds events that arrive soon, stops if none arrive, and misses no wake.

use crate::common;
use annulus_skip::skip;

use annulus::sim::{Link, Sim, run_on};
use annulus::task::yield_now;
use annulus::time::{Instant, sleep};
use annulus::{DriverChoice, Runtime, counters, spawn};
use annulus_kernel::{Kernel, Linux};
use common::{echo, pair, receive};
use std::io;
use std::rc::Rc;
use std::time::Duration;

const LOOK: Duration = Duration::from_micros(50);

/// Returns a simulated network with this latency.
fn network(latency: Duration) -> Rc<Sim> {
    let link = Link { latency, ..Link::default() };
    Sim::builder(1).link(link).build()
}

/// Sends questions one after the other. Returns the number of busy polls, and how many of them
/// found something.
async fn ask(questions: usize) -> io::Result<(u64, u64)> {
    let (mut client, server) = pair().await?;
    spawn(echo(server));
    let before = counters().unwrap_or_default();
    for _ in 0..questions {
        client.send("question").await?;
        receive(&mut client, 8).await?;
    }
    let after = counters().unwrap_or_default();
    Ok((after.busy_polls - before.busy_polls, after.busy_poll_hits - before.busy_poll_hits))
}

fn asked_over(latency: Duration) -> (u64, u64) {
    let builder = Runtime::builder().busy_poll(LOOK);
    run_on(&network(latency), builder, ask(1000)).unwrap()
}

#[test]
fn events_that_arrive_soon_are_found() {
    let (looks, finds) = asked_over(Duration::from_micros(10));
    // A round has two busy polls, for the question and for the answer. Nearly all find something.
    assert!(looks >= 1900 && finds >= looks - 10, "{finds} of {looks} busy polls found something");
}

#[test]
fn busy_polls_become_rare_if_nothing_arrives_in_time() {
    let (looks, finds) = asked_over(Duration::from_millis(1));
    assert_eq!(finds, 0);
    assert!((5..100).contains(&looks), "{looks} busy polls found nothing");
}

#[test]
fn busy_polling_is_off_by_default() {
    let sim = network(Duration::from_micros(10));
    assert_eq!(run_on(&sim, Runtime::builder(), ask(100)).unwrap(), (0, 0));
}

#[test]
fn a_timer_ends_a_busy_poll() {
    let builder = Runtime::builder().busy_poll(Duration::from_secs(1));
    let slept = run_on(&network(LOOK), builder, async {
        let began = Instant::now();
        for _ in 0..100 {
            sleep(Duration::from_millis(1)).await;
        }
        Ok::<_, io::Error>(Instant::now().duration_since(began))
    });
    assert!(slept.unwrap() < Duration::from_millis(110), "the timer did not end the busy poll");
}

#[test]
fn a_wake_from_another_thread_ends_a_busy_poll() {
    let builder = Runtime::builder().driver(DriverChoice::Uring);
    let Ok(mut runtime) = builder.busy_poll(Duration::from_secs(1)).build() else {
        return skip!("io_uring is blocked here");
    };
    let handle = runtime.handle();
    let (said, heard) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        for number in 0..100 {
            let said = said.clone();
            drop(handle.spawn(async move { said.send(number) }).unwrap());
            assert_eq!(heard.recv().unwrap(), number);
        }
        handle.stop();
    });
    let began = Linux.now();
    let stopped = runtime.try_block_on(std::future::pending::<()>()).unwrap_err();
    assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    other.join().unwrap();
    let passed = Linux.now() - began;
    assert!(
        passed < Duration::from_secs(50),
        "each wake waited for the end of a busy poll: {passed:?}"
    );
}

#[test]
fn local_wakes_do_not_wait_for_a_busy_poll() {
    let builder = Runtime::builder().busy_poll(Duration::from_secs(1));
    let sim = network(LOOK);
    let done = run_on(&sim, builder, async {
        for _ in 0..1000 {
            yield_now().await;
        }
        Ok::<_, io::Error>(counters().unwrap_or_default().busy_polls)
    });
    assert_eq!(done.unwrap(), 0, "the loop slept before a local wake");
}

#[test]
fn impossible_busy_polling_is_refused() {
    let build = |look, choice| Runtime::builder().driver(choice).busy_poll(look).build();
    let text = build(Duration::from_secs(2), DriverChoice::Auto).unwrap_err().to_string();
    assert_eq!(text, "busy_poll of 2s is above 1s; use less");
    let text = build(LOOK, DriverChoice::Epoll).unwrap_err().to_string();
    assert!(text.starts_with("busy_poll of 50µs needs io_uring"), "{text}");
}
