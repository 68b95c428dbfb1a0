//! The runtime's clock, for libraries that count in the standard library's moments.

use std::time::Instant;

/// The same moment by both clocks. Under a simulated kernel, moments made of it follow virtual time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    theirs: Instant,
    ours: annulus::time::Instant,
}

impl Origin {
    /// Now, on the thread's runtime.
    #[expect(
        clippy::disallowed_methods,
        reason = "the library's moments are of the standard clock; this is the only look at it"
    )]
    pub(crate) fn new() -> Self {
        Self { theirs: Instant::now(), ours: annulus::time::Instant::now() }
    }

    /// The current time, as a moment of the library.
    pub(crate) fn now(&self) -> Instant {
        self.theirs + self.ours.elapsed()
    }

    /// The runtime's moment that is the library's; one before the origin is the origin.
    pub(crate) fn ours(&self, theirs: Instant) -> annulus::time::Instant {
        self.ours + theirs.saturating_duration_since(self.theirs)
    }
}
