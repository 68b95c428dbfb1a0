//! The order of arrival on one link.

use crate::timeline::Nanos;

/// A link in one direction: transmissions wait for earlier ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wire {
    /// When the link is free, and when the last transmission arrives, which no later one overtakes.
    free: Nanos,
    last: Nanos,
}

impl Wire {
    /// When a transmission arrives that occupies the link for `occupied` and has a latency of `delay`.
    #[inline]
    pub(crate) fn schedule(&mut self, now: Nanos, occupied: Nanos, delay: Nanos) -> Nanos {
        self.free = self.free.max(now) + occupied;
        self.last = self.last.max(self.free + delay);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overtakes() {
        let mut wire = Wire::default();
        let slow = wire.schedule(0, 10, 1000);
        let quick = wire.schedule(5, 10, 1);
        assert_eq!((slow, quick), (1010, 1010));
    }
}
