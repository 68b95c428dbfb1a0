//! Foreign wakers, several of which panic in one turn.

use crate::common::pair;
use crate::unwinding::foreign::{
    Bomb, Count, Here, PanicsOnDrop, poll_with, waker_of, waker_that_panics,
    waker_whose_clone_panics,
};
use crate::unwinding::mode::everywhere;
use annulus::net::{ConnectionLimit, ListenOptions, TcpListener, TcpStream, UdpSocket};
use annulus::shards::{Cause, Shards, channel};
use annulus::spawn;
use annulus::task::yield_now;
use annulus::time::sleep;
use std::future::{pending, poll_fn};
use std::io;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::pin;
use std::task::Context;
use std::time::Duration;

#[test]
fn panicking_waker_drops_in_one_turn_are_all_contained() {
    everywhere(|mut stage| {
        let count = Count::default();
        stage.play(async {
            let (mut one, mut other) = pair().await?;
            for stream in [&mut one, &mut other] {
                let waker = waker_of(PanicsOnDrop(count.clone()));
                assert!(poll_with(pin!(stream.recv()), &waker).is_pending());
            }
            // Both wakers are dropped with the streams.
            drop((one, other));
            yield_now().await;
            Ok(())
        });
        assert_eq!(count.get(), 2);
        stage.end();
    });
}

#[test]
fn panicking_wakes_in_one_turn_all_happen_and_are_contained() {
    everywhere(|mut stage| {
        stage.play(async {
            let (mut one, mut other) = pair().await?;
            one.send("for the other").await?;
            other.send("for the one").await?;
            let streams = [one, other];
            let readers = streams.map(|mut stream| {
                spawn(async move {
                    let mut received = pin!(stream.recv());
                    let foreign = |cx: &mut std::task::Context<'_>| {
                        poll_with(received.as_mut(), &waker_that_panics(cx.waker()))
                    };
                    poll_fn(foreign).await.map(|lease| lease.is_some())
                })
            });
            for reader in readers {
                assert!(reader.await.expect("the task panicked")?);
            }
            Ok(())
        });
        stage.end();
    });
}

#[test]
fn all_wakers_are_dropped_one_by_one_at_shutdown() {
    everywhere(|mut stage| {
        let count = Count::default();
        let fault = || waker_of(PanicsOnDrop(count.clone()));
        let kept = stage.play(async {
            let (mut stream, peer) = pair().await?;
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            assert!(poll_with(pin!(stream.recv()), &fault()).is_pending());
            let mut accepts = Box::pin(async move { listener.accept().await.map(drop) });
            assert!(poll_with(accepts.as_mut(), &fault()).is_pending());
            let mut receives = Box::pin(async move { socket.recv().await.map(drop) });
            assert!(poll_with(receives.as_mut(), &fault()).is_pending());
            let mut sleeps: Vec<_> =
                (0..3).map(|_| Box::pin(sleep(Duration::from_secs(3600)))).collect();
            for sleep in &mut sleeps {
                assert!(poll_with(sleep.as_mut(), &fault()).is_pending());
            }
            Ok((stream, peer, accepts, receives, sleeps))
        });
        let (runtime, sim) = stage.into_parts();
        drop(runtime);
        assert_eq!(count.get(), 6);
        drop(kept);
        crate::unwinding::mode::nothing_left(sim.as_deref());
    });
}

/// Listing what tasks wait for runs no code of a foreign waker: it neither clones nor drops one.
#[test]
fn listing_waits_does_not_clone_wakers_of_timers() {
    everywhere(|mut stage| {
        stage.play(async {
            let mut sleep = Box::pin(sleep(Duration::from_secs(3600)));
            let waker = waker_whose_clone_panics(false);
            assert!(poll_with(sleep.as_mut(), &waker).is_pending());
            let waits = spawn(yield_now());
            _ = waker_whose_clone_panics(true);
            assert_eq!(annulus::handle()?.tasks().await?.len(), 1);
            _ = waker_whose_clone_panics(false);
            waits.await?;
            Ok(())
        });
        stage.end();
    });
}

