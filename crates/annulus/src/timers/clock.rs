//! Points in time, and the clock of a guest's host.

use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

/// A point in time on the clock of the thread's runtime or, outside a runtime, on the system's
/// monotonic clock.
///
/// Instants of different runtimes are comparable only if both run on the real kernel.
///
/// ```
/// use annulus::time::{Instant, sleep_until};
/// use std::time::Duration;
///
/// # annulus::run(async {
/// let start = Instant::now();
/// let deadline = start + Duration::from_millis(5);
/// sleep_until(deadline).await;
/// assert!(start.elapsed() >= Duration::from_millis(5));
/// assert_eq!(start - deadline, Duration::ZERO); // Subtraction saturates.
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    pub(crate) fn since_origin(time: Duration) -> Self {
        Self(time)
    }

    /// Returns the time since `earlier`, or zero if `earlier` is in fact later.
    pub fn duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Instant {
    /// Returns the time since `earlier`, or `None` if `earlier` is in fact later.
    pub fn checked_duration_since(self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0)
    }

    /// Returns the instant `duration` later, or `None` on overflow.
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration).map(Self)
    }

    /// Returns the instant `duration` earlier, or `None` if it is before the clock's origin.
    pub fn checked_sub(self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(duration).map(Self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates, so that `now + Duration::MAX` never arrives.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// Saturates at the clock's origin.
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

/// The clock of another event loop, which may stand still or jump ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostClock {
    /// The kernel's time when the host's time was zero.
    origin: Duration,
    /// Returns the host's time.
    elapsed: fn() -> Duration,
}

impl HostClock {
    /// Creates a clock that continues from the kernel's time `now`.
    pub(crate) fn new(now: Duration, elapsed: fn() -> Duration) -> Self {
        Self { origin: now.saturating_sub(elapsed()), elapsed }
    }

    pub(crate) fn now(self) -> Duration {
        self.origin.saturating_add((self.elapsed)())
    }
}
