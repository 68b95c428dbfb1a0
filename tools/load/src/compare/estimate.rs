//! Ratios of two sides with their intervals.
//!
//! The pieces of each side are drawn again with replacement, as many as there are, [`DRAWS`] times (the bootstrap: Efron,
//! 1979). The spread of the logarithm of a figure over the draws is its standard error. A spread over n pieces is that of n − 1
//! independent deviations, so its square is multiplied by n ÷ (n − 1), and the interval is so many standard errors wide as
//! Student's distribution says (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, 12.3), with the degrees of
//! freedom of two sides of unequal spread (Welch, 1947).
//!
//! If k figures are compared, each interval leaves out 5 % ÷ k (Bonferroni), so that all of them hold together in 95 % of
//! comparisons at least.

use super::metric::Metric;
use super::sample::Sample;
use super::student;
use serde::Serialize;

/// How often the pieces are drawn again: enough for a standard error (Efron and Tibshirani, 6.4).
const DRAWS: usize = 200;

/// The probability that any of the intervals misses.
pub(super) const ERROR: f64 = 0.05;

/// Ratios within one step of a histogram with three digits cannot be told apart.
const RESOLUTION: f64 = 0.001;

/// The interval in which a ratio lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The spread of one figure of one side.
#[derive(Clone, Copy, Debug)]
struct Spread {
    /// The square of the standard error of the logarithm.
    variance: f64,
    /// Degrees of freedom.
    degrees: f64,
}

/// Draws of the pieces of a side: how often each piece was taken.
pub(super) struct Draws(Vec<Vec<u32>>);

impl Draws {
    pub(super) fn new(pieces: usize, random: &mut fastrand::Rng) -> Draws {
        let draw = |_| {
            let mut times = vec![0; pieces];
            (0..pieces).for_each(|_| times[random.usize(..pieces)] += 1);
            times
        };
        Draws((0..DRAWS).map(draw).collect())
    }

    /// The spread of a figure; none if there are too few pieces, or a draw that has no such figure.
    fn spread(&self, sample: &Sample, metric: Metric) -> Option<Spread> {
        let pieces = sample.len() as f64;
        if pieces < 2.0 {
            return None;
        }
        let logs: Option<Vec<f64>> =
            self.0.iter().map(|times| metric.of(sample, times).map(f64::ln)).collect();
        let logs = logs?;
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
        let variance = squares / (logs.len() - 1) as f64 * pieces / (pieces - 1.0);
        Some(Spread { variance, degrees: pieces - 1.0 })
    }
}

/// Two sides with their draws.
pub(super) struct Pair<'a> {
    pub(super) samples: [&'a Sample; 2],
    pub(super) draws: [&'a Draws; 2],
    /// The same with a piece a run, which knows what blocks of a run do not.
    pub(super) wholes: [&'a Sample; 2],
}

impl Pair<'_> {
    /// The figure of each side as it was measured.
    pub(super) fn values(&self, metric: Metric) -> [Option<f64>; 2] {
        self.wholes.map(|sample| metric.of(sample, &vec![1; sample.len()]))
    }

    /// The standard error of the logarithm of the ratio, with its degrees of freedom.
    pub(super) fn error(&self, metric: Metric) -> Option<(f64, u32)> {
        let spread = |side: usize| self.draws[side].spread(self.samples[side], metric);
        let (a, b) = (spread(0)?, spread(1)?);
        let variance = a.variance + b.variance;
        let shares = [a, b].map(|side| side.variance.powi(2) / side.degrees);
        let degrees = match variance > 0.0 {
            true => variance.powi(2) / shares.iter().sum::<f64>(),
            false => a.degrees + b.degrees,
        };
        // Fewer degrees make the interval wider.
        Some((variance.sqrt(), degrees.floor().max(1.0) as u32))
    }
}

/// The interval of a ratio, if so many are compared.
pub(super) fn bounds(ratio: f64, (error, degrees): (f64, u32), compared: usize) -> Bounds {
    let reach = student::two_sided(degrees, ERROR / compared.max(1) as f64) * error + RESOLUTION;
    Bounds { low: ratio * (-reach).exp(), high: ratio * reach.exp() }
}
