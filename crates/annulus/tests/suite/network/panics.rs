//! Panics of tasks: a panic fails the run unless the program takes the error from the task's
//! handle.

use super::{SECOND, echo};
use annulus::sim::{Network, Sim, find_failure, run_on};
use annulus::task::{JoinHandle, JoinSet};
use annulus::time::sleep;
use annulus::{Runtime, spawn};
use annulus_kernel::Kernel;
use std::future::pending;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Panics after a second.
async fn fails() {
    sleep(SECOND).await;
    panic!("number {}", 4);
}

/// Returns the message of a run that panics.
fn panic_of<T>(run: impl FnOnce() -> io::Result<T>) -> String {
    let run = AssertUnwindSafe(|| run().map(drop));
    let panic = catch_unwind(run).expect_err("the run did not panic");
    panic.downcast_ref::<String>().expect("the panic has no text").clone()
}

/// Runs a server, and a client that waits for two seconds.
fn with_server<F: Future<Output = io::Result<()>> + 'static>(
    server: impl FnMut() -> F + 'static,
) -> io::Result<()> {
    let network = Network::new(1);
    network.host("server", server)?;
    network.client("client", async {
        sleep(2 * SECOND).await;
        io::Result::Ok(())
    })?;
    network.run()
}

/// Returns the expected report, without the fraction of its time.
fn report(host: &str, line: u32) -> String {
    format!("{host}number 4\n  panic of the task spawned at {}:{line}, at 1", file!())
}

#[test]
fn a_panicking_detached_task_fails_the_run_with_host_place_and_time() {
    let line = line!() + 3;
    let panic = panic_of(|| {
        with_server(async || {
            drop(spawn(fails()));
            echo().await
        })
    });
    assert!(panic.starts_with(&report("server: ", line)), "{panic}");
}

#[test]
fn a_sweep_finds_the_panic_of_a_task() {
    let failed = find_failure(0..10, |seed| {
        with_server(move || async move {
            if seed == 3 {
                spawn(fails());
            }
            Ok(())
        })
    });
    let failed = failed.expect("no seed failed");
    assert_eq!(failed.seed, 3);
    assert!(failed.message.starts_with("server: number 4\n"), "{failed}");
}

#[test]
fn a_panic_taken_by_the_program_does_not_fail_the_run() -> io::Result<()> {
    with_server(async || {
        assert!(spawn(fails()).await.expect_err("the task did not panic").is_panic());
        let mut set = JoinSet::new();
        set.spawn(async { panic!("of a set") });
        let taken =
            set.join_next().await.expect("the set is empty").expect_err("the task did not panic");
        assert_eq!(taken.to_string(), "the task panicked: of a set");
        Ok(())
    })
}

#[test]
fn a_panic_is_lost_when_its_handle_is_dropped() {
    let (drops_handle, drops_set) = (line!() + 4, line!() + 13);
    let panics = [
        panic_of(|| {
            with_server(async || {
                let task = spawn(fails());
                sleep(SECOND * 3 / 2).await;
                drop(task);
                pending().await
            })
        }),
        panic_of(|| {
            with_server(async || {
                let mut set = JoinSet::new();
                set.spawn(fails());
                sleep(SECOND * 3 / 2).await;
                drop(set);
                pending().await
            })
        }),
    ];
    for (panic, line) in panics.iter().zip([drops_handle, drops_set]) {
        assert!(panic.starts_with(&report("server: ", line)), "{panic}");
    }
}

#[test]
fn a_handle_kept_until_a_crash_or_the_end_counts_as_awaited() -> io::Result<()> {
    let network = Network::new(1);
    network.host("server", async || {
        let _kept = spawn(fails());
        pending::<io::Result<()>>().await
    })?;
    let faults = network.clone();
    network.client("client", async move {
        sleep(2 * SECOND).await;
        faults.bounce("server")?;
        sleep(2 * SECOND).await;
        io::Result::Ok(())
    })?;
    network.run()
}

#[test]
fn a_panic_belongs_to_its_host_whichever_host_drops_the_handle() -> io::Result<()> {
    let network = Network::new(1);
    let (sender, receiver) = tokio::sync::oneshot::channel::<JoinHandle<()>>();
    let line = line!() + 2;
    network.client("one", async {
        _ = sender.send(spawn(fails()));
        pending::<io::Result<()>>().await
    })?;
    network.client("two", async {
        let task = receiver.await.expect("the other host sent no task");
        sleep(2 * SECOND).await;
        drop(task);
        pending::<io::Result<()>>().await
    })?;
    let panic = panic_of(|| network.run());
    let place = format!("one: number 4\n  panic of the task spawned at {}:{line}, at 2", file!());
    assert!(panic.starts_with(&place), "{panic}");
    Ok(())
}

#[test]
fn a_run_without_a_network_ends_at_the_panic_of_a_task() {
    let line = line!() + 2;
    let run = async |ticks: u32| {
        spawn(fails());
        for _ in 0..ticks {
            sleep(SECOND / 10).await;
        }
        pending::<io::Result<()>>().await
    };
    for ticks in [0, 1_000_000] {
        let sim = Sim::builder(1).build();
        let panic = panic_of(|| run_on(&sim, Runtime::builder(), run(ticks)));
        assert!(panic.starts_with(&report("", line)), "{panic}");
        assert!(sim.now() < 2 * SECOND);
    }
}
