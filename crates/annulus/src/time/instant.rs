//! A moment of the runtime's clock.

use crate::runtime::current;
use annulus_kernel::{Kernel, Linux};
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A moment on the clock of the thread's runtime (the system's monotonic clock outside one).
///
/// Moments of different runtimes compare only where both run on the real kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// Now.
    pub fn now() -> Self {
        Self(current::with(|core| core.kernel.now()).unwrap_or_else(|| Linux.now()))
    }

    pub(crate) fn since_origin(time: Duration) -> Self {
        Self(time)
    }

    /// Time since an earlier moment; zero where it is a later one.
    pub fn duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Time from this moment until now.
    pub fn elapsed(self) -> Duration {
        Self::now().duration_since(self)
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
