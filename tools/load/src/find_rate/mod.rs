//! The highest rate at which a server meets a target.
//!
//! First a closed loop shows what the server reaches at all; then windows of an open loop follow, from rate to rate, until the
//! highest that meets the target is known to 3 %. A rate also has to be *delivered*: if fewer requests are answered than were
//! due, it misses. A window that misses is repeated, since a disturbance may have caused the miss.

mod search;
#[cfg(test)]
mod simulated;
mod target;

use crate::load_error::LoadError;
use crate::observer::{Observer, Progress};
use crate::plan::{Plan, Workload};
use crate::recording::{Interval, Recording};
use crate::run::run;
use crate::schedule::{Arrivals, Rate, Schedule, Think};
pub use search::SearchEnd;
use search::{Next, Search};
use serde::Serialize;
use std::time::Duration;
pub use target::{Target, TargetError};

/// Most windows of a search, with the closed loop.
pub const SEARCH_WINDOWS: u32 = 30;
/// The shortest time for a search.
pub const MIN_SEARCH: Duration = Duration::from_secs(3);
/// The share of a window that warms up.
const WARM_UP: f64 = 0.15;
/// The share of the requests that are due which must be answered.
const DELIVERED: f64 = 0.99;

/// A search for a rate.
///
/// ```no_run
/// use annulus_load::{Arrivals, Plan, RateSearch, Streams};
/// use std::time::Duration;
///
/// let target = "p99<1ms".parse().unwrap();
/// let search = RateSearch { target, arrivals: Arrivals::Poisson, time: Duration::from_secs(60) };
/// let plan = Plan::new("127.0.0.1:7000".parse().unwrap(), Streams::default());
/// let found = search.run(&plan, &mut (), |window| println!("{window:?}")).unwrap();
/// println!("{:?} requests a second", found.rate);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RateSearch {
    /// The target that the rate has to meet.
    pub target: Target,
    /// How requests are spread.
    pub arrivals: Arrivals,
    /// The longest time that the search may take, shared by [`SEARCH_WINDOWS`] windows: at least [`MIN_SEARCH`].
    pub time: Duration,
}

/// The result of a search.
#[derive(Clone, Debug, Serialize)]
pub struct FoundRate {
    /// The target that the rate had to meet.
    pub target: String,
    /// How the search ended.
    pub end: SearchEnd,
    /// The highest rate that meets the target, in requests a second.
    pub rate: Option<f64>,
    /// Windows at that rate that met the target.
    pub windows_met: u32,
    /// All windows at that rate.
    pub windows_at_rate: u32,
    /// Every window up to this rate met the target.
    pub all_met_up_to: Option<f64>,
    /// Every window from this rate on missed the target.
    pub none_met_from: Option<f64>,
    /// Responses a second in a closed loop.
    pub closed_loop: f64,
    /// The measured time of a window, in seconds.
    pub window_seconds: f64,
    /// All windows, in order.
    pub windows: Vec<RateWindow>,
    /// The recording of the run that failed, or of the last one.
    #[serde(skip)]
    pub last: Option<Recording>,
}

/// A window of a search.
#[derive(Clone, Debug, Serialize)]
pub struct RateWindow {
    /// The rate, in requests a second.
    pub rate: f64,
    /// Responses a second.
    pub answered: f64,
    /// The figures that the target names.
    pub figures: String,
    /// Whether as many requests were answered as were due.
    pub delivered: bool,
    /// Why the window missed the target; `None` if it met the target.
    pub missed: Option<String>,
}

