//! Programs that use their network, fail or panic, and what is left after a run.

use super::{SECOND, echo};
use annulus::Runtime;
use annulus::sim::{Network, Sim};
use annulus::time::sleep;
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

thread_local! {
    static RUNNING: RefCell<Option<Network>> = const { RefCell::new(None) };
}

/// An error that inspects the network when it is displayed.
#[derive(Debug)]
struct Curious;

impl fmt::Display for Curious {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        RUNNING.with_borrow(|network| write!(f, "{network:?}"))
    }
}

impl Error for Curious {}

#[test]
fn a_program_may_use_its_network_when_it_is_called() -> io::Result<()> {
    let network = Network::new(1);
    let starts = Rc::new(Cell::new(0));
    let counted = starts.clone();
    network.host("counted", move || {
        counted.set(counted.get() + 1);
        pending::<io::Result<()>>()
    })?;
    let held = network.clone();
    network.host("restarter", move || {
        assert!(format!("{held:?}").contains("counted"));
        assert!(held.crash("client").is_err());
        held.bounce("counted").expect("the host cannot be restarted");
        pending::<io::Result<()>>()
    })?;
    network.client("client", async {
        sleep(SECOND).await;
        io::Result::Ok(())
    })?;
    network.run()?;
    assert_eq!(starts.get(), 2);
    Ok(())
}

#[test]
fn an_ended_run_holds_no_program_and_cannot_be_repeated() -> io::Result<()> {
    let network = Network::new(1);
    let held = network.clone();
    network.host("server", move || {
        let _held = held.clone();
        echo()
    })?;
    network.client("client", async { io::Result::Ok(()) })?;
    network.run()?;
    assert_eq!(network.run().expect_err("the network ran twice").kind(), ErrorKind::InvalidInput);
    let late = network
        .client("late", async { io::Result::Ok(()) })
        .expect_err("a client was added after the run");
    assert!(late.to_string().contains("'late' cannot be added"), "{late}");
    let sim = Rc::downgrade(network.sim());
    drop(network);
    assert!(sim.upgrade().is_none(), "the network is leaked");
    Ok(())
}

#[test]
fn the_error_of_a_run_contains_the_program_error() {
    let network = Network::new(1);
    RUNNING.set(Some(network.clone()));
    network.client("client", async { Err::<(), _>(Curious) }).unwrap();
    let error = network.run().expect_err("the client did not fail");
    assert!(error.to_string().starts_with("client: Some(Network"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Other);
    assert!(error.get_ref().and_then(Error::source).is_some_and(|source| source.is::<Curious>()));
    RUNNING.take();

    let network = Network::new(1);
    network
        .client("client", async { Err::<(), _>(io::Error::from(ErrorKind::BrokenPipe)) })
        .unwrap();
    assert_eq!(network.run().expect_err("the client did not fail").kind(), ErrorKind::BrokenPipe);
}

/// Returns the message of a run that panics, after checking that all its hosts were stopped.
fn panic_of(network: &Network) -> String {
    let panic =
        catch_unwind(AssertUnwindSafe(|| network.run())).expect_err("the run did not panic");
    assert_eq!((network.sim().open_descriptors(), network.sim().pending_operations()), (0, 0));
    panic.downcast_ref::<String>().expect("the panic has no text").clone()
}

#[test]
fn a_panic_is_reported_with_its_host_and_stops_the_run() -> io::Result<()> {
    let network = Network::new(1);
    network.host("server", echo)?;
    let line = line!() + 1;
    network.client("client", async {
        sleep(SECOND).await;
        if true { panic!("on purpose") } else { io::Result::Ok(()) }
    })?;
    let expected =
        format!("client: on purpose\n  panic of the task spawned at {}:{line}, at 1", file!());
    let panic = panic_of(&network);
    assert!(panic.starts_with(&expected), "{panic}");
    // The kernel no longer belongs to any host.
    let sim = network.sim();
    annulus::sim::run_on(sim, Runtime::builder(), async {
        annulus::net::TcpListener::bind("10.0.0.77:80").map(drop)
    })?;

    let network = Network::new(1);
    network.host("server", echo)?;
    network.host("broken", || -> std::future::Ready<io::Result<()>> { panic!("number {}", 4) })?;
    network.client("client", pending::<io::Result<()>>())?;
    let panic = panic_of(&network);
    assert!(panic.starts_with("broken: number 4\n"), "{panic}");
    Ok(())
}

#[test]
fn the_time_limit_counts_from_the_start_of_the_run() -> io::Result<()> {
    let sim = Sim::builder(1).build();
    sim.compute(7200 * SECOND);
    let network = Network::on(&sim, 1, Runtime::builder());
    network.client("client", async {
        sleep(SECOND).await;
        io::Result::Ok(())
    })?;
    network.run()?;

    let network = Network::on(&sim, 1, Runtime::builder());
    network.time_limit(SECOND / 100);
    network.client("busy", async {
        loop {
            annulus::task::yield_now().await;
        }
        #[allow(unreachable_code)]
        io::Result::Ok(())
    })?;
    assert_eq!(
        network.run().expect_err("a program that never waits ended").kind(),
        ErrorKind::TimedOut
    );
    Ok(())
}
