//! The order in which things arrive that leave by one way.

use crate::timeline::Nanos;

/// One way out: what leaves by it waits for what left before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wire {
    /// When it is free, and when the last thing sent arrives: nothing overtakes that.
    free: Nanos,
    last: Nanos,
}

impl Wire {
    /// When something arrives that occupies the wire for `occupied` and travels for `delay`.
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
