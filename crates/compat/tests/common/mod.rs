//! Runs a test's body on each driver, as a guest of tokio, and on a simulated kernel.
#![allow(dead_code, reason = "no test program uses all of it")]

use annulus::sim::{Link, Sim};
use annulus::time::timeout;
use annulus::{DriverChoice, Runtime};
use std::error::Error;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;
pub(crate) type Outcome = Result<(), Failure>;

/// Time after which a hanging test fails.
const MAX_TEST_TIME: Duration = Duration::from_secs(60);

/// Runs on io_uring, on epoll, and as a guest of tokio.
pub(crate) fn everywhere<F: Future<Output = Outcome>>(body: impl Fn() -> F) {
    on_drivers(&body);
    as_guest(body());
}

/// Runs on io_uring and on epoll.
pub(crate) fn on_drivers<F: Future<Output = Outcome>>(body: impl Fn() -> F) {
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        let mut runtime = Runtime::builder().driver(driver).build().unwrap();
        runtime.block_on(timeout(MAX_TEST_TIME, body())).expect("the test hangs").unwrap();
    }
}

/// Runs as a guest of tokio.
pub(crate) fn as_guest<F: Future<Output = Outcome>>(body: F) {
    let within = async { tokio::time::timeout(MAX_TEST_TIME, body).await.expect("the test hangs") };
    annulus_tokio::run(within).unwrap().unwrap();
}

/// Runs as a guest of tokio, on io_uring and on epoll.
pub(crate) fn as_guests<F: Future<Output = Outcome>>(body: impl Fn() -> F) {
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        let within =
            async { tokio::time::timeout(MAX_TEST_TIME, body()).await.expect("the test hangs") };
        let ran = annulus_tokio::run_with(Runtime::builder().driver(driver), within);
        ran.unwrap().unwrap_or_else(|failure| panic!("{driver:?}: {failure}"));
    }
}

/// Runs on a simulated kernel, in virtual time. Its network has delays but no faults.
pub(crate) fn simulated<F: Future<Output = Outcome>>(body: impl FnOnce(Rc<Sim>) -> F) {
    simulated_with(Runtime::builder(), body);
}

/// Like [`simulated`], but with runtime settings.
pub(crate) fn simulated_with<F: Future<Output = Outcome>>(
    builder: annulus::Builder,
    body: impl FnOnce(Rc<Sim>) -> F,
) {
    let sim = Sim::builder(1).build();
    annulus::sim::run_on(&sim, builder, body(sim.clone())).unwrap();
}

/// Runs on twenty simulated networks without faults, from fast ones to slow ones with jitter.
pub(crate) fn on_networks<F: Future<Output = Outcome>>(body: impl Fn() -> F) {
    for seed in 0..20 {
        let link = Link {
            latency: Duration::from_micros(seed * seed * 100),
            jitter: Duration::from_micros(seed * 50),
            ..Link::default()
        };
        let sim = Sim::builder(seed).link(link).build();
        let ran = annulus::sim::run_on(&sim, Runtime::builder(), body());
        ran.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}
