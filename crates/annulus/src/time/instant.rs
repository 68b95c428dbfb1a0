//! A moment of the runtime's clock.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A moment on the clock of the thread's runtime (the system's monotonic clock outside one).
///
/// Moments of different runtimes compare only if both run on the real kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    pub(crate) fn since_origin(time: Duration) -> Self {
        Self(time)
    }

    /// Time since an earlier moment; zero if that is a later one.
    pub fn duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of time, so that `now + Duration::MAX` is "never".
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}
