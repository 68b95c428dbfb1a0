//! A minimum wait collects the events of several clients, and delays neither a single client nor a
//! timer. NAPI busy polling changes nothing but the time of events.

use crate::common;
use annulus_skip::skip;

use annulus::sim::{Link, Sim, run_on};
use annulus::task::{JoinSet, yield_now};
use annulus::time::{Instant, sleep};
use annulus::{Builder, DriverChoice, Runtime, counters, spawn};
use annulus_ring::Features;
use common::{echo, pair, receive};
use std::io;
use std::time::Duration;

const MIN_WAIT: Duration = Duration::from_micros(100);
const LATENCY: Duration = Duration::from_micros(10);
const QUESTIONS: usize = 200;

/// Asks with several clients, each of which waits for its answers and pauses before it asks again.
/// Returns the number of system calls, and the time of the run.
fn ask(builder: Builder, clients: u64) -> (u64, Duration) {
    let link = Link { latency: LATENCY, ..Link::default() };
    let sim = Sim::builder(1).link(link).build();
    let asked = run_on(&sim, builder, async move {
        let (before, began) = (counters().unwrap_or_default(), Instant::now());
        let mut tasks = JoinSet::new();
        for number in 0..clients {
            let (mut client, server) = pair().await?;
            spawn(echo(server));
            tasks.spawn(async move {
                for _ in 0..QUESTIONS {
                    client.send("question").await?;
                    receive(&mut client, 8).await?;
                    sleep(Duration::from_micros(number + 1)).await;
                }
                Ok::<_, io::Error>(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.map_err(io::Error::other)??;
        }
        let after = counters().unwrap_or_default();
        Ok::<_, io::Error>((after.enters - before.enters, began.elapsed()))
    });
    asked.unwrap()
}

#[test]
fn events_of_many_clients_share_turns() {
    let (calls, _) = ask(Runtime::builder(), 20);
    let (fewer, _) = ask(Runtime::builder().min_wait(MIN_WAIT), 20);
    assert!(fewer < calls * 3 / 4, "{fewer} calls instead of {calls}");
}

#[test]
fn single_client_does_not_wait_for_a_batch() {
    let (_, usual) = ask(Runtime::builder(), 1);
    let (_, batched) = ask(Runtime::builder().min_wait(MIN_WAIT), 1);
    // Only the first question waits, because several events precede it.
    assert!(batched < usual + 3 * MIN_WAIT, "{batched:?} instead of {usual:?}");
}

#[test]
fn timers_do_not_wait_for_a_batch() {
    let link = Link { latency: LATENCY, ..Link::default() };
    let builder = Runtime::builder().min_wait(Duration::from_secs(1));
    let slept = run_on(&Sim::builder(1).link(link).build(), builder, async {
        // Two connections, so that the next sleep waits for a batch.
        let (_one, _two) = (pair().await?, pair().await?);
        yield_now().await;
        let began = Instant::now();
        sleep(Duration::from_millis(5)).await;
        Ok::<_, io::Error>(began.elapsed())
    });
    assert!(slept.unwrap() < Duration::from_millis(6), "the timer waited for a batch");
}

#[test]
fn each_setting_works_with_io_uring_of_this_kernel() {
    let features = Features::detect().unwrap_or_default();
    if !features.has("minimum wait") {
        return skip!("this kernel's io_uring has no minimum wait");
    }
    let builder = Runtime::builder().driver(DriverChoice::Uring);
    let builder = builder.min_wait(MIN_WAIT).napi_busy_poll(Duration::from_micros(50));
    let mut runtime = builder.build().unwrap();
    let asked = runtime.block_on(async {
        let (mut client, server) = pair().await?;
        spawn(echo(server));
        for _ in 0..QUESTIONS {
            client.send("question").await?;
            receive(&mut client, 8).await?;
        }
        Ok::<_, io::Error>(())
    });
    asked.unwrap();
}

#[test]
fn settings_that_epoll_lacks_or_that_are_too_long_are_refused() {
    let short = Duration::from_micros(50);
    for (builder, name) in [
        (Runtime::builder().min_wait(short), "min_wait"),
        (Runtime::builder().napi_busy_poll(short), "napi_busy_poll"),
    ] {
        let text = builder.driver(DriverChoice::Epoll).build().unwrap_err().to_string();
        assert!(text.starts_with(&format!("{name} of 50µs needs io_uring")), "{text}");
    }
    let error = Runtime::builder().min_wait(Duration::from_secs(2)).build().unwrap_err();
    assert_eq!(error.to_string(), "min_wait of 2s is above 1s; use less");
}
