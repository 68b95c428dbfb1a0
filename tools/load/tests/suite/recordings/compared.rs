//! Comparisons of simulated runs for which the true answer is known.

use annulus_load::compare::{Comparison, Options, compare};
use annulus_load::recording::{Interval, Latencies, Recording, RunInfo};
use annulus_load::stats::Verdict;

const COMPARISON_COUNT: u64 = 100;

/// Runs of a simulated server.
#[derive(Clone, Copy)]
struct SimulatedRuns {
    count: usize,
    seconds: usize,
    /// Latencies are multiplied by this factor.
    factor: f64,
    /// The standard deviation of the logarithm of the latency from run to run.
    between: f64,
    /// The standard deviation of the logarithm of the latency from second to second. Half of a
    /// deviation carries over to the next second.
    within: f64,
    /// Whether a run may be slow for some seconds.
    has_spells: bool,
}

const STEADY_RUNS: SimulatedRuns = SimulatedRuns {
    count: 5,
    seconds: 10,
    factor: 1.0,
    between: 0.01,
    within: 0.02,
    has_spells: false,
};

/// Number of latencies drawn per second.
const LATENCIES_PER_SECOND: usize = 120;

impl SimulatedRuns {
    fn record(self, random: &mut fastrand::Rng) -> Vec<Recording> {
        (0..self.count).map(|_| self.run(random)).collect()
    }

    fn run(self, random: &mut fastrand::Rng) -> Recording {
        let base = self.factor * (self.between * normal(random)).exp();
        let spell = random.usize(..self.seconds)..;
        let spell = spell.start..spell.start + random.usize(1..=self.seconds / 4);
        let shape = shape();
        let mut drift = normal(random);
        let second = |n: usize| {
            // Consecutive seconds are similar: half of the deviation carries over.
            drift = 0.5 * drift + 0.75_f64.sqrt() * normal(random);
            let is_slow = self.has_spells && spell.contains(&n);
            let slow = if is_slow { 1.1 } else { 1.0 };
            let level = 100e3 * base * slow * (self.within * drift).exp();
            // Each latency drawn counts a hundred times, so that there are enough for every
            // percentile.
            let latency = |_| ((level * shape[random.usize(..shape.len())]) as u64, 100);
            let response: Latencies = (0..LATENCIES_PER_SECOND).map(latency).collect();
            // In a closed loop the rate is inversely proportional to the latency.
            let answered = (LATENCIES_PER_SECOND as f64 * 100.0 * 100e3 / level) as u64;
            Interval { answered, response, ..Interval::new(n as f64, 1.0) }
        };
        let intervals: Vec<Interval> = (0..self.seconds).map(second).collect();
        let answered: u64 = intervals.iter().map(|interval| interval.answered).sum();
        let cpu_seconds = answered as f64 * 2e-6 * (0.01 * normal(random)).exp();
        Recording {
            seconds: self.seconds as f64,
            intervals,
            cpu_seconds,
            ..Recording::new(RunInfo::default())
        }
    }
}

/// Returns the factors of individual latencies: quantiles of a distribution with a long tail.
fn shape() -> [f64; 256] {
    std::array::from_fn(|place| (1.0 - (place as f64 + 0.5) / 256.0).powf(-0.2))
}

/// Draws from an approximate normal distribution: the sum of twelve uniform numbers has a standard
/// deviation of 1.
fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

fn comparisons(a: SimulatedRuns, b: SimulatedRuns, seed: u64) -> impl Iterator<Item = Comparison> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..COMPARISON_COUNT).map(move |_| {
        let (a, b) = (a.record(&mut random), b.record(&mut random));
        // The margin is zero, so only the intervals prevent equal sides from being called
        // different.
        compare(&a, &b, &Options { margin: 0.0 }).unwrap()
    })
}

/// Returns how many comparisons of equal sides are called different.
fn called_different(runs: SimulatedRuns, seed: u64) -> usize {
    comparisons(runs, runs, seed).filter(|found| found.verdict.is_different()).count()
}

/// A verdict may be wrong in 5 % of comparisons, which is five of a hundred.
#[test]
fn false_positive_rate_is_at_most_the_stated_one() {
    let between = |between| SimulatedRuns { between, ..STEADY_RUNS };
    let kinds = [
        ("six runs each", SimulatedRuns { count: 6, ..between(0.03) }),
        ("five runs each, with slow spells", SimulatedRuns { has_spells: true, ..STEADY_RUNS }),
        ("one run each", SimulatedRuns { count: 1, between: 0.0, seconds: 24, ..STEADY_RUNS }),
        (
            "one run each, with slow spells",
            SimulatedRuns { count: 1, between: 0.0, seconds: 60, has_spells: true, ..STEADY_RUNS },
        ),
    ];
    for (seed, (kind, runs)) in (1..).zip(kinds) {
        let different = called_different(runs, seed);
        println!("{kind}: {different} of {COMPARISON_COUNT}");
        assert!(
            different <= COMPARISON_COUNT as usize / 20,
            "{kind}: {different} of {COMPARISON_COUNT}"
        );
    }
}

#[test]
fn five_percent_difference_is_found_with_ten_runs() {
    let ten = SimulatedRuns { count: 10, ..STEADY_RUNS };
    let slower = SimulatedRuns { factor: 1.05, ..ten };
    let found =
        comparisons(ten, slower, 7).filter(|found| found.ratios[1].verdict == Verdict::Worse);
    let found = found.count();
    println!("{found} of {COMPARISON_COUNT}");
    assert!(found >= COMPARISON_COUNT as usize * 9 / 10, "{found} of {COMPARISON_COUNT}");
}
