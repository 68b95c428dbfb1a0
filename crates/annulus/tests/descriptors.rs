//! Invariants 2, 9 and 10: no descriptor is leaked. One at a time, since the process's descriptors are counted.

mod common;

use annulus::net::{TcpListener, TcpStream};
use annulus::time::sleep;
use annulus::{spawn, yield_now};
use common::{open_descriptors, pair, run, touch};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Turns the loop until no more descriptors are open than before.
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
fn the_end_leaves_no_descriptor_open() {
    let _alone = alone();
    // Once before, so that lazily opened ones are there.
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
