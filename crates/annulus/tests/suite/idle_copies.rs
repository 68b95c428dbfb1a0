//! The idle timeout of a copy in both directions, in virtual time.

use crate::common;

use annulus::io::{AsyncRecv, AsyncSend, CopyError, copy_bidirectional};
use annulus::net::TcpStream;
use annulus::sim::{Link, Sim};
use annulus::time::{Instant, sleep, timeout};
use annulus::{Builder, Runtime, spawn};
use common::piecewise::Piecewise;
use common::{pair, pattern, receive};
use std::io;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(10);

fn simulate_on(link: Link, builder: Builder, program: impl AsyncFnOnce() -> io::Result<()>) {
    let sim = Sim::builder(1).link(link).build();
    annulus::sim::run_on(&sim, builder, program()).unwrap();
}

fn simulate(program: impl AsyncFnOnce() -> io::Result<()>) {
    simulate_on(Link::default(), Runtime::builder(), program);
}

/// The result of a copy, and when it ended.
type End = (io::Result<(u64, u64)>, Instant);

/// Spawns a task that copies with the limit and returns the streams.
fn proxy<S: AsyncRecv + AsyncSend + 'static>(
    mut near: S,
    mut far: S,
) -> annulus::task::JoinHandle<(End, S, S)> {
    spawn(async move {
        let end = copy_bidirectional(&mut near, &mut far).idle_timeout(LIMIT).await;
        ((end, Instant::now()), near, far)
    })
}

/// Checks that the copy timed out with these bytes copied, not before the limit and at most about a
/// quarter of it later.
fn assert_timed_out((end, at): End, copied: (u64, u64), last: Instant) {
    let error = end.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    let copy_error = error.get_ref().and_then(|inner| inner.downcast_ref::<CopyError>());
    let copy_error = copy_error.expect("not a CopyError");
    assert_eq!((copy_error.direction(), copy_error.copied()), (None, copied));
    let idle = at - last;
    assert!(idle >= LIMIT && idle <= LIMIT + LIMIT / 4 + SECOND / 100, "{idle:?}");
}

/// Sends messages in one direction, with pauses shorter than the limit, and then nothing.
async fn messages_then_silence<S: AsyncRecv + AsyncSend + 'static>(
    wrap: impl Fn(TcpStream) -> S,
) -> io::Result<()> {
    for pause in [SECOND, LIMIT * 9 / 10, LIMIT - SECOND / 100] {
        let ((mut client, near), (far, mut server)) = (pair().await?, pair().await?);
        let copied = proxy(wrap(near), wrap(far));
        for number in 0..20 {
            sleep(pause).await;
            server.send(vec![number; 3]).await?;
            assert_eq!(receive(&mut client, 3).await?, [number; 3]);
        }
        let last = Instant::now();
        let (end, _near, _far) = copied.await.expect("the task panicked");
        // The proxy copied the last message slightly before the client received it.
        assert_timed_out(end, (0, 60), last - SECOND / 100);
    }
    Ok(())
}

#[test]
fn messages_postpone_the_timeout() {
    simulate(|| messages_then_silence(|stream| stream));
}

#[test]
fn messages_of_foreign_streams_postpone_the_timeout() {
    simulate(|| messages_then_silence(|stream| Piecewise(stream, usize::MAX)));
}

#[test]
fn a_timeout_leaves_both_streams_usable() {
    simulate(async || {
        let begun = Instant::now();
        let ((mut client, near), (far, mut server)) = (pair().await?, pair().await?);
        let copied = proxy(near, far);
        client.send("not answered").await?;
        client.shutdown().await?;
        assert_eq!(receive(&mut server, 99).await?, b"not answered");
        let (end, mut near, mut far) = copied.await.expect("the task panicked");
        assert_timed_out(end, (12, 0), begun);
        server.send("late").await?;
        assert_eq!(receive(&mut far, 4).await?, b"late");
        near.send("late").await?;
        assert_eq!(receive(&mut client, 4).await?, b"late");
        Ok(())
    });
}

#[test]
fn the_error_contains_the_limit() {
    simulate(async || {
        let ((_client, near), (far, _server)) = (pair().await?, pair().await?);
        let ((end, _), _near, _far) = proxy(near, far).await.expect("the task panicked");
        let text = "copying between two streams, after 0 bytes (0 the other way): no bytes were transferred for 10s, the limit \
                    of idle_timeout";
        assert_eq!(end.unwrap_err().to_string(), text);
        Ok(())
    });
}

#[test]
fn idle_timeouts_of_zero_and_forever_are_valid() {
    simulate(async || {
        let ((mut client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
        let copy = copy_bidirectional(&mut near, &mut far).idle_timeout(Duration::ZERO);
        assert_eq!(copy.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let mut copy = copy_bidirectional(&mut near, &mut far).idle_timeout(Duration::MAX);
        assert!(timeout(LIMIT * 1_000_000, &mut copy).await.is_err());
        client.shutdown().await?;
        server.shutdown().await?;
        assert_eq!(copy.await?, (0, 0));
        Ok(())
    });
}

#[test]
fn a_reader_that_stops_is_silent() {
    simulate(async || {
        let ((mut client, near), (far, server)) = (pair().await?, pair().await?);
        let copied = proxy(near, far);
        let sent = spawn(async move {
            let text = pattern(64_000);
            while client.send(text.clone()).await.is_ok() {}
        });
        let ((end, _), near, far) = copied.await.expect("the task panicked");
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::TimedOut);
        near.abort();
        far.abort();
        sent.await.expect("the task panicked");
        drop(server);
        Ok(())
    });
}

#[test]
fn a_reader_that_takes_queued_bytes_is_not_silent() {
    let small = Link { receive_buffer: 2000, send_buffer: 2000, ..Link::default() };
    simulate_on(small, Runtime::builder().unread_limit(1000), async || {
        let ((mut client, near), (far, mut server)) = (pair().await?, pair().await?);
        let copied = proxy(near, far);
        let text = pattern(8000);
        client.send(text.clone()).await?;
        client.shutdown().await?;
        let mut got = Vec::new();
        // The proxy has taken all bytes before the server reads the first part.
        for part in [4000, 4000] {
            sleep(LIMIT * 8 / 10).await;
            got.extend_from_slice(&server.recv_exact(part).await?);
        }
        assert!(got == text);
        assert!(server.recv().await?.is_none());
        server.shutdown().await?;
        let ((end, _), _near, _far) = copied.await.expect("the task panicked");
        assert_eq!(end?, (8000, 0));
        Ok(())
    });
}
