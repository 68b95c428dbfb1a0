//! Invariant 18, and memory that an idle runtime returns to the system after seconds of virtual
//! time.

use crate::common;

use annulus::sim::{Link, Sim, run_on};
use annulus::time::sleep;
use annulus::{Runtime, counters};
use common::pair;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

fn simulate(sim: &Rc<Sim>, future: impl Future<Output = io::Result<()>>) {
    run_on(sim, Runtime::builder(), future).unwrap();
}

#[test]
fn closed_streams_leave_no_timers() {
    simulate(&Sim::builder(1).build(), async {
        for _ in 0..300 {
            let (mut client, mut server) = pair().await?;
            client.send("bye").await?;
            drop(client);
            server.recv().await?;
        }
        sleep(Duration::from_millis(50)).await;
        let before = counters().unwrap().enters;
        // Longer than a linger: if each stream had a timer, they would all fire within this time.
        sleep(Duration::from_secs(60)).await;
        let enters = counters().unwrap().enters - before;
        assert!(enters <= 5, "{enters} wake-ups of an idle runtime");
        Ok(())
    });
}

#[test]
fn recently_received_memory_is_not_returned() {
    let far = Link { latency: Duration::from_millis(500), ..Link::default() };
    let sim = Sim::builder(1).link(far).build();
    simulate(&sim, async {
        let (mut stream, mut peer) = pair().await?;
        peer.send("first").await?;
        stream.recv().await?;
        // The loop sleeps, so the kernel's timer is set and fires ten seconds later.
        sleep(Duration::from_millis(9_900)).await;
        peer.send("second").await?;
        sleep(Duration::from_millis(20)).await;
        // A task computes, so that the timer's event and the bytes are found together.
        sim.compute(Duration::from_secs(1));
        assert_eq!(&*stream.recv().await?.unwrap(), b"second");
        Ok(())
    });
}
