//! The search for a rate: which rate to measure next, and what follows from the windows so far.

use serde::Serialize;

/// The search ends once the lowest rate that misses is at most this much above the highest that meets.
const PRECISION: f64 = 1.03;
/// Windows at the rate that is found.
const CONFIRMATION: u32 = 3;
/// So many windows that miss count as one that meets.
const MISSES_FOR_A_MEET: u32 = 3;
/// The first rate, as a share of what a closed loop reaches.
const FIRST: f64 = 0.9;
/// The step upwards while every rate meets the target.
const STEP_UP: f64 = 1.25;
/// The step downwards while no rate meets the target.
const STEP_DOWN: f64 = 2.0;
/// No rate beyond so many times what a closed loop reaches is tried.
const HIGHEST: f64 = 16.0;

/// The windows that were measured at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tried {
    rate: f64,
    met: u32,
    missed: u32,
}

/// The verdict of the windows at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Meets,
    Misses,
    /// A window has missed, which may have been a disturbance.
    Open,
}

impl Tried {
    /// A window that meets the target says more than one that misses it: disturbances do not make response times shorter. So a rate
    /// meets the target if a quarter of its windows do, and misses it if fewer of four or more do: a rate that was refused wrongly would
    /// bound the search for good.
    fn verdict(self) -> Verdict {
        match (self.met, self.missed) {
            (met, missed) if met > 0 && missed <= MISSES_FOR_A_MEET * met => Verdict::Meets,
            (_, missed) if missed > MISSES_FOR_A_MEET => Verdict::Misses,
            _ => Verdict::Open,
        }
    }
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SearchEnd {
    /// The rate is found, to 3 %.
    Found,
    /// The time was over before: the rate lies within the interval.
    OutOfTime,
    /// The lowest rate that has enough responses for the target misses it.
    NoRate,
    /// Every rate that was tried meets the target, up to 16 times what a closed loop reaches.
    EveryRate,
    /// Even a closed loop has too few responses in a window for the percentile of the target.
    TooFewResponses,
    /// The server could not be measured: see the errors.
    Failed,
    /// The search was interrupted.
    Interrupted,
}

/// The next step of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Next {
    /// Measure a window at this rate.
    Measure(f64),
    Done(SearchEnd),
}

/// The state of a search: the windows so far, of which everything else follows.
#[derive(Debug)]
pub(super) struct Search {
    tried: Vec<Tried>,
    lowest: f64,
    highest: f64,
    first: f64,
    windows_left: u32,
}

impl Search {
    /// A search from `lowest` upwards, with at most `windows`. A closed loop reaches `closed` requests a second.
    pub(super) fn new(closed: f64, lowest: f64, windows: u32) -> Search {
        let first = rounded(closed * FIRST).max(lowest);
        let highest = (closed * HIGHEST).max(first);
        Search { tried: Vec::new(), lowest, highest, first, windows_left: windows }
    }

    /// Counts a window at a rate.
    pub(super) fn record(&mut self, rate: f64, met: bool) {
        self.windows_left = self.windows_left.saturating_sub(1);
        let at = match self.tried.iter().position(|tried| tried.rate == rate) {
            Some(at) => at,
            None => {
                self.tried.push(Tried { rate, met: 0, missed: 0 });
                self.tried.len() - 1
            }
        };
        let tried = &mut self.tried[at];
        if met { tried.met += 1 } else { tried.missed += 1 }
    }

    pub(super) fn next(&self) -> Next {
        match self.undisturbed() {
            Next::Measure(_) if self.windows_left == 0 => Next::Done(SearchEnd::OutOfTime),
            next => next,
        }
    }

    /// The next step if there is time.
    fn undisturbed(&self) -> Next {
        if let Some(open) = self.tried.iter().find(|tried| tried.verdict() == Verdict::Open) {
            return Next::Measure(open.rate);
        }
        let (meets, misses) = (self.highest_met(), self.lowest_missed());
        match (meets, misses) {
            (None, None) => Next::Measure(self.first),
            (Some(meets), None) if meets.rate * STEP_UP > self.highest => {
                Next::Done(SearchEnd::EveryRate)
            }
            (Some(meets), None) => Next::Measure(rounded(meets.rate * STEP_UP)),
            (None, Some(misses)) if misses <= self.lowest => Next::Done(SearchEnd::NoRate),
            (None, Some(misses)) => Next::Measure(rounded(misses / STEP_DOWN).max(self.lowest)),
            (Some(meets), Some(misses)) if misses / meets.rate > PRECISION => {
                Next::Measure(rounded((meets.rate * misses).sqrt()))
            }
            (Some(meets), Some(_)) if meets.met + meets.missed < CONFIRMATION => {
                Next::Measure(meets.rate)
            }
            (Some(_), Some(_)) => Next::Done(SearchEnd::Found),
        }
    }

    /// The highest rate that meets the target, below all that miss it.
    fn highest_met(&self) -> Option<Tried> {
        let bound = self.lowest_missed().unwrap_or(f64::INFINITY);
        let meeting = self.tried.iter().filter(|tried| tried.verdict() == Verdict::Meets);
        meeting.filter(|tried| tried.rate < bound).copied().max_by(|a, b| a.rate.total_cmp(&b.rate))
    }

    fn lowest_missed(&self) -> Option<f64> {
        let missing = self.tried.iter().filter(|tried| tried.verdict() == Verdict::Misses);
        missing.map(|tried| tried.rate).min_by(f64::total_cmp)
    }

    /// The rate that was found so far.
    pub(super) fn rate(&self) -> Option<f64> {
        self.highest_met().map(|tried| tried.rate)
    }

