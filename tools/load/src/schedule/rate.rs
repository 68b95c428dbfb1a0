//! Requests a second.

use super::is_rate;
use std::fmt;

/// Requests a second of all clients together. It is parsed from `500`, `10k` or `1.5M`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(f64);

impl Rate {
    /// So many requests a second.
    pub fn constant(rate: f64) -> Rate {
        Rate(rate)
    }

    /// Requests a second.
    pub fn per_second(self) -> f64 {
        self.0
    }

    /// The time, in seconds, at which so many requests are due before.
    pub(super) fn time_of(self, count: f64) -> f64 {
        count / self.0
    }

    /// The rate, if it is outside the limits, or zero.
    pub(crate) fn invalid(self) -> Option<f64> {
        (!is_rate(self.0) || self.0 == 0.0).then_some(self.0)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} a second", self.0)
    }
}
