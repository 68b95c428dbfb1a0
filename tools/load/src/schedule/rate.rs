//! Requests a second in the course of a run: constant, in steps, or rising.

use super::is_rate;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Requests a second, as a function of the time since measuring began. After its last step or ramp the rate stays as it is.
///
/// It is parsed from `10k`, from steps of equal length (`1k,2k,5k:10s`, 10 s each), and from a ramp (`1k..50k:30s`).
///
/// ```
/// use annulus_load::Rate;
/// use std::time::Duration;
///
/// let steps: Rate = "1k,2k:10s".parse().unwrap();
/// assert_eq!(steps, Rate::steps(&[1000.0, 2000.0], Duration::from_secs(10)));
/// assert_eq!((steps.at(5.0), steps.at(15.0), steps.at(99.0)), (1000.0, 2000.0, 2000.0));
/// assert_eq!(Rate::ramp(0.0, 100.0, Duration::from_secs(10)).at(5.0), 50.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    parts: Arc<[Part]>,
    /// The rate after all parts.
    last: f64,
}

/// A part of the course, in which the rate changes evenly.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    from: f64,
    to: f64,
    /// When it begins, in seconds.
    start: f64,
    seconds: f64,
    /// Requests that are due before it.
    before: f64,
}

impl Part {
    fn requests(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.seconds
    }

    fn end(&self) -> f64 {
        self.start + self.seconds
    }
}

impl Rate {
    /// The same rate all the time.
    pub fn constant(rate: f64) -> Rate {
        Rate { parts: Arc::new([]), last: rate }
    }

    /// One rate after the other, `each` for this time. The last one stays.
    pub fn steps(rates: &[f64], each: Duration) -> Rate {
        let parts = rates.iter().map(|&rate| (rate, rate, each.as_secs_f64()));
        Rate::course(parts, rates.last().copied().unwrap_or_default())
    }

    /// From one rate to another within this time, changing evenly. Then it stays.
    pub fn ramp(from: f64, to: f64, length: Duration) -> Rate {
        Rate::course([(from, to, length.as_secs_f64())], to)
    }

    fn course(parts: impl IntoIterator<Item = (f64, f64, f64)>, last: f64) -> Rate {
        let (mut start, mut before) = (0.0, 0.0);
        let part = |(from, to, seconds)| {
            let part = Part { from, to, start, seconds, before };
            start = part.end();
            before += part.requests();
            part
        };
        Rate { parts: parts.into_iter().filter(|part| part.2 > 0.0).map(part).collect(), last }
    }

    /// The same course, begun later: until then the rate is the first one.
    pub(crate) fn after(&self, time: Duration) -> Rate {
        if self.parts.is_empty() {
            return self.clone();
        }
        let first = self.at(0.0);
        let parts = self.parts.iter().map(|part| (part.from, part.to, part.seconds));
        Rate::course([(first, first, time.as_secs_f64())].into_iter().chain(parts), self.last)
    }

    /// The rate at a time, in seconds since the beginning.
    pub fn at(&self, seconds: f64) -> f64 {
        match self.parts.iter().find(|part| seconds < part.end()) {
            None => self.last,
            Some(part) => {
                let share = ((seconds - part.start) / part.seconds).max(0.0);
                part.from + (part.to - part.from) * share
            }
        }
    }

    /// How long steps or ramps take; zero if the rate is constant.
    pub fn length(&self) -> Duration {
        Duration::from_secs_f64(self.end())
    }

    /// Requests that are due within a time from the beginning.
    pub fn requests(&self, length: Duration) -> f64 {
        let seconds = length.as_secs_f64();
        let part = self.parts.iter().rfind(|part| part.start <= seconds);
        let Some(part) = part else { return self.last * seconds };
        let within = (seconds - part.start).min(part.seconds);
        let slope = (part.to - part.from) / part.seconds;
        part.before
            + (part.from + slope * within / 2.0) * within
            + self.last * (seconds - part.end()).max(0.0)
    }

    /// The time, in seconds, at which so many requests are due before; infinite if there are never as many. `hint` is the
    /// index of the part that the last call found: a caller asks for rising counts.
    pub(super) fn time_of(&self, count: f64, hint: &mut usize) -> f64 {
        while let Some(part) = self.parts.get(*hint) {
            let more = count - part.before;
            if more < part.requests() {
                return part.start + part.time_of(more);
            }
            *hint += 1;
        }
        let before = self.parts.last().map_or(0.0, |part| part.before + part.requests());
        match self.last {
            0.0 => f64::INFINITY,
            last => self.end() + (count - before).max(0.0) / last,
        }
    }

