//! A start at a given time, so that runs on several machines measure together.
//!
//! Measuring begins at that time, the warm-up its length before, and clients begin to connect a connect time-out before that.

use crate::clock;
use crate::observer::Observer;
use crate::plan::Plan;
use std::thread;
use std::time::Duration;

/// The farthest start: a week. A time in milliseconds instead of seconds is farther.
const FARTHEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// How often to ask the observer for an interruption.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Why a run did not begin when it was to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The time is past, by this much.
    #[error(
        "the start was {:.3} s ago by this machine's clock: name a time to come, or set the clock",
        .0.as_secs_f64()
    )]
    Past(Duration),
    /// The time is this far away.
    #[error(
        "the start is {:.0} s away: name one within {} days, in seconds if it is a number",
        .0.as_secs_f64(), FARTHEST.as_secs() / (24 * 3600)
    )]
    Far(Duration),
    /// So much is left, which is less than the warm-up.
    #[error(
        "the start is {:.3} s away, and the warm-up alone takes {:.3} s: name a later one",
        .left.as_secs_f64(), .warm_up.as_secs_f64()
    )]
    Soon {
        /// What is left.
        left: Duration,
        /// The warm-up.
        warm_up: Duration,
    },
    /// Clients were ready too late for the warm-up, by this much.
    #[error(
        "the clients were ready {:.3} s too late to warm up before the start: name a later start, or allow more \
         time to connect (--connect-timeout)",
        .0.as_secs_f64()
    )]
    Late(Duration),
}

/// When a run is to begin. Points in time count from the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartTime {
    /// When to begin to measure; at once, after the warm-up, if `None`.
    at: Option<Duration>,
    warm_up: Duration,
    connect_timeout: Duration,
}

impl StartTime {
    pub(crate) fn of(plan: &Plan) -> StartTime {
        let [warm_up, _] = plan.times();
        StartTime { at: plan.start_at, warm_up, connect_timeout: plan.connect_timeout }
    }

    /// Waits until it is time to connect, or until the observer interrupts.
    pub(crate) fn await_connect(self, observer: &dyn Observer) -> Result<(), StartError> {
        let Some(at) = self.at else { return Ok(()) };
        self.check(at, clock::unix())?;
        let begin = at.saturating_sub(self.warm_up).saturating_sub(self.connect_timeout);
        sleep_until(begin, observer);
        Ok(())
    }

    /// How long it is until the warm-up, once the clients are ready.
    pub(crate) fn until_warm_up(self) -> Result<Duration, StartError> {
        self.until_warm_up_from(clock::unix())
    }

    fn until_warm_up_from(self, now: Duration) -> Result<Duration, StartError> {
        let Some(at) = self.at else { return Ok(Duration::ZERO) };
        let ready = now + self.warm_up;
        at.checked_sub(ready).ok_or_else(|| StartError::Late(ready - at))
    }

    fn check(self, at: Duration, now: Duration) -> Result<(), StartError> {
        let warm_up = self.warm_up;
        match at.checked_sub(now) {
            None => Err(StartError::Past(now - at)),
            Some(left) if left > FARTHEST => Err(StartError::Far(left)),
            Some(left) if left < warm_up => Err(StartError::Soon { left, warm_up }),
            Some(_) => Ok(()),
        }
    }
}

fn sleep_until(time: Duration, observer: &dyn Observer) {
    loop {
        let left = time.saturating_sub(clock::unix());
        if left.is_zero() || observer.is_interrupted() {
            return;
        }
        thread::sleep(left.min(POLL_INTERVAL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn start(at: Option<Duration>) -> StartTime {
        StartTime { at, warm_up: SECOND, connect_timeout: 5 * SECOND }
    }

    #[track_caller]
    fn refused<T: std::fmt::Debug>(result: Result<T, StartError>, part: &str) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(part), "{part} is not in: {error}");
    }

    #[test]
    fn a_start_must_be_to_come_and_not_far_away() {
        let check = |at: Duration| start(Some(at)).check(at, 100 * SECOND);
        refused(check(99 * SECOND), "was 1.000 s ago");
        let half = SECOND / 2;
        refused(check(100 * SECOND + half), "0.500 s away, and the warm-up alone takes 1.000 s");
        refused(check(1_000_000 * SECOND), "within 7 days");
        assert_eq!(check(101 * SECOND), Ok(()));
    }

    #[test]
    fn the_warm_up_begins_its_length_before_the_start() {
        let from = |now: Duration| start(Some(100 * SECOND)).until_warm_up_from(now);
        assert_eq!(from(97 * SECOND), Ok(2 * SECOND));
        assert_eq!(from(99 * SECOND), Ok(Duration::ZERO));
        refused(from(99 * SECOND + SECOND / 4), "0.250 s too late");
        assert_eq!(start(None).until_warm_up_from(102 * SECOND), Ok(Duration::ZERO));
    }

    #[test]
    fn waiting_ends_when_it_is_time_or_by_an_interruption() {
        struct Interrupts;
        impl Observer for Interrupts {
            fn is_interrupted(&self) -> bool {
                true
            }
        }
        let far = start(Some(clock::unix() + 3600 * SECOND));
        assert_eq!(far.await_connect(&Interrupts), Ok(()));
        let soon = StartTime { connect_timeout: 3600 * SECOND, ..far };
        assert_eq!(soon.await_connect(&()), Ok(()));
    }
}
