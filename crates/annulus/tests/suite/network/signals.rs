//! Signals on a simulated network: caught signals, signals that end a program, and the example's
//! graceful shutdown under faults.

#[path = "../../../examples/shutdown.rs"]
#[expect(dead_code, reason = "its `main` is the test")]
mod shutdown;

use super::{SECOND, echo};
use annulus::net::{TcpListener, TcpStream};
use annulus::signal::{Signal, signals, until_terminated};
use annulus::sim::{Disturbance, Disturbances, Link, Network, check, run_on};
use annulus::time::sleep;
use annulus::{Runtime, spawn};
use std::cell::RefCell;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::rc::Rc;

#[test]
fn a_program_gets_only_the_signals_that_it_catches() -> io::Result<()> {
    let network = Network::new(1);
    let got = Rc::new(RefCell::new(Vec::new()));
    let noted = got.clone();
    network.host("service", move || {
        let noted = noted.clone();
        async move {
            let mut caught = signals(&[Signal::SIGHUP, Signal::SIGTERM])?;
            loop {
                let signal = caught.recv().await?;
                noted.borrow_mut().push(signal);
                if signal == Signal::SIGTERM {
                    return io::Result::Ok(());
                }
            }
        }
    })?;
    let sends = network.clone();
    network.client("client", async move {
        for signal in [Signal::SIGHUP, Signal::SIGCHLD, Signal::SIGHUP, Signal::SIGTERM] {
            sleep(SECOND).await;
            sends.signal("service", signal)?;
        }
        sleep(SECOND).await;
        let unknown = sends.signal("other", Signal::SIGTERM).unwrap_err();
        assert!(unknown.to_string().contains("no host 'other'"), "{unknown}");
        let client = sends.signal("client", Signal::SIGTERM).unwrap_err();
        assert!(client.to_string().contains("'client' is a client"), "{client}");
        io::Result::Ok(())
    })?;
    network.run()?;
    assert_eq!(*got.borrow(), [Signal::SIGHUP, Signal::SIGHUP, Signal::SIGTERM]);
    Ok(())
}

#[test]
fn an_uncaught_signal_ends_the_program_until_it_is_restarted() -> io::Result<()> {
    let network = Network::new(1);
    network.host("server", echo)?;
    let sends = network.clone();
    network.client("client", async move {
        let mut stream = TcpStream::connect("server:7").await?;
        stream.send("x").await?;
        assert_eq!(&*stream.recv_exact(1).await?, b"x");
        sends.signal("server", Signal::SIGWINCH)?;
        stream.send("y").await?;
        assert_eq!(&*stream.recv_exact(1).await?, b"y");
        sends.signal("server", Signal::SIGTERM)?;
        // The host's kernel closes the connection. After a crash, the connection would stay
        // half-open.
        assert!(
            stream.recv().await.is_ok_and(|lease| lease.is_none()) || stream.recv().await.is_err()
        );
        let refused = TcpStream::connect("server:7").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        // A host that is down gets no signal.
        sends.signal("server", Signal::SIGTERM)?;
        sends.bounce("server")?;
        sleep(SECOND).await;
        TcpStream::connect("server:7").await.map(drop)
    })?;
    network.run()
}

/// The host's kernel sends what the program has sent, although another program starts on the host.
#[test]
fn a_restart_after_a_signal_loses_no_bytes_in_flight() -> io::Result<()> {
    let network = Network::new(1);
    network.host("server", async || {
        let listener = TcpListener::bind("0.0.0.0:7")?;
        let (mut stream, _) = listener.accept().await?;
        stream.send("goodbye").await?;
        pending::<io::Result<()>>().await
    })?;
    let sends = network.clone();
    let link = Link { latency: SECOND, ..Link::default() };
    network.client("client", async move {
        sends.link("client", "server", Some(link))?;
        let mut stream = TcpStream::connect("server:7").await?;
        sleep(SECOND / 10).await;
        sends.signal("server", Signal::SIGTERM)?;
        sends.bounce("server")?;
        assert_eq!(&*stream.recv_exact(7).await?, b"goodbye");
        assert!(stream.recv().await?.is_none());
        io::Result::Ok(())
    })?;
    network.run()
}

