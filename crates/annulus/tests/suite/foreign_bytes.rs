//! Bytes whose owner is a type of the program: its drop may run any code, and may use the runtime.

use crate::common;
use annulus_skip::skip;

use annulus::net::UdpSocket;
use annulus::{Chunk, DriverChoice, Runtime, counters};
use bytes::Bytes;
use common::{error_of, half_pair, pair, receive, touch};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// An owner of bytes that queries the runtime when it is dropped.
struct Asking(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Asking {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        _ = counters();
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// Converts a value to a chunk.
type Maker = fn(Asking) -> Chunk;

/// Runs a body on each driver with each kind of bytes. The body calls a function for bytes of a
/// given length. All of them are dropped in the end, and the body's result is dropped only after
/// the runtime.
fn dropped_in_the_end<T>(body: impl AsyncFn(&dyn Fn(usize) -> Chunk) -> io::Result<T>) {
    let makers: [Maker; 2] = [|asking| Bytes::from_owner(asking).into(), Chunk::from_owner];
    for driver in [DriverChoice::Epoll, DriverChoice::Uring] {
        for maker in makers {
            all_are_dropped(driver, maker, &body);
        }
    }
}

fn all_are_dropped<T>(
    driver: DriverChoice,
    maker: Maker,
    body: &impl AsyncFn(&dyn Fn(usize) -> Chunk) -> io::Result<T>,
) {
    let builder = Runtime::builder().driver(driver).linger(Duration::from_millis(20));
    let Ok(mut runtime) = builder.build() else {
        skip!("{driver} is blocked here");
        return;
    };
    let (made, dropped) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let make = |len| {
        made.fetch_add(1, Ordering::Relaxed);
        maker(Asking(vec![7; len], dropped.clone()))
    };
    let kept = runtime.block_on(body(&make)).unwrap();
    drop(runtime);
    drop(kept);
    assert_eq!(dropped.load(Ordering::Relaxed), made.load(Ordering::Relaxed));
}

#[test]
fn sent_bytes_are_dropped() {
    dropped_in_the_end(async |bytes| {
        let (mut one, mut other) = pair().await?;
        one.send_vectored([bytes(100), bytes(200_000), bytes(1)]).await?;
        assert_eq!(receive(&mut other, 200_101).await?.len(), 200_101);
        one.drain().await
    });
}

#[test]
fn abandoned_bytes_are_dropped() {
    dropped_in_the_end(async |bytes| {
        let (mut stream, peer) = half_pair().await?;
        assert!(touch(stream.send(bytes(64 << 20))).is_none());
        drop(stream);
        assert_eq!(error_of(&peer).await?.kind(), io::ErrorKind::ConnectionReset);
        let (mut stream, _peer) = pair().await?;
        assert!(touch(stream.send(bytes(64 << 20))).is_none());
        stream.abort();
        Ok(())
    });
}

#[test]
fn datagram_bytes_are_dropped_sent_or_refused() {
    dropped_in_the_end(async |bytes| {
        let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        let to = other.local_addr()?;
        one.send_to(bytes(100), to).await?;
        assert_eq!(other.recv().await?.len(), 100);
        let refused = one.send_to(bytes(70_000), to).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        one.drain().await
    });
}

#[test]
fn queued_bytes_are_dropped_with_the_runtime() {
    dropped_in_the_end(async |bytes| {
        let (mut stream, _peer) = half_pair().await?;
        assert!(touch(stream.send(bytes(64 << 20))).is_none());
        Ok(stream)
    });
}

#[test]
fn panic_in_a_drop_of_bytes_is_contained() {
    struct Panicking;

    impl AsRef<[u8]> for Panicking {
        fn as_ref(&self) -> &[u8] {
            b"some"
        }
    }

    impl Drop for Panicking {
        fn drop(&mut self) {
            panic!("a drop that panics");
        }
    }

    common::run(async {
        let (mut one, mut other) = pair().await?;
        one.send(Bytes::from_owner(Panicking)).await?;
        one.send(Chunk::from_owner(Panicking)).await?;
        one.send("more").await?;
        assert_eq!(receive(&mut other, 12).await?, b"somesomemore");
        Ok(())
    });
}