    /// Windows at the rate that was found: how many met the target, of how many.
    pub(super) fn confirmation(&self) -> (u32, u32) {
        self.highest_met().map_or((0, 0), |tried| (tried.met, tried.met + tried.missed))
    }

    /// The highest rate up to which every window met the target, and the lowest from which on every window missed it. Between
    /// them both happened, or nothing was measured.
    pub(super) fn interval(&self) -> (Option<f64>, Option<f64>) {
        let lowest_miss = self.rates(|tried| tried.missed > 0).fold(f64::INFINITY, f64::min);
        let highest_meet = self.rates(|tried| tried.met > 0).fold(0.0, f64::max);
        let below = self.rates(|tried| tried.rate < lowest_miss).max_by(f64::total_cmp);
        let above = self.rates(|tried| tried.rate > highest_meet).min_by(f64::total_cmp);
        (below, above)
    }

    fn rates(&self, which: impl Fn(&Tried) -> bool) -> impl Iterator<Item = f64> {
        self.tried.iter().filter(move |tried| which(tried)).map(|tried| tried.rate)
    }
}

/// A rate with three digits.
fn rounded(rate: f64) -> f64 {
    if rate <= 0.0 {
        return rate;
    }
    let unit = 10_f64.powf(rate.log10().floor() - 2.0);
    (rate / unit).round() * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use proptest::prelude::*;

    /// Searches with a server that meets the target with a probability that depends on the rate.
    fn search(
        closed: f64,
        lowest: f64,
        windows: u32,
        met: &mut dyn FnMut(f64) -> bool,
    ) -> (SearchEnd, Search) {
        let mut search = Search::new(closed, lowest, windows);
        for _ in 0..=windows {
            match search.next() {
                Next::Measure(rate) => search.record(rate, met(rate)),
                Next::Done(end) => return (end, search),
            }
        }
        panic!("more than {windows} windows: {search:?}");
    }

    #[test]
    fn rates_have_three_digits() {
        for (rate, expected) in
            [(123_456.0, 123_000.0), (0.98765, 0.988), (999.6, 1000.0), (5.0, 5.0)]
        {
            assert!((rounded(rate) / expected - 1.0_f64).abs() < 1e-9, "{rate}: {}", rounded(rate));
        }
    }

    #[test]
    fn a_target_that_no_rate_meets() {
        let (end, search) = search(10_000.0, 500.0, 30, &mut |_| false);
        assert_eq!((end, search.rate()), (SearchEnd::NoRate, None));
        assert_eq!(search.interval(), (None, Some(500.0)));
    }

    #[test]
    fn a_target_that_every_rate_meets() {
        let (end, search) = search(1000.0, 10.0, 30, &mut |_| true);
        assert_eq!((end, search.interval().1), (SearchEnd::EveryRate, None));
        assert!(search.rate().unwrap() > 10_000.0);
    }

    #[test]
    fn a_single_disturbance_changes_little() {
        for disturbed in 0..12 {
            let mut window = 0;
            let (end, search) = search(10_000.0, 10.0, 40, &mut |rate| {
                window += 1;
                window != disturbed && rate <= 6000.0
            });
            assert_eq!(end, SearchEnd::Found);
            let found = search.rate().unwrap();
            assert!((5700.0..=6000.0).contains(&found), "{found}, disturbed in window {disturbed}");
        }
    }

    #[test]
    fn without_time_the_interval_says_what_is_known() {
        let (end, search) = search(10_000.0, 10.0, 9, &mut |rate| rate <= 3000.0);
        assert_eq!(end, SearchEnd::OutOfTime);
        assert_eq!(
            (search.rate(), search.interval()),
            (Some(2250.0), (Some(2250.0), Some(4500.0)))
        );
    }

    proptest! {
        /// A sharp edge anywhere is found to 3 %, and the interval has it.
        #[test]
        fn an_edge_is_found(closed in 100.0_f64..1e6, share in 0.02_f64..3.0) {
            let edge = closed * share;
            let (end, search) = search(closed, 1.0, 60, &mut |rate| rate <= edge);
            prop_assert_eq!(end, SearchEnd::Found);
            let found = search.rate().unwrap();
            prop_assert!(found <= edge && edge / found <= PRECISION + 0.01, "{found} of {edge}");
            let (below, above) = search.interval();
            prop_assert!(below.unwrap() <= edge && edge <= above.unwrap());
            prop_assert_eq!(search.confirmation(), (3, 3));
        }

        /// With an edge that is a slope of chances over 4 %, results of repeated searches differ by less than 10 %.
        #[test]
        fn searches_repeat(seed: u64) {
            let mut random = Rng::with_seed(seed);
            let mut once = || {
                let mut met = |rate: f64| random.f64() > ((rate - 4900.0) / 200.0).clamp(0.0, 1.0);
                search(10_000.0, 10.0, 60, &mut met).1.rate().unwrap()
            };
            let (first, second) = (once(), once());
            prop_assert!((first / second - 1.0).abs() < 0.1, "{first} and {second}");
        }

        /// Whatever the windows say, the search ends in time.
        #[test]
        fn every_search_ends(seed: u64, windows in 0_u32..60, closed in 1.0_f64..1e6) {
            let mut random = Rng::with_seed(seed);
            let (end, search) = search(closed, 1.0, windows, &mut |_| random.bool());
            let (below, above) = search.interval();
            prop_assert!(below.is_none_or(|below| above.is_none_or(|above| below < above)));
            prop_assert!(end != SearchEnd::Found || search.rate().is_some());
        }
    }
}
