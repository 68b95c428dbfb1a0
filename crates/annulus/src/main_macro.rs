//! What `#[annulus::main]` and `#[annulus::test]` call if they have arguments.

use crate::runtime::{Builder, failed};
use std::future::Future;
#[cfg(feature = "sim")]
use std::io;

/// Runs a future on a runtime with these settings.
#[doc(hidden)]
#[track_caller]
pub fn run_with<F: Future>(builder: Builder, future: F) -> F::Output {
    match builder.build().and_then(|mut runtime| runtime.try_block_on(future)) {
        Ok(output) => output,
        Err(error) => failed("the macro", "Builder::build and try_block_on", &error),
    }
}

/// Like [`run_with`], but on a simulated kernel without faults.
#[cfg(feature = "sim")]
#[doc(hidden)]
#[track_caller]
pub fn run_paused<F: Future>(builder: Builder, future: F) -> F::Output {
    let sim = crate::sim::Sim::builder(0).build();
    match crate::sim::run_on(&sim, builder, async { io::Result::Ok(future.await) }) {
        Ok(output) => output,
        Err(error) => failed("the macro", "sim::run_on", &error),
    }
}
