//! The runtime's clock, for libraries that count in the standard library's moments.

use std::time::Instant;

/// The same moment by both clocks. Under a simulated kernel, moments made of it follow virtual time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    library: Instant,
    runtime: annulus::time::Instant,
}

impl Origin {
    /// Now, on the thread's runtime.
    #[expect(
        clippy::disallowed_methods,
        reason = "the library's moments are of the standard clock; this is the only look at it"
    )]
    pub(crate) fn new() -> Self {
        Self { library: Instant::now(), runtime: annulus::time::Instant::now() }
    }

    /// The current time, as a moment of the library.
    pub(crate) fn now(&self) -> Instant {
        self.library + self.runtime.elapsed()
    }

    /// The runtime's moment that is the library's; one before the origin is the origin.
    pub(crate) fn to_runtime(self, moment: Instant) -> annulus::time::Instant {
        self.runtime + moment.saturating_duration_since(self.library)
    }
}
