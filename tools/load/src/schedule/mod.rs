//! When requests are due: the schedule of a run, and the due times of each client.
//!
//! In a *closed loop*, a client sends its next request after the reply to an earlier one and a
//! think time. A server that slows down gets fewer requests, so its pauses show in few latencies.
//! In an *open loop*, requests are due at times that do not depend on the server, like the requests
//! of independent users. A request that is sent late, because all connections wait for replies,
//! still counts from when it was due.

mod due;
#[cfg(test)]
mod frozen_tests;
mod pacer;
mod parse;
mod think;

pub(crate) use pacer::{Claim, Pacer, RequestTimes};
pub use parse::parse_number;
pub(crate) use parse::parse_time;
pub use think::ThinkTime;

use crate::invalid::{InvalidValue, invalid};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The maximum number of messages per second in an open loop.
pub const MAX_RATE: f64 = 1e8;

/// The maximum time between bursts: a second.
pub const MAX_BURST_PERIOD: Duration = Duration::from_secs(1);

/// The maximum think time: a day.
pub const MAX_THINK_TIME: Duration = Duration::from_secs(86_400);

/// When the requests of a run are due.
///
/// ```
/// use annulus_load::{Arrivals, Rate, Schedule};
///
/// let schedule = Schedule::Open { rate: "20k".parse().unwrap(), arrivals: Arrivals::Poisson };
/// assert_eq!(schedule.to_string(), "20000 per second, Poisson arrivals");
/// assert_eq!(Schedule::open(Rate::constant(500.0)).rate().unwrap().per_second(), 500.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// A request is due when a reply has freed its slot in the pipeline and the think time has
    /// passed.
    Closed {
        /// The time between a reply and the next request in its slot.
        think: ThinkTime,
    },
    /// Requests are due at times that do not depend on replies.
    Open {
        /// Requests per second of all clients together.
        rate: Rate,
        /// How the requests are spread over time.
        arrivals: Arrivals,
    },
}

/// How the requests of an open loop are spread over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal intervals.
    #[default]
    Constant,
    /// At exponentially distributed intervals, like the requests of many independent users: some
    /// are close together, which shows whether a server has reserves.
    Poisson,
    /// At equal intervals, rounded up to the next multiple of this time since the start. The time
    /// is above zero and at most [`MAX_BURST_PERIOD`]. The requests of a burst are due together,
    /// and their response times count from then. The load wakes once per burst instead of once per
    /// request, which takes less CPU time, but the server must answer the requests one after
    /// another.
    Burst(Duration),
    /// Groups of requests are due together, at equal intervals between the groups. Each connection
    /// must have room for its part of a group.
    Together {
        /// Requests that are due together: 1 to [`MAX_BURST_REQUESTS`].
        requests: u32,
        /// Whether a group is sent on one connection, and the next group on the next one.
        /// Otherwise each request of a group is sent on a different connection, if there are
        /// enough.
        on_one_connection: bool,
    },
}

/// The maximum number of requests that are due together.
pub const MAX_BURST_REQUESTS: u32 = 1_000_000;

impl Schedule {
    /// Creates an open loop with equal intervals.
    pub fn open(rate: Rate) -> Schedule {
        Schedule::Open { rate, arrivals: Arrivals::Constant }
    }

    /// Returns the rate of an open loop.
    pub fn rate(&self) -> Option<Rate> {
        match self {
            Schedule::Closed { .. } => None,
            Schedule::Open { rate, .. } => Some(*rate),
        }
    }

    /// Checks that rates and times are within their limits.
    pub(crate) fn validate(&self) -> Result<(), InvalidValue> {
        match self {
            Schedule::Closed { think } if think.longest() > MAX_THINK_TIME => Err(invalid(
                format!("the think time of {think} is too long: use at most {MAX_THINK_TIME:?}"),
            )),
            Schedule::Closed { .. } => Ok(()),
            Schedule::Open { arrivals: Arrivals::Burst(every), .. } if !is_valid_burst(*every) => {
                Err(invalid(invalid_burst(*every)))
            }
            Schedule::Open { arrivals: Arrivals::Together { requests, .. }, .. }
                if !(1..=MAX_BURST_REQUESTS).contains(requests) =>
            {
                Err(invalid(format!(
                    "a burst of {requests} requests is out of range: use 1 to {MAX_BURST_REQUESTS}"
                )))
            }
            Schedule::Open { rate, .. } => match rate.invalid() {
                Some(rate) => Err(invalid(format!(
                    "a rate of {rate} messages per second is out of range: use more than 0 and at \
                     most {MAX_RATE}"
                ))),
                None => Ok(()),
            },
        }
    }
}

/// Creates a closed loop without think time.
impl Default for Schedule {
    fn default() -> Schedule {
        Schedule::Closed { think: ThinkTime::None }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Closed { think: ThinkTime::None } => f.write_str("closed loop"),
            Schedule::Closed { think } => write!(f, "closed loop, think time {think}"),
            Schedule::Open { rate, arrivals: Arrivals::Constant } => rate.fmt(f),
            Schedule::Open { rate, arrivals: Arrivals::Poisson } => {
                write!(f, "{rate}, Poisson arrivals")
            }
            Schedule::Open { rate, arrivals: Arrivals::Burst(every) } => {
                write!(f, "{rate}, in bursts every {every:?}")
            }
            Schedule::Open {
                rate,
                arrivals: Arrivals::Together { requests, on_one_connection },
            } => {
                let place = if *on_one_connection { "one connection" } else { "many connections" };
                write!(f, "{rate}, in bursts of {requests} on {place}")
            }
        }
    }
}

