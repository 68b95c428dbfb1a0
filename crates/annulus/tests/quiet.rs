//! Invariant 18, and the memory that goes back in quiet times. These wait for real time to pass.

mod common;

use annulus::counters;
use annulus::time::sleep;
use common::{half_pair, pair, run};
use std::io::Write;
use std::time::Duration;

#[test]
fn closed_streams_leave_no_timers() {
    run(async {
        for _ in 0..300 {
            let (mut client, mut server) = pair().await?;
            client.send("bye").await?;
            drop(client);
            server.recv().await?;
        }
        sleep(Duration::from_millis(50)).await;
        let before = counters().unwrap().enters;
        // A lingering timer each would go off in here.
        sleep(Duration::from_secs(11)).await;
        let enters = counters().unwrap().enters - before;
        assert!(enters <= 5, "{enters} wake-ups of an idle runtime");
        Ok(())
    });
}

#[test]
fn memory_that_goes_back_is_not_what_has_just_come() {
    run(async {
        let (mut stream, mut peer) = half_pair().await?;
        peer.write_all(b"first")?;
        stream.recv().await?;
        // The loop sleeps, so that the kernel's timer is set; then it is quiet until after it went off.
        sleep(Duration::from_millis(20)).await;
        let peer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10_300));
            peer.write_all(b"second").map(|()| peer)
        });
        // A task that computes: the timer's event and the bytes are then found together.
        std::thread::sleep(Duration::from_millis(10_800));
        assert_eq!(&*stream.recv().await?.unwrap(), b"second");
        peer.join().unwrap()?;
        Ok(())
    });
}
