//! What time it is: the only part of an [`Instant`] that asks for the thread's runtime.

use super::Instant;
use crate::runtime::current;
use annulus_kernel::{Kernel, Linux};
use std::time::Duration;

impl Instant {
    /// Now.
    pub fn now() -> Self {
        let now = current::with(|core| core.kernel.now()).unwrap_or_else(|| Linux.now());
        Self::since_origin(now)
    }

    /// Time from this moment until now.
    pub fn elapsed(self) -> Duration {
        Self::now().duration_since(self)
    }
}