impl FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Arrivals, String> {
        match text {
            "constant" => Ok(Arrivals::Constant),
            "poisson" => Ok(Arrivals::Poisson),
            _ => {
                let every = text.strip_prefix("burst:").ok_or_else(|| {
                    format!(
                        "'{text}' is not a kind of arrivals: write constant, poisson, or \
                        burst:TIME, such as burst:1ms"
                    )
                })?;
                let every = parse_time(every).map_err(|error| error.to_string())?;
                let burst = is_valid_burst(every).then_some(Arrivals::Burst(every));
                burst.ok_or_else(|| invalid_burst(every))
            }
        }
    }
}

/// Explains why a time between bursts is invalid.
pub(crate) fn invalid_burst(every: Duration) -> String {
    format!(
        "a burst period of {every:?} is out of range: use more than 0 and at most \
        {MAX_BURST_PERIOD:?}"
    )
}

pub(crate) fn is_valid_burst(every: Duration) -> bool {
    !every.is_zero() && every <= MAX_BURST_PERIOD
}

/// Returns true if a rate is within the limits, or zero.
fn is_valid_rate(rate: f64) -> bool {
    (0.0..=MAX_RATE).contains(&rate)
}

/// Requests per second of all clients together. It is parsed from `500`, `10k` or `1.5M`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(f64);

impl Rate {
    /// Creates a constant rate, in requests per second.
    pub fn constant(rate: f64) -> Rate {
        Rate(rate)
    }

    /// Returns the requests per second.
    pub fn per_second(self) -> f64 {
        self.0
    }

    /// Returns the time in seconds within which `count` requests are due.
    pub(super) fn time_of(self, count: f64) -> f64 {
        count / self.0
    }

    /// Returns the rate in requests per second if it is outside the limits or zero.
    pub(crate) fn invalid(self) -> Option<f64> {
        (!is_valid_rate(self.0) || self.0 == 0.0).then_some(self.0)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per second", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_display_as_text() {
        for (schedule, text) in [
            (Schedule::default(), "closed loop"),
            (
                Schedule::Closed { think: "5ms..10ms".parse().unwrap() },
                "closed loop, think time 5ms to 10ms",
            ),
            (Schedule::open(Rate::constant(1.5)), "1.5 per second"),
            (
                Schedule::Open { rate: Rate::constant(1e4), arrivals: "poisson".parse().unwrap() },
                "10000 per second, Poisson arrivals",
            ),
            (
                Schedule::Open {
                    rate: Rate::constant(1e4),
                    arrivals: "burst:1ms".parse().unwrap(),
                },
                "10000 per second, in bursts every 1ms",
            ),
            (
                Schedule::Open {
                    rate: Rate::constant(1e4),
                    arrivals: Arrivals::Together { requests: 5, on_one_connection: false },
                },
                "10000 per second, in bursts of 5 on many connections",
            ),
            (
                Schedule::Open {
                    rate: Rate::constant(1e4),
                    arrivals: Arrivals::Together { requests: 5, on_one_connection: true },
                },
                "10000 per second, in bursts of 5 on one connection",
            ),
        ] {
            assert_eq!(schedule.to_string(), text);
        }
        for (text, part) in [
            ("even", "constant, poisson, or burst:TIME"),
            ("burst:soon", "'soon' is not a time"),
            ("burst:0", "more than 0 and at most 1s"),
            ("burst:2s", "a burst period of 2s"),
        ] {
            let error = text.parse::<Arrivals>().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn schedule_limits_are_checked() {
        let open = |rate| Schedule::open(Rate::constant(rate)).validate();
        assert_eq!(open(MAX_RATE), Ok(()));
        assert!(open(0.0).is_err() && open(-1.0).is_err());
        assert!(open(f64::NAN).is_err() && open(2.0 * MAX_RATE).is_err());
        let burst = |every| {
            Schedule::Open { rate: Rate::constant(1.0), arrivals: Arrivals::Burst(every) }
                .validate()
        };
        assert_eq!(burst(MAX_BURST_PERIOD), Ok(()));
        assert!(burst(Duration::ZERO).is_err());
        assert!(burst(2 * MAX_BURST_PERIOD).is_err());
        let together = |requests| {
            let arrivals = Arrivals::Together { requests, on_one_connection: false };
            Schedule::Open { rate: Rate::constant(1.0), arrivals }.validate()
        };
        assert_eq!(together(MAX_BURST_REQUESTS), Ok(()));
        assert!(together(0).is_err() && together(MAX_BURST_REQUESTS + 1).is_err());
        let think = |think| Schedule::Closed { think }.validate();
        assert_eq!(think(ThinkTime::Fixed(MAX_THINK_TIME)), Ok(()));
        assert!(think(ThinkTime::Fixed(2 * MAX_THINK_TIME)).is_err());
    }
}
