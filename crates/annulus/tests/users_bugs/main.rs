//! What users of other runtimes reported, each as a test by the name of its thread: project, number, symptom.
//!
//! The tests of `liburing#1627` (file locks that outlive the process) come with files: nothing here opens one.
#![allow(unsafe_code)]

mod cancel;
#[path = "../common/mod.rs"]
mod common;
mod end;
mod kernel;
mod memory;
mod setup;

use annulus::Runtime;
use annulus::sim::{Fault, Faults, Sim, run_on};
use std::future::Future;
use std::io;
use std::rc::Rc;

/// Runs a future on a simulated kernel, whole runtime included, and looks at what it leaves behind: nothing.
fn simulate<T>(sim: &Rc<Sim>, future: impl Future<Output = io::Result<T>>) -> T {
    let value = run_on(sim, Runtime::builder(), future).expect("the test's own steps succeed");
    sim.check();
    assert_eq!(sim.open_descriptors(), 0, "{:?}", sim.leftovers());
    assert_eq!(sim.pending_operations(), 0, "{:?}", sim.leftovers());
    value
}

/// A kernel whose cancels and completions come in unkind orders.
fn unkind(seed: u64) -> Rc<Sim> {
    let faults = [Fault::CancelLost, Fault::CancelSecond, Fault::Defer, Fault::Shuffle];
    let all = faults.into_iter().fold(Faults::none(), |all, fault| all.with(fault, 300));
    Sim::builder(seed).faults(all).poison(4096).build()
}
