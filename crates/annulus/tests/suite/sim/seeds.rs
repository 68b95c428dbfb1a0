//! Runs many seeds on all cores, and prints how to replay one.

use crate::sim::foreign::is_foreign;
use annulus::time::Instant;
use std::cell::Cell;
use std::ops::{AddAssign, Range};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once};

/// Sums over all runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) runs: u64,
    pub(crate) operations: u64,
    pub(crate) faults: u64,
    pub(crate) bytes: u64,
    pub(crate) datagrams: u64,
    pub(crate) cancels: u64,
    /// Values, wakers and owners of bytes that panic.
    pub(crate) panics: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, more: Self) {
        self.runs += more.runs;
        self.operations += more.operations;
        self.faults += more.faults;
        self.bytes += more.bytes;
        self.datagrams += more.datagrams;
        self.cancels += more.cancels;
        self.panics += more.panics;
    }
}

thread_local! {
    /// The test and seed that this thread is running.
    static CURRENT: Cell<Option<(&'static str, u64)>> = const { Cell::new(None) };
}

/// Returns the number in an environment variable.
pub(crate) fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| match text.parse() {
        Ok(number) => number,
        Err(_) => panic!("{variable}={text} is not a number; give one from 0 to {}", u64::MAX),
    })
}

/// Returns true if a single seed was requested.
pub(crate) fn only_one() -> bool {
    std::env::var_os("ANNULUS_SIM_SEED").is_some()
}

/// Runs `body` for each seed, and prints the sums and the time. `body` returns the hash of the
/// seed's trace.
pub(crate) fn each(
    test: &'static str,
    seeds: Range<u64>,
    body: impl Fn(u64, &mut Totals) -> u64 + Sync,
) -> Totals {
    let seeds = match number("ANNULUS_SIM_SEED", u64::MAX) {
        u64::MAX => seeds,
        seed => seed..seed + 1,
    };
    print_replay_on_panic();
    let start = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let totals = Mutex::new(Totals::default());
    let work = || {
        let mut own = Totals::default();
        while let Some(seed) = take(&next, seeds.end) {
            CURRENT.set(Some((test, seed)));
            let ran = catch_unwind(AssertUnwindSafe(|| body(seed, &mut own)));
            // After a failure, the other threads take no further seed.
            ran.unwrap_or_else(|panic| {
                next.store(seeds.end, Ordering::Relaxed);
                if is_foreign(&*panic) {
                    eprintln!("a foreign panic left the runtime");
                    print_replay();
                }
                resume_unwind(panic)
            });
        }
        *totals.lock().unwrap() += own;
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    let totals = *totals.lock().unwrap();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{test}: {totals:?} in {seconds:.1} s: {:.0} simulated operations a second",
        totals.operations as f64 / seconds
    );
    totals
}

/// Returns the next seed of the range.
fn take(next: &AtomicU64, end: u64) -> Option<u64> {
    let seed = next.fetch_add(1, Ordering::Relaxed);
    (seed < end).then_some(seed)
}

fn print_replay_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if is_foreign(info.payload()) {
                return;
            }
            usual(info);
            print_replay();
        }));
    });
}

fn print_replay() {
    if let Some((test, seed)) = CURRENT.get() {
        eprintln!(
            "replay: ANNULUS_SIM_SEED={seed} cargo test --release -p annulus --test suite {test} -- --exact"
        );
    }
}
