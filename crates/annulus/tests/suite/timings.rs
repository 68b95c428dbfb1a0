//! How long turns and polls take, and how long woken tasks wait.

use crate::common;

use annulus::stats::{Stats, Timings};
use annulus::task::yield_now;
use annulus::time::Instant;
use annulus::{Builder, DriverChoice, Runtime, spawn};
use common::run_on;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

const LIMIT: Duration = Duration::from_millis(5);

/// Returns a builder for epoll and one for the default driver.
fn builders() -> Vec<Builder> {
    let choices = [DriverChoice::Epoll, DriverChoice::Auto];
    choices.map(|choice| Runtime::builder().driver(choice)).to_vec()
}

/// Holds the loop for at least this long, according to the clock that measures it.
fn hold(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {}
}

async fn stats() -> io::Result<Stats> {
    annulus::handle()?.stats().await
}

async fn timings() -> io::Result<Timings> {
    Ok(stats().await?.timings.expect("the runtime does not measure"))
}

#[test]
fn nothing_is_measured_by_default() {
    for builder in builders() {
        let off = builder.clone().slow_poll(Some(LIMIT)).measure(true).measure(false);
        for builder in [builder, off] {
            run_on(builder, async {
                assert!(stats().await?.timings.is_none());
                // The flight recorder is always on.
                yield_now().await;
                let events = events(&annulus::handle()?.trace().await?);
                assert!(events.iter().any(|event| event.0 == "turn"), "{events:?}");
                Ok(())
            });
        }
    }
}

#[test]
fn two_turns_per_tenth_of_a_second_are_timed() {
    const ROUNDS: u64 = 3;
    for builder in builders() {
        let began = Instant::now();
        run_on(builder.measure(true), async {
            for _ in 0..10 {
                // These tasks are dropped with the runtime.
                drop(spawn(async {
                    loop {
                        yield_now().await;
                    }
                }));
            }
            let timings = loop {
                yield_now().await;
                let timings = timings().await?;
                if timings.turn.count() > 2 * (ROUNDS - 1) {
                    break timings;
                }
            };
            // The first round took place at once. Both ends of a period come from a clock that is
            // at most a few milliseconds late.
            let least = (ROUNDS - 1) as u32 * Duration::from_millis(90);
            assert!(began.elapsed() >= least, "{:?}", began.elapsed());
            let timed = timings.turn.count();
            assert!(timings.poll.count() > 5 * timed, "{timings:?}");
            // Each task wakes itself in the first of two timed turns. Its poll in the second turn
            // measures the wait.
            assert!(timings.wake_to_poll.count() > 2 * timed, "{timings:?}");
            assert_eq!(timings.slow_polls, 0);
            Ok(())
        });
    }
}

#[test]
fn a_task_that_blocks_the_loop_is_reported_with_its_spawn_place() {
    for builder in builders() {
        run_on(builder.slow_poll(Some(LIMIT)), async {
            let line = line!() + 1;
            let slow = spawn(async { hold(LIMIT) });
            slow.await.expect("the task panicked");
            let timings = timings().await?;
            assert!(timings.slow_polls >= 1);
            let place = |line| {
                move |slow: &&annulus::stats::SlowPoll| {
                    slow.spawned_at.is_some_and(|place| place.line() == line)
                }
            };
            let slow = timings
                .last_slow_polls
                .iter()
                .find(place(line))
                .expect("the slow poll was not kept");
            assert!(slow.took >= LIMIT && slow.ended >= slow.took, "{slow:?}");
            let text = slow.to_string();
            assert!(
                text.starts_with("the task spawned at ") && text.contains("timings.rs:"),
                "{text}"
            );
            assert!(timings.poll.max() >= LIMIT && timings.turn.max() >= LIMIT);
            Ok(())
        });
    }
}

#[test]
fn the_wait_of_a_task_includes_the_poll_that_woke_it() {
    for builder in builders() {
        run_on(builder.slow_poll(Some(LIMIT)), async {
            let notify = Rc::new(Notify::new());
            let waiting = notify.clone();
            let woken = spawn(async move { waiting.notified().await });
            // After these two turns, the task waits.
            yield_now().await;
            yield_now().await;
            let before = timings().await?.wake_to_poll;
            spawn(async move {
                notify.notify_one();
                hold(LIMIT);
            });
            woken.await.expect("the task panicked");
            let after = timings().await?.wake_to_poll;
            assert!(after.max() >= LIMIT && after.count() > before.count(), "{after:?}");
            Ok(())
        });
    }
}

#[test]
fn the_last_sixteen_slow_polls_are_kept_and_all_are_counted() {
    let limit = Duration::from_micros(200);
    for builder in builders() {
        run_on(builder.slow_poll(Some(limit)), async {
            for _ in 0..20 {
                // The root future is polled in these turns.
                hold(limit);
                yield_now().await;
            }
            let timings = timings().await?;
            assert!(timings.slow_polls >= 20, "{}", timings.slow_polls);
            assert_eq!(timings.last_slow_polls.len(), 16);
            let ends: Vec<_> = timings.last_slow_polls.iter().map(|slow| slow.ended).collect();
            assert!(ends.is_sorted(), "{ends:?}");
            let root = timings.last_slow_polls.last().unwrap();
            assert_eq!(root.spawned_at, None);
            assert!(root.to_string().starts_with("the future of block_on held the loop for "));
            Ok(())
        });
    }
}