    /// The first rate outside the limits; zero if there is no other rate.
    pub(crate) fn invalid(&self) -> Option<f64> {
        let mut rates = self.rates();
        match rates.clone().find(|&rate| !is_rate(rate)) {
            None if rates.all(|rate| rate == 0.0) => Some(0.0),
            invalid => invalid,
        }
    }

    /// The rate, if it is the same all the time.
    pub fn as_constant(&self) -> Option<f64> {
        self.parts.is_empty().then_some(self.last)
    }

    fn rates(&self) -> impl Iterator<Item = f64> + Clone {
        self.parts.iter().flat_map(|part| [part.from, part.to]).chain([self.last])
    }

    fn end(&self) -> f64 {
        self.parts.last().map_or(0.0, Part::end)
    }
}

impl Part {
    /// The time within the part at which so many requests are due: the root of `from·t + (to − from)·t²/(2·seconds)`, in
    /// the form that loses no digits if the rate is constant or nearly so.
    fn time_of(&self, count: f64) -> f64 {
        if count <= 0.0 {
            return 0.0;
        }
        let slope = (self.to - self.from) / self.seconds;
        let root = (self.from * self.from + 2.0 * slope * count).max(0.0).sqrt();
        (2.0 * count / (self.from + root)).min(self.seconds)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, part) in self.parts.iter().enumerate() {
            f.write_str(if number > 0 { ", then " } else { "" })?;
            let length = Duration::from_secs_f64(part.seconds);
            match part.from == part.to {
                true => write!(f, "{} a second for {length:?}", part.from)?,
                false => write!(f, "{} to {} a second in {length:?}", part.from, part.to)?,
            }
        }
        if self.parts.is_empty() { write!(f, "{} a second", self.last) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn due_times_of_a_constant_rate_have_equal_distances() {
        let rate = Rate::constant(4.0);
        let times: Vec<_> = (0..4).map(|count| rate.time_of(f64::from(count), &mut 0)).collect();
        assert_eq!(times, [0.0, 0.25, 0.5, 0.75]);
        assert_eq!(
            (rate.requests(2 * SECOND), rate.length(), rate.as_constant()),
            (8.0, Duration::ZERO, Some(4.0))
        );
    }

    #[test]
    fn steps_and_ramps_have_the_requests_of_their_area() {
        let steps = Rate::steps(&[10.0, 0.0, 30.0], SECOND);
        assert_eq!(steps.requests(3 * SECOND), 40.0);
        assert_eq!(steps.time_of(10.0, &mut 0), 2.0, "none is due in the second of nothing");
        assert_eq!(steps.requests(5 * SECOND), 100.0);
        let ramp = Rate::ramp(0.0, 100.0, 10 * SECOND);
        assert_eq!((ramp.requests(10 * SECOND), ramp.requests(5 * SECOND)), (500.0, 125.0));
        assert_eq!(ramp.requests(12 * SECOND), 700.0);
        assert!((ramp.time_of(125.0, &mut 0) - 5.0).abs() < 1e-9);
        assert_eq!(ramp.to_string(), "0 to 100 a second in 10s");
        let down = Rate::ramp(10.0, 0.0, SECOND);
        assert_eq!((down.time_of(0.0, &mut 0), down.time_of(6.0, &mut 0)), (0.0, f64::INFINITY));
    }

    #[test]
    fn a_course_begins_after_the_warm_up() {
        let rate = Rate::ramp(10.0, 20.0, SECOND).after(2 * SECOND);
        assert_eq!((rate.at(1.0), rate.at(2.5), rate.at(9.0)), (10.0, 15.0, 20.0));
        assert_eq!(Rate::constant(3.0).after(SECOND), Rate::constant(3.0));
        assert_eq!(
            Rate::ramp(1.0, 2.0, SECOND).after(Duration::ZERO),
            Rate::ramp(1.0, 2.0, SECOND)
        );
    }

    proptest! {
        /// The time of a count is the time by which so many requests are due, and later counts are not due earlier.
        #[test]
        fn times_and_counts_are_inverse(
            parts in proptest::collection::vec((0.0_f64..1e5, 0.0_f64..1e5, 0.01_f64..100.0), 0..6),
            last in 1.0_f64..1e5,
            counts in proptest::collection::vec(0.0_f64..1e7, 1..50),
        ) {
            let rate = Rate::course(parts, last);
            let mut counts = counts;
            counts.sort_by(f64::total_cmp);
            let (mut hint, mut before) = (0, 0.0);
            for count in counts {
                let time = rate.time_of(count, &mut hint);
                prop_assert!(time >= before, "{time} is before {before}");
                before = time;
                let due = rate.requests(Duration::from_secs_f64(time));
                // Durations are in whole nanoseconds, in which at most 1e-4 requests become due.
                prop_assert!((due - count).abs() < 1e-3 + count * 1e-9, "{due} are due at the time of {count}");
            }
        }
    }
}
