//! The time between a reply and the next request in a closed loop.

use crate::random::exponential;
use fastrand::Rng;
use std::fmt;
use std::time::Duration;

/// The time between a reply and the next request.
///
/// It is parsed from `10ms`, `5ms..20ms` (uniform) and `exp:10ms` (exponential, with this mean).
///
/// ```
/// use annulus_load::ThinkTime;
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// assert_eq!("5ms..20ms".parse(), Ok(ThinkTime::Uniform(ms(5), ms(20))));
/// assert_eq!("exp:10ms".parse(), Ok(ThinkTime::Exponential(ms(10))));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThinkTime {
    /// No time: the next request follows at once.
    #[default]
    None,
    /// Always this time.
    Fixed(Duration),
    /// Uniformly distributed from the first to the second.
    Uniform(Duration, Duration),
    /// Exponentially distributed with this mean, as pauses of people are often modelled.
    Exponential(Duration),
}

impl ThinkTime {
    /// Draws a time, in ns.
    pub(super) fn draw(self, random: &mut Rng) -> u64 {
        match self {
            ThinkTime::None => 0,
            ThinkTime::Fixed(time) => nanos(time),
            ThinkTime::Uniform(least, most) => random.u64(nanos(least)..=nanos(most.max(least))),
            ThinkTime::Exponential(mean) => (nanos(mean) as f64 * exponential(random)) as u64,
        }
    }

    /// Returns the longest time that was specified.
    pub(crate) fn longest(self) -> Duration {
        match self {
            ThinkTime::None => Duration::ZERO,
            ThinkTime::Fixed(time) | ThinkTime::Exponential(time) => time,
            ThinkTime::Uniform(least, most) => least.max(most),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for ThinkTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThinkTime::None => f.write_str("none"),
            ThinkTime::Fixed(time) => write!(f, "{time:?}"),
            ThinkTime::Uniform(least, most) => write!(f, "{least:?} to {most:?}"),
            ThinkTime::Exponential(mean) => write!(f, "exponential with a mean of {mean:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, generator};

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn drawn_think_times_match_their_bounds_and_means() {
        let mean = |think: ThinkTime, within: std::ops::RangeInclusive<u64>| {
            let mut random = generator(1, 0, Purpose::ThinkTime);
            let drawn: Vec<_> = (0..20_000).map(|_| think.draw(&mut random)).collect();
            assert!(drawn.iter().all(|time| within.contains(time)), "{think:?}");
            drawn.iter().sum::<u64>() as f64 / drawn.len() as f64 / 1e6
        };
        assert_eq!(mean(ThinkTime::None, 0..=0), 0.0);
        assert_eq!(mean(ThinkTime::Fixed(2 * MILLISECOND), 2_000_000..=2_000_000), 2.0);
        let uniform = mean(ThinkTime::Uniform(MILLISECOND, 3 * MILLISECOND), 1_000_000..=3_000_000);
        assert!((uniform - 2.0).abs() < 0.02, "{uniform}");
        let exponential = mean(ThinkTime::Exponential(2 * MILLISECOND), 0..=u64::MAX);
        assert!((exponential - 2.0).abs() < 0.1, "{exponential}");
    }
}
