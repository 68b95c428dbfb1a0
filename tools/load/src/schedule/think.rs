//! The time between a reply and the next request of a closed loop.

use crate::random::exponential;
use fastrand::Rng;
use std::fmt;
use std::time::Duration;

/// The time between a reply and the next request.
///
/// It is parsed from `10ms`, `5ms..20ms` (uniform) and `exp:10ms` (exponential, with this mean).
///
/// ```
/// use annulus_load::Think;
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// assert_eq!("5ms..20ms".parse(), Ok(Think::Uniform(ms(5), ms(20))));
/// assert_eq!("exp:10ms".parse(), Ok(Think::Exponential(ms(10))));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Think {
    /// No time: the next request follows at once.
    #[default]
    None,
    /// Always this time.
    Fixed(Duration),
    /// Each time from the first to the second is equally likely.
    Uniform(Duration, Duration),
    /// Exponentially distributed with this mean, as the pauses of people are modelled.
    Exponential(Duration),
}

impl Think {
    /// Draws a time, in ns.
    pub(super) fn draw(self, random: &mut Rng) -> u64 {
        match self {
            Think::None => 0,
            Think::Fixed(time) => nanos(time),
            Think::Uniform(least, most) => random.u64(nanos(least)..=nanos(most.max(least))),
            Think::Exponential(mean) => (nanos(mean) as f64 * exponential(random)) as u64,
        }
    }

    /// The longest time of the description.
    pub(crate) fn longest(self) -> Duration {
        match self {
            Think::None => Duration::ZERO,
            Think::Fixed(time) | Think::Exponential(time) => time,
            Think::Uniform(least, most) => least.max(most),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Think {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Think::None => f.write_str("none"),
            Think::Fixed(time) => write!(f, "{time:?}"),
            Think::Uniform(least, most) => write!(f, "{least:?} to {most:?}"),
            Think::Exponential(mean) => write!(f, "exponential with a mean of {mean:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, generator};

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn drawn_times_have_their_bounds_and_means() {
        let mean = |think: Think, within: std::ops::RangeInclusive<u64>| {
            let mut random = generator(1, 0, Purpose::Think);
            let drawn: Vec<_> = (0..20_000).map(|_| think.draw(&mut random)).collect();
            assert!(drawn.iter().all(|time| within.contains(time)), "{think:?}");
            drawn.iter().sum::<u64>() as f64 / drawn.len() as f64 / 1e6
        };
        assert_eq!(mean(Think::None, 0..=0), 0.0);
        assert_eq!(mean(Think::Fixed(2 * MS), 2_000_000..=2_000_000), 2.0);
        let uniform = mean(Think::Uniform(MS, 3 * MS), 1_000_000..=3_000_000);
        assert!((uniform - 2.0).abs() < 0.02, "{uniform}");
        let exponential = mean(Think::Exponential(2 * MS), 0..=u64::MAX);
        assert!((exponential - 2.0).abs() < 0.1, "{exponential}");
    }
}
