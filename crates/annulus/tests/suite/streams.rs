//! Sources of values as streams of `futures`, and `select!` and `join!` of other crates.

use crate::common;

use annulus::net::{TcpListener, TcpStream};
use annulus::signal::{Signal, signals};
use annulus::task::{spawn_blocking, yield_now};
use annulus::time::{Instant, interval, sleep};
use annulus::{shards, sim, spawn};
use common::run;
use futures_util::stream::FusedStream;
use futures_util::{FutureExt, StreamExt, join, select, select_biased, stream};
use rustix::process::{getpid, kill_process};
use std::io;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

#[test]
fn receivers_end_with_their_senders() {
    run(async {
        let (sender, values) = shards::channel(4);
        for number in 0..4 {
            sender.send(number).await.unwrap();
        }
        drop(sender);
        assert_eq!(values.collect::<Vec<_>>().await, [0, 1, 2, 3]);
        Ok(())
    });
}

#[test]
fn a_stream_is_terminated_only_once_it_is_exhausted() {
    run(async {
        let (sender, mut values) = shards::channel(4);
        sender.send(1).await.unwrap();
        drop(sender);
        assert_eq!((values.next().await, values.is_terminated()), (Some(1), false));
        assert_eq!((values.next().await, values.is_terminated()), (None, true));
        Ok(())
    });
}

/// A waiting stream is woken by new values and by the end.
#[test]
fn streams_wait_for_new_items() {
    run(async {
        let (sender, mut values) = shards::channel(4);
        let seen = spawn(async move { (values.next().await, values.next().await) });
        yield_now().await;
        sender.send("one").await.unwrap();
        yield_now().await;
        drop(sender);
        assert_eq!(seen.await?, (Some("one"), None));
        Ok(())
    });
}

#[test]
fn intervals_tick_as_a_stream() {
    sim::run(5, async {
        let began = Instant::now();
        let period = Duration::from_secs(10);
        let ticks: Vec<_> = interval(period).take(4).map(|due| due - began).collect().await;
        assert_eq!(ticks, [0, 1, 2, 3].map(|number| period * number));
        io::Result::Ok(())
    })
    .unwrap();
}

/// The documentation shows this way of accepting connections.
#[test]
fn connections_arrive_as_a_stream() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let clients = stream::iter(0..10).map(|_| TcpStream::connect(address));
        let served = stream::poll_fn(|cx| listener.poll_accept(cx).map(Some)).take(10);
        let (clients, served) =
            join!(clients.buffer_unordered(4).collect::<Vec<_>>(), served.collect::<Vec<_>>());
        assert!(clients.iter().all(Result::is_ok) && served.iter().all(Result::is_ok));
        Ok(())
    });
}

#[test]
fn signals_arrive_as_a_stream() {
    run(async {
        let mut caught = signals(&[Signal::SIGUSR2])?;
        kill_process(getpid(), rustix::process::Signal::USR2)?;
        assert_eq!(caught.next().await.unwrap()?, Signal::SIGUSR2);
        Ok(())
    });
}

/// The guide shows this loop over several sources, which ends when its token is cancelled.
#[test]
fn futures_select_works_over_streams_futures_and_a_token() {
    run(async {
        let (sender, mut values) = shards::channel(4);
        let stop = CancellationToken::new();
        let child = stop.child_token();
        let (report, reported) = oneshot::channel();
        let serves = spawn(async move {
            let mut cancelled = pin!(child.cancelled().fuse());
            let mut once = pin!(sleep(Duration::from_millis(1)).fuse());
            let (mut sum, mut report) = (0, Some(report));
            loop {
                select_biased! {
                    value = values.select_next_some() => sum += value,
                    () = once => report.take().expect("the report was sent twice").send("slept").unwrap(),
                    () = cancelled => return sum,
                }
            }
        });
        for value in 1..=4 {
            sender.send(value).await.unwrap();
        }
        assert_eq!(reported.await, Ok("slept"));
        stop.cancel();
        assert_eq!(serves.await?, 10);
        Ok(())
    });
}

#[test]
fn a_select_over_streams_that_have_ended_completes() {
    run(async {
        let (one, mut ones) = shards::channel(1);
        let (two, mut twos) = shards::channel(1);
        one.send(1).await.unwrap();
        two.send(2).await.unwrap();
        drop((one, two));
        let mut sum = 0;
        loop {
            select! {
                value = ones.select_next_some() => sum += value,
                value = twos.select_next_some() => sum += value,
                complete => break,
            }
        }
        assert_eq!(sum, 3);
        Ok(())
    });
}

/// These macros need neither fused futures nor a tokio runtime.
#[test]
fn tokio_select_and_join_work() {
    run(async {
        let (sender, mut values) = shards::channel(4);
        let ((), both) = tokio::join!(
            async {
                sender.send(1).await.unwrap();
            },
            async {
                tokio::select! {
                    value = values.recv() => value,
                    () = sleep(Duration::from_secs(1000)) => None,
                }
            },
        );
        assert_eq!(both, Some(1));
        let (one, two) = tokio::try_join!(spawn(async { 1 }), spawn_blocking(|| 2))?;
        assert_eq!(one + two, 3);
        Ok(())
    });
}

#[test]
fn tokio_util_cancellation_token_works() {
    run(async {
        let stop = CancellationToken::new();
        let child = stop.child_token();
        let ended =
            spawn(async move { child.run_until_cancelled(std::future::pending::<()>()).await });
        yield_now().await;
        stop.cancel();
        assert_eq!(ended.await?, None);
        Ok(())
    });
}