/// A joiner's waker is foreign if another executor polls the handle.
#[test]
fn panicking_wakers_of_joiners_are_contained() {
    everywhere(|mut stage| {
        let count = Count::default();
        let fault = || waker_of(PanicsOnDrop(count.clone()));
        stage.play(async {
            let mut task = spawn(pending::<()>());
            assert!(poll_with(pin!(&mut task), &fault()).is_pending());
            // Replaces the first waker.
            assert!(poll_with(pin!(&mut task), &fault()).is_pending());
            assert_eq!(count.get(), 1);
            // Drops the second waker while a panic of the dropping task unwinds.
            let dropping = spawn(async move {
                let _task = task;
                panic!("drops the handle while unwinding");
            });
            assert!(dropping.await.is_err());
            assert_eq!(count.get(), 2);
            Ok(())
        });
        stage.end();
    });
}

#[test]
fn panicking_wakers_of_timers_are_contained() {
    everywhere(|mut stage| {
        let count = Count::default();
        let fault = || waker_of(PanicsOnDrop(count.clone()));
        stage.play(async {
            let mut timer = Box::pin(sleep(Duration::from_secs(3600)));
            for _ in 0..2 {
                assert!(poll_with(timer.as_mut(), &fault()).is_pending());
            }
            assert_eq!(count.get(), 1);
            let dropping = spawn(async move {
                let _timer = timer;
                panic!("drops the timer while unwinding");
            });
            assert!(dropping.await.is_err());
            assert_eq!(count.get(), 2);
            Ok(())
        });
        stage.end();
    });
}

/// The wakers that sends and receives wake are foreign code, and so are values dropped when a
/// channel closes.
#[test]
fn channels_contain_panics_of_wakers_and_values() {
    let count = Count::default();
    let fault = || Here(PanicsOnDrop(count.clone()));
    let (sender, mut receiver) = channel(3);
    let waker = waker_of(fault());
    assert!(receiver.poll_recv(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    assert!(sender.try_send(fault()).is_ok(), "the value was not sent because the wake panicked");
    assert_eq!(count.get(), 1);
    assert!(sender.try_send(fault()).is_ok() && sender.try_send(fault()).is_ok());
    let waker = waker_of(fault());
    let mut waits = Box::pin(sender.send(fault()));
    assert!(poll_with(waits.as_mut(), &waker).is_pending());
    drop(waker);
    drop(receiver);
    assert_eq!(count.get(), 5, "not three values and two wakers were dropped");
    // Dropping the value to be sent panics here too.
    forget(catch_unwind(AssertUnwindSafe(|| drop(waits))));
}

/// Several shards panic at once: the first panic is reported, and the rest are contained.
#[test]
fn shards_contain_further_panics() {
    let ran = Shards::new(3).run(async |_| {
        panic_any(Bomb);
        #[expect(unreachable_code, reason = "the type of the result")]
        Ok::<(), io::Error>(())
    });
    let error = ran.unwrap_err();
    assert!(matches!(error.cause, Cause::Panicked(_)));
    // The drop of the error panics.
    forget(error);
}

/// Cloning a waker also runs foreign code. That happens while a future is polled, and never in the
/// loop itself.
#[test]
fn the_loop_does_not_clone_the_waker_of_an_accept() {
    everywhere(|mut stage| {
        stage.play(async {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            let mut accepts = pin!(listener.accept());
            assert!(poll_with(accepts.as_mut(), &waker_whose_clone_panics(false)).is_pending());
            let foreign = waker_whose_clone_panics(true);
            let _client = TcpStream::connect(address).await?;
            while poll_with(accepts.as_mut(), &foreign).is_pending() {
                yield_now().await;
            }
            waker_whose_clone_panics(false);
            Ok(())
        });
        stage.end();
    });
}

/// The loop finds that the listener has reached its limit.
#[test]
fn the_loop_does_not_clone_the_waker_of_a_limited_accept() {
    everywhere(|mut stage| {
        stage.play(async {
            let options = ListenOptions::new().limit(&ConnectionLimit::new(1));
            let listener = options.bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            let first = TcpStream::connect(address).await?;
            let (only, _) = listener.accept().await?;
            let mut accepts = pin!(listener.accept());
            let foreign = waker_whose_clone_panics(false);
            assert!(poll_with(accepts.as_mut(), &foreign).is_pending());
            waker_whose_clone_panics(true);
            let _second = TcpStream::connect(address).await?;
            // The loop learns of a connection that it may not accept.
            sleep(Duration::from_millis(20)).await;
            waker_whose_clone_panics(false);
            assert!(
                poll_with(accepts.as_mut(), &foreign).is_pending(),
                "a connection above the limit was accepted"
            );
            drop((only, first));
            accepts.await.map(drop)
        });
        stage.end();
    });
}
