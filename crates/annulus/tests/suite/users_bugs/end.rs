//! How a runtime ends.

use crate::common::{pair, run, touch};
use crate::users_bugs::{simulate, unkind};
use annulus::net::{TcpListener, TcpStream};
use annulus::sim::Sim;
use annulus::time::sleep;
use annulus::{DriverChoice, Lease, Runtime, spawn};
use std::rc::Rc;
use std::time::Duration;

/// The runtime's end waited for an accept that would never complete.
#[test]
fn tokio_uring_102_shutdown_hangs_on_a_pending_accept() {
    let mut runtime = Runtime::new().unwrap();
    let accepting = async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.accept().await.map(drop)
    };
    let settle = async {
        drop(spawn(accepting));
        sleep(Duration::from_millis(1)).await;
    };
    runtime.block_on(settle);
    let waiting = runtime.waiting().join("\n");
    assert!(waiting.contains("to accept"), "{waiting}");
    // The drop returns. A unit test of the shutdown checks that the accept itself ends, rather than
    // the deadline.
    drop(runtime);
}

/// In virtual time, with an accept, a receive, a send and a connect in flight.
#[test]
fn tokio_uring_102_shutdown_hangs_on_anything_pending() {
    for seed in 0..40 {
        simulate(&unkind(seed), async {
            let listener = TcpListener::bind("127.0.0.1:7000")?;
            let (mut stream, mut peer) = pair().await?;
            spawn(async move { listener.accept().await.map(drop) });
            spawn(async move { stream.recv().await.map(drop) });
            spawn(async move { peer.send(vec![7; 2 << 20]).await });
            spawn(async { TcpStream::connect("127.0.0.1:7000").await.map(drop) });
            sleep(Duration::from_micros(seed * 10)).await;
            Ok(())
        });
    }
}

/// The values that outlive a runtime.
type Rest = (TcpStream, Lease, TcpListener, TcpStream);

/// The ring was dropped before the values that depend on it, which then accessed it.
#[test]
fn kimojio_rs_40_teardown_order() {
    for order in 0..4 {
        let sim = Sim::builder(order).build();
        let rest = end_before(&sim);
        assert_eq!(sim.pending_operations(), 0, "{:?}", sim.leftovers());
        let (stream, lease, listener, peer) = rest;
        assert_eq!(&*lease, b"still here");
        match order {
            0 => drop((stream, lease, listener, peer)),
            1 => drop((lease, listener, peer, stream)),
            2 => drop((peer, lease, stream, listener)),
            _ => drop((listener, stream, peer, lease)),
        }
        assert_eq!(sim.open_descriptors(), 0, "{:?}", sim.leftovers());
    }
}

/// Builds a runtime and ends it with a receive, a send and an accept in flight.
fn end_before(sim: &Rc<Sim>) -> Rest {
    let kernel = sim.clone();
    let builder = Runtime::builder().driver(DriverChoice::Uring).kernel(kernel);
    let mut runtime = builder.shutdown_timeout(Duration::from_millis(1)).build().unwrap();
    let rest = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:7000")?;
        assert!(touch(listener.accept()).is_none());
        let (mut stream, mut peer) = pair().await?;
        peer.send("still here").await?;
        let lease = stream.recv().await?.expect("the stream ended too early");
        assert!(touch(stream.recv()).is_none());
        drop(touch(peer.send(vec![1; 4 << 20])));
        std::io::Result::Ok((stream, lease, listener, peer))
    });
    drop(runtime);
    rest.unwrap()
}

/// On Linux, the values that outlive the runtime are dropped one after the other.
#[test]
fn kimojio_rs_40_teardown_order_on_linux() {
    let (stream, lease) = run(async {
        let (mut stream, mut peer) = pair().await?;
        peer.send("still here").await?;
        let lease = stream.recv().await?.expect("the stream ended too early");
        assert!(touch(stream.recv()).is_none());
        Ok((stream, lease))
    });
    drop(stream);
    assert_eq!(&*lease, b"still here");
}