#[test]
fn a_slow_poll_limit_of_zero_is_refused() {
    let refused = Runtime::builder().slow_poll(Some(Duration::ZERO)).build().unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("slow_poll of 0"), "{refused}");
}

/// Returns the events of a trace, one per line: name, kind, start and length in nanoseconds.
fn events(trace: &annulus::stats::Trace) -> Vec<(String, String, u64, u64)> {
    let text = trace.to_string();
    let lines = text.lines().filter(|line| line.starts_with("{\"name\""));
    let event = |line: &str| {
        let field = |name: &str| {
            let (_, rest) = line.split_once(&format!("\"{name}\":")).unwrap_or(("", "0}"));
            rest[..rest.find([',', '}']).expect("the field does not end")]
                .trim_matches('"')
                .to_owned()
        };
        let nanos =
            |name: &str| (field(name).parse::<f64>().expect("not a number") * 1000.0).round();
        (field("name"), field("ph"), nanos("ts") as u64, nanos("dur") as u64)
    };
    lines.map(event).collect()
}

#[test]
fn a_trace_has_each_poll_within_its_turn_and_the_waits_between() {
    for builder in builders() {
        run_on(builder.slow_poll(Some(LIMIT)), async {
            let line = line!() + 1;
            let holding = spawn(async { hold(2 * LIMIT) });
            holding.await.expect("the task panicked");
            let least = LIMIT.as_nanos() as u64;
            let is_long =
                |event: &(String, String, u64, u64)| event.0 == "wait" && event.3 >= least;
            let mut events = Vec::new();
            // A loop that is late does not have to wait.
            for _ in 0..100 {
                annulus::time::sleep(2 * LIMIT).await;
                yield_now().await;
                events = self::events(&annulus::handle()?.trace().await?);
                if events.iter().any(is_long) {
                    break;
                }
            }
            assert!(events.iter().any(is_long), "{events:?}");
            let place = format!("{}:{line}", file!());
            let poll = events
                .iter()
                .find(|event| event.0 == place)
                .expect("no poll of the task is in the trace");
            assert!(poll.3 >= 2 * least, "{poll:?}");
            let holds = |(name, _, began, took): &&(String, String, u64, u64)| {
                name == "turn" && *began <= poll.2 && poll.2 + poll.3 <= began + took
            };
            assert_eq!(events.iter().filter(holds).count(), 1, "{events:?}");
            // Turns and waits follow one another without overlapping.
            let of_loop =
                |event: &&(String, String, u64, u64)| event.0 == "turn" || event.0 == "wait";
            let spans: Vec<_> = events.iter().filter(of_loop).collect();
            assert!(spans.windows(2).all(|pair| pair[0].2 + pair[0].3 <= pair[1].2), "{spans:?}");
            assert!(events.iter().any(|event| event.1 == "C" && event.0 == "completions 0"));
            Ok(())
        });
    }
}

#[test]
fn a_stall_is_traced_with_the_polled_tasks_even_without_measuring() {
    for builder in builders() {
        run_on(builder, async {
            let line = line!() + 1;
            let holding = || spawn(async { hold(4 * LIMIT) });
            let polled = format!("polled {}:{line}", file!());
            let mut known = None;
            // A stall in one of the two timed turns per 100 ms is traced as a poll instead of a
            // `polled` event, so try again.
            let events = loop {
                annulus::time::sleep(LIMIT).await;
                holding().await.expect("the task panicked");
                annulus::time::sleep(LIMIT).await;
                let trace = annulus::handle()?.trace().await?;
                let stall = trace.last_stall(4 * LIMIT);
                assert!(stall > known, "{trace}");
                known = stall;
                let events = events(&trace);
                if events.iter().any(|event| event.0 == polled) {
                    break events;
                }
            };
            let at = events
                .iter()
                .position(|event| event.0 == polled)
                .expect("the poll is not in the trace");
            let turn = events[..at]
                .iter()
                .rfind(|event| event.0 == "turn")
                .expect("the turn is not in the trace");
            assert!(u128::from(turn.3) >= (4 * LIMIT).as_nanos(), "{events:?}");
            assert_eq!(turn.2, events[at].2, "{events:?}");
            let trace = annulus::handle()?.trace().await?;
            let is_shared = |event: &(String, String, u64, u64)| event.0.starts_with("turns");
            assert!(events.iter().any(is_shared), "{trace}");
            assert_eq!(trace.last_stall(Duration::from_secs(3600)), None);
            Ok(())
        });
    }
}

#[test]
fn a_trace_is_bounded() {
    for builder in builders() {
        run_on(builder.slow_poll(Some(Duration::from_secs(100))), async {
            for _ in 0..6000 {
                yield_now().await;
            }
            // One more event names the thread.
            assert_eq!(events(&annulus::handle()?.trace().await?).len(), 4096 + 1);
            Ok(())
        });
    }
}
