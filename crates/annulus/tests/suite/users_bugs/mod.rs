//! Bugs that users of other runtimes reported. Each test is named after its thread: project,
//! number, symptom.
//!
//! `liburing#1627` (file locks outlive their process) has no test here, since these tests open no
//! files. `files/locks.rs` tests locks.
#![allow(unsafe_code)]

mod cancel;
mod datagrams;
mod end;
pub(crate) mod kernel;
mod memory;
mod setup;

use annulus::Runtime;
use annulus::sim::{Fault, Faults, Sim, run_on};
use annulus_kernel::Kernel;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// Runs a future on a runtime of its own over the simulated kernel, and checks that the runtime
/// ends at once and leaves nothing behind.
fn simulate<T>(sim: &Rc<Sim>, future: impl Future<Output = io::Result<T>>) -> T {
    let builder = Runtime::builder().shutdown_timeout(Duration::from_millis(100));
    let timed = async { future.await.map(|value| (value, sim.now())) };
    let (value, end) = run_on(sim, builder, timed).expect("a step of the test failed");
    assert!(
        sim.now() - end < Duration::from_secs(1),
        "the runtime waited for an operation at its end: {:?}",
        sim.leftovers()
    );
    sim.check();
    assert_eq!(sim.open_descriptors(), 0, "{:?}", sim.leftovers());
    assert_eq!(sim.pending_operations(), 0, "{:?}", sim.leftovers());
    value
}

/// Returns a kernel whose cancels and completions arrive in unfavourable orders.
fn unkind(seed: u64) -> Rc<Sim> {
    let faults = [Fault::CancelLost, Fault::CancelSecond, Fault::Defer, Fault::Shuffle];
    let all = faults.into_iter().fold(Faults::none(), |all, fault| all.with(fault, 300));
    Sim::builder(seed).faults(all).poison(4096).build()
}
