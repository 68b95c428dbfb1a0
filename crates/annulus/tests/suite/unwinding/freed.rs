//! Memory lent to the kernel stays allocated, whatever panics. Otherwise, the kernel would send the
//! peer whatever the heap puts there next.

use crate::common::half_pair;
use crate::unwinding::foreign::{PanicsOnDrop, poll_with, waker_of};
use annulus::net::TcpStream;
use annulus::time::timeout;
use annulus::{DriverChoice, Runtime, spawn};
use annulus_ring::Features;
use std::future::pending;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::time::Duration;

/// The byte that is sent, and the byte written to reused memory.
const SENT: u8 = 0x11;
const REUSED: u8 = 0xEE;
/// Number of bytes, small enough that they come from the heap and not from a mapping of their own.
const PIECE: usize = 64 << 10;

/// Sends to a peer that does not read, until nothing more is accepted.
async fn fill(stream: &mut TcpStream) -> io::Result<()> {
    let full = Duration::from_millis(300);
    while timeout(full, stream.send(vec![SENT; PIECE])).await.is_ok() {}
    Ok(())
}

/// Returns the bytes that a peer reads up to the end of a connection.
fn read_all(mut peer: std::net::TcpStream) -> Vec<u8> {
    peer.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let (mut all, mut some) = (Vec::new(), vec![0; PIECE]);
    // A reset counts as the end too.
    while let Ok(count) = peer.read(&mut some)
        && count > 0
    {
        all.extend_from_slice(&some[..count]);
    }
    all
}

/// Ends a runtime after `prepare` has hidden something in it that panics. On io_uring, its sends
/// were zero-copy.
fn end_with<T>(prepare: impl AsyncFn(TcpStream) -> T) {
    let drivers = [DriverChoice::Uring, DriverChoice::Epoll];
    let lends = |features: Features| features.has("zero-copy sendmsg");
    let skipped = if Features::detect().is_ok_and(lends) { 0 } else { 1 };
    for driver in drivers.into_iter().skip(skipped) {
        let builder = Runtime::builder().driver(driver).shutdown_timeout(Duration::from_millis(20));
        let lend = (driver == DriverChoice::Uring).then_some(1024);
        let mut runtime = builder.zero_copy_threshold(lend).unsent_limit(1 << 20).build().unwrap();
        let prepared = runtime.block_on(async {
            let (mut stream, peer) = half_pair().await?;
            fill(&mut stream).await?;
            io::Result::Ok((peer, prepare(stream).await))
        });
        let (peer, kept) = prepared.unwrap();
        let ended = catch_unwind(AssertUnwindSafe(|| drop(runtime)));
        drop(kept);
        let reused: Vec<Vec<u8>> = (0..400).map(|_| vec![REUSED; PIECE]).collect();
        let read = read_all(peer);
        let wrong = read.iter().filter(|byte| **byte == REUSED).count();
        assert_eq!(wrong, 0, "{driver}: this many of {} bytes came from freed memory", read.len());
        assert!(
            read.iter().all(|byte| *byte == SENT),
            "{driver}: bytes of {} pieces",
            reused.len()
        );
        assert!(ended.is_ok(), "{driver}: a task's panic left the runtime");
    }
}

#[test]
fn a_task_whose_drop_panics_frees_nothing_that_the_kernel_reads() {
    end_with(async |stream| {
        spawn(async move {
            let _stream = stream;
            pending::<()>().await;
        });
        spawn(async {
            let _fault = PanicsOnDrop::default();
            pending::<()>().await;
        });
        annulus::task::yield_now().await;
    });
}

#[test]
fn a_waker_whose_drop_panics_frees_nothing_that_the_kernel_reads() {
    end_with(async |mut stream| {
        let waker = waker_of(PanicsOnDrop::default());
        assert!(poll_with(pin!(stream.recv()), &waker).is_pending());
        drop(waker);
        // The stream outlives the runtime, so that the waker is dropped at the very end.
        stream
    });
}
