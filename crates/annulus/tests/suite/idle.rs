//! Invariant 18, and memory that an idle runtime returns to the system after seconds of virtual
//! time.

use crate::common;

use crate::users_bugs::kernel::Bent;
use annulus::sim::{Link, Sim, run_on};
use annulus::time::{sleep, timeout};
use annulus::{DriverChoice, Runtime, counters};
use annulus_skip::skip;
use common::{half_pair, pair};
use std::cell::RefCell;
use std::future::Future;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::thread;
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

/// ADR 0065: until a distant deadline, no wait costs the kernel a timer.
#[test]
fn waits_before_a_distant_deadline_have_no_timeout() {
    let timeouts = Rc::new(RefCell::new(Vec::new()));
    let kernel = Rc::new(Bent::NotesTimeouts(timeouts.clone()));
    let builder = Runtime::builder().driver(DriverChoice::Uring).kernel(kernel);
    let mut runtime = match builder.build() {
        Ok(runtime) => runtime,
        Err(error) => return skip!("no io_uring here: {error}"),
    };
    let test = async {
        let (mut stream, mut peer) = half_pair().await?;
        let echo = thread::spawn(move || {
            let mut byte = [0];
            while peer.read_exact(&mut byte).is_ok() {
                peer.write_all(&byte).expect("the stream is closed");
            }
        });
        timeouts.borrow_mut().clear();
        for _ in 0..100 {
            let answer = async {
                stream.send("x").await?;
                stream.recv().await
            };
            // Each deadline is later than the one before.
            let answer = timeout(Duration::from_secs(3600), answer).await;
            assert_eq!(answer.expect("an hour has passed")?.as_deref(), Some(&b"x"[..]));
        }
        // The check for silent streams is due before the first deadline, so it replaces the timer:
        // only the wait in between has a timeout.
        let distant = timeouts.take();
        assert!(distant.len() > 10, "the loop hardly slept: {distant:?}");
        assert!(distant.iter().flatten().count() <= 1, "{distant:?}");
        let near = Duration::from_millis(5);
        // A sleep whose time is up before the loop gets to wait says nothing.
        while timeouts.borrow().is_empty() {
            sleep(near).await;
        }
        let waits = timeouts.take();
        assert!(waits.iter().any(|wait| wait.is_some_and(|limit| limit <= near)), "{waits:?}");
        stream.shutdown().await?;
        echo.join().expect("the echo panicked");
        io::Result::Ok(())
    };
    runtime.block_on(test).unwrap();
}
