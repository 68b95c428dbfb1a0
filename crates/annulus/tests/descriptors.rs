//! Invariants 2, 9 and 10: no descriptor is leaked. The tests run one at a time, since they count
//! the process's descriptors.

mod common;

use annulus::net::{TcpListener, TcpStream, UnixOptions};
use annulus::task::yield_now;
use annulus::time::sleep;
use annulus::{DriverChoice, Runtime, spawn};
use common::{open_descriptors, pair, run, touch};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the loop until as many descriptors are open as before, or fewer.
async fn until_closed(before: usize) {
    while open_descriptors() > before {
        sleep(Duration::from_micros(200)).await;
    }
}

#[test]
fn a_dropped_connect_closes_its_socket() {
    let _alone = alone();
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let before = open_descriptors();
        for _ in 0..20 {
            assert!(touch(TcpStream::connect(address)).is_none());
        }
        until_closed(before).await;
        Ok(())
    });
}

#[test]
fn a_dropped_connection_frees_its_descriptor_with_a_receive_armed() {
    let _alone = alone();
    run(async {
        let (first, second) = pair().await?;
        let before = open_descriptors();
        drop((first, second));
        for _ in 0..50 {
            let (mut a, mut b) = pair().await?;
            assert!(touch(a.recv()).is_none());
            assert!(touch(b.recv()).is_none());
            yield_now().await;
        }
        until_closed(before).await;
        Ok(())
    });
}

#[test]
fn shutdown_leaves_no_descriptor_open() {
    let _alone = alone();
    // Runs once first, so that lazily opened descriptors exist.
    run(async { pair().await.map(drop) });
    let before = open_descriptors();
    for _ in 0..20 {
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let (mut client, server) = pair().await?;
            client.send("unread").await?;
            spawn(async move {
                _ = (client.recv().await, server);
            });
            spawn(async move {
                _ = listener.accept().await;
            });
            yield_now().await;
            Ok(())
        });
    }
    assert_eq!(open_descriptors(), before);
}

/// Runs a future while the process may open at most `free` more descriptors.
async fn with_few_left<T>(free: u64, future: impl Future<Output = T>) -> T {
    use rustix::process::{Resource, getrlimit, setrlimit};

    let before = getrlimit(Resource::Nofile);
    let lowest_free =
        File::open("/dev/null").expect("the file cannot be opened").as_raw_fd() as u64;
    let few = rustix::process::Rlimit { current: Some(lowest_free + free), ..before };
    setrlimit(Resource::Nofile, few).expect("the limit cannot be lowered");
    let done = future.await;
    setrlimit(Resource::Nofile, before).expect("the limit cannot be restored");
    done
}

#[test]
fn received_descriptors_that_cannot_be_opened_are_reported() {
    let _alone = alone();
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        common::run_on(Runtime::builder().driver(driver), async {
            let three = || -> Vec<OwnedFd> {
                (0..3)
                    .map(|_| File::open("/dev/null").expect("the file cannot be opened").into())
                    .collect()
            };
            let (mut one, mut other) = UnixOptions::new().descriptors(true).pair()?;
            let open = open_descriptors();
            one.send_with_descriptors("bytes", three()).await?;
            one.drain().await?;
            until_closed(open).await;
            let error = with_few_left(1, other.recv_with_descriptors()).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
            assert!(error.to_string().ends_with("raise `ulimit -n`"), "{error}");
            let (bytes, left) =
                other.recv_with_descriptors().await?.expect("the stream ended too early");
            assert!(&*bytes == b"bytes" && left.len() < 3);

            one.send_with_descriptors("more", three()).await?;
            let (bytes, all) =
                other.recv_with_descriptors().await?.expect("the stream ended too early");
            assert!(&*bytes == b"more" && all.len() == 3);

            let (one, other) = UnixOptions::new().descriptors(true).datagram_pair()?;
            let open = open_descriptors();
            one.send_with_descriptors("datagram", three()).await?;
            one.drain().await?;
            until_closed(open).await;
            let message = with_few_left(1, other.recv_message()).await?;
            assert!(message.lost_descriptors && message.is_truncated());
            assert_eq!(&*message.bytes, b"datagram");
            Ok(())
        });
    }
}