#[test]
fn until_terminated_also_ends_later_calls() -> io::Result<()> {
    let network = Network::new(1);
    network.host("service", || async {
        spawn(until_terminated(pending()));
        until_terminated(pending()).await?;
        until_terminated(pending()).await?;
        spawn(until_terminated(pending())).await.expect("the task panicked")
    })?;
    let sends = network.clone();
    network.client("client", async move {
        sleep(SECOND).await;
        sends.signal("service", Signal::SIGINT)?;
        sleep(SECOND).await;
        io::Result::Ok(())
    })?;
    network.run()?;
    // Without a network, no signal arrives, and the error says that a task waits for one.
    let sim = annulus::sim::Sim::builder(1).build();
    let waits = run_on(&sim, Runtime::builder(), async {
        spawn(until_terminated(pending())).await.expect("the task panicked")
    });
    let error = waits.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadlock);
    assert!(error.to_string().contains("for a signal"), "{error}");
    Ok(())
}

/// The second signal ends a host whose shutdown takes forever, unless its program waits for that
/// signal.
#[test]
fn a_second_signal_ends_a_host_that_is_shutting_down() -> io::Result<()> {
    for catches in [false, true] {
        let network = Network::new(1);
        let got = Rc::new(RefCell::new(Vec::new()));
        let noted = got.clone();
        network.host("server", move || {
            let noted = noted.clone();
            async move {
                spawn(echo());
                until_terminated(pending()).await?;
                noted.borrow_mut().push("asked");
                if catches {
                    let mut again = signals(&[Signal::SIGINT])?;
                    loop {
                        again.recv().await?;
                        noted.borrow_mut().push("again");
                    }
                }
                pending::<io::Result<()>>().await
            }
        })?;
        let sends = network.clone();
        network.client("client", async move {
            sleep(SECOND).await;
            sends.signal("server", Signal::SIGTERM)?;
            sleep(SECOND).await;
            TcpStream::connect("server:7").await?;
            sends.signal("server", Signal::SIGINT)?;
            sleep(SECOND).await;
            let connected = TcpStream::connect("server:7").await;
            assert_eq!(connected.is_ok(), catches);
            io::Result::Ok(())
        })?;
        network.run()?;
        assert_eq!(*got.borrow(), if catches { &["asked", "again"][..] } else { &["asked"] });
    }
    Ok(())
}

/// A line that the server received before the signal is answered, whatever the network does to the
/// bytes in flight.
#[test]
fn a_graceful_shutdown_loses_no_line_under_faults() {
    check(0..100, |seed| {
        let network = Network::new(seed);
        network.host("server", || shutdown::server("0.0.0.0:80".into(), 120))?;
        let sends = network.clone();
        network.client("client", async move {
            let mut stream = TcpStream::connect("server:80").await?;
            let disturbances = Disturbances {
                kinds: &[Disturbance::Partition, Disturbance::Delay, Disturbance::Slow],
                // Shorter than the server's probes of a silent connection take.
                length: SECOND / 1000..2 * SECOND,
                ..Disturbances::default()
            };
            sends.disturb(disturbances.clone());
            for _ in 0..3 {
                stream.send("line\n").await?;
                assert_eq!(&*stream.recv_exact(5).await?, b"LINE\n");
            }
            sends.calm();
            sleep(2 * SECOND).await;
            stream.send("last\n").await?;
            // The line has arrived, and its second of work has not ended.
            sleep(SECOND / 2).await;
            sends.signal("server", Signal::SIGTERM)?;
            sends.disturb(disturbances);
            assert_eq!(&*stream.recv_exact(5).await?, b"LAST\n");
            assert!(stream.recv().await?.is_none(), "bytes arrived after the last line");
            sends.calm();
            sleep(SECOND).await;
            let refused = TcpStream::connect("server:80").await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            io::Result::Ok(())
        })?;
        network.run()
    });
}
