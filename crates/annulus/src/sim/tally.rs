//! Counts of the disturbances of a thread's networks, so that a sweep can tell whether any have
//! begun.

use std::cell::Cell;
use std::time::Duration;

thread_local! {
    static TALLY: Cell<Tally> = const { Cell::new(Tally::NONE) };
}

/// Counts of the disturbances of some runs.
#[derive(Clone, Copy)]
pub(super) struct Tally {
    /// Number of requests for disturbances.
    pub(super) asked: u64,
    /// The shortest pause that was requested.
    pub(super) first: Duration,
    /// Number of disturbances that have begun.
    pub(super) begun: u64,
    /// Number of drawn disturbances that were impossible with the given hosts.
    pub(super) impossible: u64,
    /// The virtual time that the longest run took.
    pub(super) longest: Duration,
}

impl Tally {
    const NONE: Self =
        Self { asked: 0, first: Duration::MAX, begun: 0, impossible: 0, longest: Duration::ZERO };

    /// Runs a closure. Returns its value and the tally of this thread's networks during that time.
    pub(super) fn of<T>(run: impl FnOnce() -> T) -> (T, Self) {
        let outer = TALLY.replace(Self::NONE);
        let value = run();
        let inner = TALLY.get();
        TALLY.set(outer.and(inner));
        (value, inner)
    }

    /// Updates this thread's tally.
    pub(super) fn note(change: impl FnOnce(&mut Self)) {
        let mut tally = TALLY.get();
        change(&mut tally);
        TALLY.set(tally);
    }

    /// Returns true if disturbances were requested and none has begun.
    pub(super) fn has_none_begun(&self) -> bool {
        self.asked > 0 && self.begun == 0
    }

    /// Returns a remedy for disturbances that [never begin](Self::has_none_begun).
    pub(super) fn remedy(&self) -> String {
        let Self { asked, first, impossible, longest, .. } = self;
        if *impossible > 0 {
            return format!(
                "all {impossible} drawn disturbances were impossible, because they need a second host or would crash a client or a host \
                 that is down; add hosts, or choose other `Disturbances::kinds`"
            );
        }
        format!(
            "all {asked} runs that requested disturbances ended before the first one, which begins {first:?} after `disturb` at the \
             earliest; the longest run took {longest:?} of virtual time; let the clients do more, or shorten `Disturbances::pause`"
        )
    }

    fn and(self, other: Self) -> Self {
        Self {
            asked: self.asked + other.asked,
            first: self.first.min(other.first),
            begun: self.begun + other.begun,
            impossible: self.impossible + other.impossible,
            longest: self.longest.max(other.longest),
        }
    }
}