/// A search that cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RateSearchError {
    /// Not a workload of streams.
    #[error("a search for a rate needs connections that stay open: leave out --per-connection")]
    Workload,
    /// Less time than [`MIN_SEARCH`].
    #[error("{0:?} for a search of {SEARCH_WINDOWS} windows: allow at least {MIN_SEARCH:?} (-t)")]
    Time(Duration),
    /// A limit that is not below half of a window, in which it could not be seen: the limit and the window.
    #[error(
        "a limit of {0:?} is too long to be seen in windows of {1:.1?}: ask for less than half of one, or \
         allow more time (-t), of which a window gets a {SEARCH_WINDOWS}th part"
    )]
    LongLimit(Duration, Duration),
    /// The plan has a schedule, and the search sets its own.
    #[error("a search sets the rate itself: leave out the schedule ({0})")]
    Schedule(Schedule),
    /// A run could not begin.
    #[error(transparent)]
    Load(LoadError),
}

impl RateSearch {
    /// A window, with its warm-up: as long as the time allows.
    pub fn window(&self) -> Duration {
        self.time / SEARCH_WINDOWS
    }

    /// The measured part of a window.
    fn measured(&self) -> Duration {
        self.window().mul_f64(1.0 - WARM_UP)
    }

    /// Checks that the search makes sense.
    ///
    /// # Errors
    /// If there is too little time, the target's limits are too long for a window, or the plan is not one of streams without
    /// a schedule.
    pub fn validate(&self, plan: &Plan) -> Result<(), RateSearchError> {
        let window = self.measured();
        if !matches!(plan.workload, Workload::Streams(_)) {
            return Err(RateSearchError::Workload);
        }
        if plan.schedule != Schedule::default() {
            return Err(RateSearchError::Schedule(plan.schedule.clone()));
        }
        if self.time < MIN_SEARCH {
            return Err(RateSearchError::Time(self.time));
        }
        if self.target.longest() * 2 >= window {
            return Err(RateSearchError::LongLimit(self.target.longest(), window));
        }
        plan.validate().map_err(|error| RateSearchError::Load(LoadError::Plan(error)))
    }

    /// Searches; blocks the calling thread for at most [`time`](RateSearch::time), and what connects and last replies take.
    /// Calls `each` after each window. `observer` is asked for interruptions.
    ///
    /// # Errors
    /// As [`validate`](RateSearch::validate), or if a run cannot begin. Failures of the server are [`SearchEnd::Failed`].
    pub fn run(
        &self,
        plan: &Plan,
        observer: &mut dyn Observer,
        mut each: impl FnMut(&RateWindow),
    ) -> Result<FoundRate, RateSearchError> {
        self.validate(plan)?;
        let mut found = FoundRate::new(self);
        let closed = self.measure(plan, Schedule::Closed { think: Think::None }, observer)?;
        let summary = closed.summary();
        found.closed_loop = summary.requests_per_second;
        // A window has as many responses as this, or more; and a rate below one a second has no use.
        let lowest =
            (self.target.responses_needed() as f64 / self.measured().as_secs_f64()).max(1.0);
        let end = match summary.responses {
            _ if closed.interrupted => Some(SearchEnd::Interrupted),
            0 => Some(SearchEnd::Failed),
            _ if found.closed_loop < lowest => Some(SearchEnd::TooFewResponses),
            _ => None,
        };
        found.last = Some(closed);
        if let Some(end) = end {
            return Ok(FoundRate { end, ..found });
        }
        let mut search = Search::new(found.closed_loop, lowest, SEARCH_WINDOWS - 1);
        found.end = loop {
            let rate = match search.next() {
                Next::Measure(rate) => rate,
                Next::Done(end) => break end,
            };
            let schedule = Schedule::Open { rate: Rate::constant(rate), arrivals: self.arrivals };
            let recording = self.measure(plan, schedule, observer)?;
            if recording.interrupted || recording.seconds == 0.0 {
                let end =
                    if recording.interrupted { SearchEnd::Interrupted } else { SearchEnd::Failed };
                found.last = Some(recording);
                break end;
            }
            let window = self.rate_window(rate, &recording.total());
            each(&window);
            search.record(rate, window.missed.is_none());
            found.windows.push(window);
            found.last = Some(recording);
        };
        found.take(&search);
        Ok(found)
    }

