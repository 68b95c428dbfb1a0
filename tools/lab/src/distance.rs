//! How far apart two cores are: how long a cache line takes from one to the other and back.
//!
//! Every message between a server and its load takes such trips. Within a processor, groups of cores
//! share a cache, and a trip between two groups takes several times as long. The host of a virtual
//! machine may move its cores between groups at any time.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use annulus_load::{affinity, clock};

use crate::cores::Cores;

/// The number of round trips whose mean is one measurement.
const TRIPS: u64 = 500;

/// The number of measurements. The shortest counts, because the others were interrupted.
const REPEATS: u64 = 4;

/// How long a thread waits for the other's reply before it gives up.
const TIMEOUT: Duration = Duration::from_millis(100);

impl Cores {
    /// Returns how long a cache line takes from the servers' core to the load's and back, in ns;
    /// `None` if they are one core, or one is not available.
    pub(crate) fn distance(self) -> Option<f64> {
        (self.server != self.load).then(|| distance(self.server, self.load))?
    }
}

fn distance(one: usize, other: usize) -> Option<f64> {
    let ball = &Ball::default();
    thread::scope(|scope| {
        let returning = scope.spawn(move || {
            let _pinned = affinity::pin(other).ok()?;
            (0..REPEATS * TRIPS).all(|trip| ball.pass(2 * trip + 1)).then_some(())
        });
        let serving = scope.spawn(move || {
            let _pinned = affinity::pin(one).ok()?;
            let starts = (0..REPEATS).map(|repeat| repeat * TRIPS);
            let measured: Option<Vec<f64>> =
                starts.map(|start| ball.serve(start..start + TRIPS)).collect();
            measured?.into_iter().reduce(f64::min)
        });
        let distance = serving.join().ok()?;
        returning.join().ok()??;
        distance
    })
}

/// A number in a cache line of its own, which two threads increase in turn.
#[derive(Default)]
#[repr(align(128))]
struct Ball {
    count: AtomicU64,
}

impl Ball {
    /// Waits for this number; returns false if it does not come.
    fn wait(&self, count: u64) -> bool {
        let is_here = || self.count.load(Ordering::Acquire) == count;
        // Read late, since reading the clock takes as long as a trip.
        let mut started = None;
        loop {
            if (0..1000).any(|_| is_here()) {
                return true;
            }
            let started = *started.get_or_insert_with(clock::now);
            if clock::now() - started > TIMEOUT {
                return false;
            }
        }
    }

    /// Waits for this number, and replies with the next one.
    fn pass(&self, count: u64) -> bool {
        let has_come = self.wait(count);
        if has_come {
            self.count.store(count + 1, Ordering::Release);
        }
        has_come
    }

    /// Makes round trips, and returns how long one takes, in ns; `None` if no reply comes.
    fn serve(&self, trips: Range<u64>) -> Option<f64> {
        let started = clock::now();
        self.count.store(2 * trips.start + 1, Ordering::Release);
        let passed = (trips.start + 1..trips.end).all(|trip| self.pass(2 * trip));
        let has_ended = passed && self.wait(2 * trips.end);
        has_ended.then(|| (clock::now() - started).as_nanos() as f64 / TRIPS as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cores_have_a_distance_and_one_has_none() {
        let allowed = affinity::allowed().expect("the cores cannot be read");
        assert_eq!(Cores::new(allowed[0], allowed[0]).distance(), None);
        if let [one, other, ..] = allowed[..] {
            // A busy machine may interrupt every measurement.
            let found = (0..100).find_map(|_| Cores::new(one, other).distance());
            let distance = found.expect("no reply came");
            assert!(distance > 1.0, "{distance} ns");
        }
        // No machine has this core.
        assert_eq!(Cores::new(allowed[0], usize::MAX).distance(), None);
    }
}
