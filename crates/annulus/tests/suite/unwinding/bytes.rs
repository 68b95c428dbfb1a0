//! `Bytes` with an owner of the program's own. Dropping the owner uses streams, which must be
//! possible whether or not the runtime is running.

use crate::common::{pair, touch};
use crate::unwinding::foreign::{Count, Here, PanicsOnDrop};
use crate::unwinding::mode::{Stage, everywhere, nothing_left, on_rings};
use annulus::Runtime;
use annulus::net::{TcpStream, UdpSocket, UnixDatagram};
use annulus::task::yield_now;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// An owner of bytes that uses a stream when it is dropped, and counts the drops at which the
/// runtime allowed that.
struct Owner {
    bytes: Vec<u8>,
    stream: Option<TcpStream>,
    drops: Drops,
}

#[derive(Clone, Default)]
struct Drops {
    well: Rc<Cell<u32>>,
    badly: Rc<Cell<u32>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let stream = self.stream.take().expect("the value was dropped twice");
        let used = catch_unwind(AssertUnwindSafe(|| stream.local_addr().map(drop)));
        let free = match used {
            Ok(Err(error)) => error.to_string().contains("has ended"),
            Ok(Ok(())) => true,
            Err(_) => false,
        };
        let count = if free { &self.drops.well } else { &self.drops.badly };
        count.set(count.get() + 1);
    }
}

struct Owned(Here<Owner>);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.0.0.bytes
    }
}

fn bytes(len: usize, stream: TcpStream, drops: &Drops) -> Bytes {
    let owner = Owner { bytes: vec![7; len], stream: Some(stream), drops: drops.clone() };
    Bytes::from_owner(Owned(Here(owner)))
}

/// Runs a test, and checks that each value it sent was dropped once, and never while the runtime's
/// state was borrowed.
fn dropped_freely(mut stage: Stage, test: impl FnOnce(&mut Stage, &Drops) -> u32) {
    let drops = Drops::default();
    let made = test(&mut stage, &drops);
    stage.end();
    assert_eq!((drops.badly.get(), drops.well.get()), (0, made));
}

/// Runs a body, and then ends the run by a panic or by `Handle::stop`. Returns the body's value.
fn left_behind<T>(stage: &mut Stage, panics: bool, run: impl AsyncFnOnce() -> io::Result<T>) -> T {
    let left = RefCell::new(None);
    let handle = stage.runtime.handle();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        stage.runtime.try_block_on(async {
            *left.borrow_mut() = Some(run().await.unwrap());
            if panics {
                panic!("the root's own");
            }
            handle.stop();
            std::future::pending::<()>().await;
        })
    }));
    assert!(!ran.is_ok_and(|ran| ran.is_ok()), "the run ended without a panic or a stop");
    left.take().expect("the test ended too early")
}

#[test]
fn bytes_of_streams_aborted_outside_their_runtime_are_dropped() {
    for panics in [true, false] {
        everywhere(|stage| {
            dropped_freely(stage, |stage, drops| {
                let left = left_behind(stage, panics, async || {
                    let (mut stream, peer) = pair().await?;
                    let (owned, other) = pair().await?;
                    assert!(touch(stream.send(bytes(64 << 20, owned, drops))).is_none());
                    Ok((stream, peer, other))
                });
                left.0.abort();
                1
            });
        });
    }
}

#[test]
fn bytes_of_streams_that_outlive_their_runtime_are_dropped() {
    for panics in [true, false] {
        everywhere(|mut stage| {
            let drops = Drops::default();
            let left = left_behind(&mut stage, panics, async || {
                let (mut stream, peer) = pair().await?;
                let (owned, other) = pair().await?;
                assert!(touch(stream.send(bytes(64 << 20, owned, &drops))).is_none());
                Ok((stream, peer, other))
            });
            let (runtime, sim) = stage.into_parts();
            drop(runtime);
            assert_eq!((drops.badly.get(), drops.well.get()), (0, 1));
            drop(left);
            nothing_left(sim.as_deref());
        });
    }
}

#[test]
fn empty_or_refused_bytes_are_dropped() {
    everywhere(|stage| {
        dropped_freely(stage, |stage, drops| {
            stage.play(async {
                let (mut stream, _peer) = pair().await?;
                let (one, _other) = pair().await?;
                stream.send(bytes(0, one, drops)).await?;
                stream.shutdown().await?;
                let (one, _other) = pair().await?;
                assert!(stream.send(bytes(1, one, drops)).await.is_err());
                let socket = UdpSocket::bind("127.0.0.1:0")?;
                let (one, _other) = pair().await?;
                let to = socket.local_addr()?;
                assert!(socket.send_to(bytes(70_000, one, drops), to).await.is_err());
                yield_now().await;
                Ok(())
            });
            3
        });
    });
}

#[test]
fn bytes_of_sent_and_abandoned_datagrams_are_dropped() {
    everywhere(|stage| {
        dropped_freely(stage, |stage, drops| {
            stage.play(async {
                let (one, other) = UnixDatagram::pair()?;
                let mut made = 0;
                // The peer does not read, so the loop continues until no space is left.
                loop {
                    let (owned, _other) = pair().await?;
                    made += 1;
                    if touch(one.send(bytes(10_000, owned, drops))).is_none() || made == 50 {
                        break;
                    }
                }
                drop((one, other));
                Ok(made)
            })
        });
    });
}

#[test]
fn bytes_sent_without_a_copy_are_dropped() {
    on_rings(
        || Runtime::builder().zero_copy_threshold(Some(1)),
        |stage| {
            dropped_freely(stage, |stage, drops| {
                stage.play(async {
                    let (mut stream, mut peer) = pair().await?;
                    let (one, _other) = pair().await?;
                    stream.send(bytes(100, one, drops)).await?;
                    let (one, _other) = pair().await?;
                    stream.send(bytes(100, one, drops)).await?;
                    assert_eq!(crate::common::receive(&mut peer, 200).await?.len(), 200);
                    Ok(())
                });
                2
            });
        },
    );
}

#[test]
fn bytes_whose_drops_panic_are_all_dropped() {
    struct Panics(#[expect(dead_code, reason = "held for its drop")] Here<PanicsOnDrop>);

    impl AsRef<[u8]> for Panics {
        fn as_ref(&self) -> &[u8] {
            b"some bytes"
        }
    }

    everywhere(|mut stage| {
        let count = Count::default();
        let fault = || Bytes::from_owner(Panics(Here(PanicsOnDrop(count.clone()))));
        stage.play(async {
            let (mut one, mut other) = pair().await?;
            one.send_vectored([fault(), fault(), fault()]).await?;
            assert_eq!(crate::common::receive(&mut other, 30).await?.len(), 30);
            Ok(())
        });
        stage.end();
        assert_eq!(count.get(), 3);
    });
}