    fn measure(
        &self,
        plan: &Plan,
        schedule: Schedule,
        observer: &mut dyn Observer,
    ) -> Result<Recording, RateSearchError> {
        let plan = Plan {
            schedule,
            warm_up: self.window().mul_f64(WARM_UP),
            duration: self.measured(),
            ..plan.clone()
        };
        run(&plan, &mut OnlyInterruptions(observer)).map_err(RateSearchError::Load)
    }

    /// The result of a window at a rate.
    fn rate_window(&self, rate: f64, total: &Interval) -> RateWindow {
        let (histogram, per_second) = (&total.response.histogram(), total.rate());
        let due = rate * self.measured().as_secs_f64();
        // The edges of a window cut through a request or a burst, and the number of Poisson arrivals varies with its root.
        let varies = match self.arrivals {
            Arrivals::Constant => 1.0,
            Arrivals::Poisson => 1.0 + 3.0 * due.sqrt(),
            Arrivals::Burst(every) => 1.0 + rate * every.as_secs_f64(),
        };
        let answered = per_second * self.measured().as_secs_f64();
        let delivered = answered >= due * DELIVERED - varies;
        let undelivered = || format!("{per_second:.0} a second were answered, of {rate}");
        let missed = match delivered {
            true => self.target.missed_by(histogram, total.failed),
            false => Some(undelivered()),
        };
        RateWindow {
            rate,
            answered: per_second,
            figures: self.target.figures(histogram),
            delivered,
            missed,
        }
    }
}

impl FoundRate {
    fn new(search: &RateSearch) -> FoundRate {
        FoundRate {
            target: search.target.to_string(),
            end: SearchEnd::Failed,
            rate: None,
            windows_met: 0,
            windows_at_rate: 0,
            all_met_up_to: None,
            none_met_from: None,
            closed_loop: 0.0,
            window_seconds: search.measured().as_secs_f64(),
            windows: Vec::new(),
            last: None,
        }
    }

    fn take(&mut self, search: &Search) {
        self.rate = search.rate();
        (self.windows_met, self.windows_at_rate) = search.confirmation();
        (self.all_met_up_to, self.none_met_from) = search.interval();
    }

    /// Whether what missed was never the target's times, but that fewer requests were answered than were due.
    pub fn is_bounded_by_delivery(&self) -> bool {
        let mut missed = self.windows.iter().filter(|window| window.missed.is_some()).peekable();
        missed.peek().is_some() && missed.all(|window| !window.delivered)
    }
}

/// Passes on the question for interruptions only: the windows of a search are many.
struct OnlyInterruptions<'a>(&'a mut dyn Observer);

impl Observer for OnlyInterruptions<'_> {
    fn progress(&mut self, progress: Progress) {
        self.0.progress(progress);
    }

    fn is_interrupted(&self) -> bool {
        self.0.is_interrupted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Datagrams, Streams};

    fn search(target: &str, seconds: u64) -> RateSearch {
        let (target, time) = (target.parse().unwrap(), Duration::from_secs(seconds));
        RateSearch { target, arrivals: Arrivals::Constant, time }
    }

    fn plan() -> Plan {
        Plan::new("127.0.0.1:7000".parse().unwrap(), Streams::default())
    }

    #[test]
    fn senseless_searches_are_refused() {
        let refused = |target, seconds, plan: &Plan, part| {
            let error = search(target, seconds).validate(plan).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        assert!(search("p99<1ms", 60).validate(&plan()).is_ok());
        refused("p99<1ms", 2, &plan(), "2s for a search of 30 windows: allow at least 3s");
        refused("p99<900ms", 60, &plan(), "900ms is too long to be seen in windows of 1.7s");
        let datagrams = Plan { workload: Datagrams::default().into(), ..plan() };
        refused("p99<1ms", 60, &datagrams, "needs connections that stay open");
        let open = Plan { schedule: Schedule::open(Rate::constant(5.0)), ..plan() };
        refused("p99<1ms", 60, &open, "leave out the schedule (5 a second)");
        refused("p99<1ms", 60, &Plan { clients: 0, ..plan() }, "0 clients");
    }
}
