//! Runs a test once for each of many seeds.

use super::disturb::Tally;
#[cfg(doc)]
use super::network::Network;
use crate::tasks::panic_message;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The environment variable with the only seed to run.
const SEED_VARIABLE: &str = "ANNULUS_SIM_SEED";
/// The environment variable with the number of seeds to run.
const SEED_COUNT_VARIABLE: &str = "ANNULUS_SIM_SEEDS";

/// Runs a test once for each seed. Panics at the first seed that fails, with the seed and the
/// command that replays it. A panic of the test is a failure. It is also a failure if the test
/// requests [disturbances](Network::disturb) and, over several seeds, none has begun.
///
/// `ANNULUS_SIM_SEED=n` runs only the seed `n`, even if it is outside the range, and prints the
/// disturbances of the network. `ANNULUS_SIM_SEEDS=n` runs `n` seeds, beginning with the first of
/// the range.
///
/// ```
/// use annulus::sim::{Network, check};
///
/// check(0..50, |seed| {
///     let network = Network::new(seed);
///     network.client("test", async { std::io::Result::Ok(()) })?;
///     network.run()
/// });
/// ```
///
/// # Panics
/// If the test fails for a seed; if disturbances were requested but none has begun; if the range is
/// empty; if one of these environment variables is not a number; or if `ANNULUS_SIM_SEEDS` is zero.
#[track_caller]
pub fn check<E: fmt::Display>(seeds: Range<u64>, test: impl FnMut(u64) -> Result<(), E>) {
    let count = match number(SEED_COUNT_VARIABLE).filter(|_| !is_replay()) {
        Some(0) => {
            panic!(
                "{SEED_COUNT_VARIABLE}=0 runs nothing; give the number of seeds, at least 1, or unset it"
            )
        }
        Some(count) => count,
        None if seeds.is_empty() => panic!("{seeds:?} has no seed; give a range such as 0..1000"),
        None => seeds.end - seeds.start,
    };
    let last = seeds.start.saturating_add(count - 1);
    if let Some(failed) = find_failure(seeds.start..=last, test) {
        panic!("{failed}");
    }
}

/// Like [`check`], but returns the first seed that fails instead of panicking. Use it to test that
/// a test can fail. `ANNULUS_SIM_SEED=n` runs only the seed `n` here too.
///
/// ```
/// let failed = annulus::sim::find_failure(0..100, |seed| if seed < 17 { Ok(()) } else { Err("too large") });
/// assert_eq!(failed.unwrap().seed, 17);
/// ```
///
/// # Panics
/// If disturbances were requested but none has begun over several seeds; or if `ANNULUS_SIM_SEED`
/// is not a number.
#[track_caller]
pub fn find_failure<E: fmt::Display>(
    seeds: impl IntoIterator<Item = u64>,
    test: impl FnMut(u64) -> Result<(), E>,
) -> Option<FailedSeed> {
    match number(SEED_VARIABLE) {
        Some(seed) => sweep([seed], test),
        None => sweep(seeds, test),
    }
}

#[track_caller]
fn sweep<E: fmt::Display>(
    seeds: impl IntoIterator<Item = u64>,
    mut test: impl FnMut(u64) -> Result<(), E>,
) -> Option<FailedSeed> {
    let mut count = 0_u64;
    let mut seeds = seeds.into_iter().inspect(|_| count += 1);
    let (failed, tally) = Tally::of(|| seeds.find_map(|seed| failure(seed, &mut test)));
    drop(seeds);
    if failed.is_none() && tally.has_none_begun() {
        let remedy = tally.remedy();
        match count {
            1 => eprintln!("note: nothing was disturbed; {remedy}"),
            _ => panic!("nothing was disturbed by any of {count} seeds; {remedy}"),
        }
    }
    failed
}

fn failure<E: fmt::Display>(
    seed: u64,
    test: &mut impl FnMut(u64) -> Result<(), E>,
) -> Option<FailedSeed> {
    let message = match catch_unwind(AssertUnwindSafe(|| test(seed))) {
        Ok(Ok(())) => return None,
        Ok(Err(error)) => error.to_string(),
        Err(panic) => panic_message(&panic).to_owned(),
    };
    Some(FailedSeed { seed, message })
}

/// A seed for which a test has failed. It is displayed with the command that replays it.
///
/// ```
/// use annulus::sim::{FailedSeed, find_failure};
///
/// let failed: FailedSeed = find_failure([4], |_| Err("lost an update")).expect("it always fails");
/// assert_eq!((failed.seed, &*failed.message), (4, "lost an update"));
/// assert!(failed.to_string().contains("ANNULUS_SIM_SEED=4 cargo test"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedSeed {
    /// The seed with which the test failed.
    pub seed: u64,
    /// The error, or the message of the panic.
    pub message: String,
}

impl fmt::Display for FailedSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, message } = self;
        write!(f, "seed {seed}: {message}\nreplay: {SEED_VARIABLE}={seed} cargo test")?;
        // Set by `cargo test`. In a workspace, other packages may have a test of the same name.
        if let Ok(package) = std::env::var("CARGO_PKG_NAME") {
            write!(f, " -p {package}")?;
        }
        let thread = std::thread::current();
        match thread.name().filter(|name| *name != "main") {
            Some(test) => write!(f, " {test} -- --exact --nocapture"),
            None => Ok(()),
        }
    }
}

/// Returns true if `ANNULUS_SIM_SEED` is set.
pub(super) fn is_replay() -> bool {
    std::env::var_os(SEED_VARIABLE).is_some()
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var_os(variable)?;
    let Some(number) = value.to_str().and_then(|text| text.parse().ok()) else {
        let text = value.display();
        panic!("{variable}={text} is not a number; give one from 0 to {}", u64::MAX)
    };
    Some(number)
}
