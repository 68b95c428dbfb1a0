//! How many buffers stand with the kernel.
//!
//! The kernel's ring is first-in first-out: what it holds is cycled through, cache-warm or not. So it gets about twice
//! as many buffers as turns take. Where large receives fill them, it gets no more than a turn can bring in and send out
//! again while the bytes are still in the cache: there, a receive that has to be armed again costs less than cold copies.

/// Buffers at the start, and the least that are kept ready for small receives.
const START: u32 = 16;
/// Bytes of large receives a turn that stay warm until they are sent, beside the kernel's own copies.
const WARM: u64 = 320 * 1024;
/// A large receive: smaller ones are cheap beside the trouble of arming them again.
const LARGE: u32 = 32 * 1024;

/// The depth, and what the turn and the period tell of the next ones.
pub(super) struct Depth {
    now: u32,
    limit: u32,
    /// Buffers and bytes of large receives, taken in this turn.
    taken: u32,
    large: u64,
    /// Somebody found no buffer in this turn.
    short: bool,
    /// The most that a turn of this period took.
    most_taken: u32,
}

impl Depth {
    pub(super) fn new(limit: u32) -> Self {
        Self { now: START.min(limit), limit, taken: 0, large: 0, short: false, most_taken: 0 }
    }

    #[inline]
    pub(super) fn now(&self) -> u32 {
        self.now
    }

    pub(super) fn is_at_its_limit(&self) -> bool {
        self.now == self.limit
    }

    /// A buffer was filled with so many bytes.
    #[inline]
    pub(super) fn count(&mut self, bytes: u32) {
        self.taken += 1;
        if bytes > LARGE {
            self.large += u64::from(bytes);
        }
    }

    /// Somebody found no buffer.
    pub(super) fn fall_short(&mut self) {
        self.short = true;
    }

    /// Fits the depth to the turn that ends: at most doubled, or cut to what stays warm.
    #[inline]
    pub(super) fn end_turn(&mut self) {
        self.most_taken = self.most_taken.max(self.taken);
        let warm = self.warm();
        if self.large > WARM {
            self.now = self.now.min(warm);
        } else if self.short || 2 * self.taken > self.now {
            self.now = (2 * self.now).min(warm).max(self.now).min(self.limit);
        }
        (self.taken, self.large, self.short) = (0, 0, false);
    }

    /// A period ends: the depth goes down to twice what its turns took.
    pub(super) fn end_period(&mut self) {
        self.now = self.now.min((2 * self.most_taken).max(START));
        self.most_taken = 0;
    }

    /// How many buffers stay warm, filled in this turn's proportions.
    #[inline]
    fn warm(&self) -> u32 {
        match self.large {
            0 => self.limit,
            large => ((WARM * u64::from(self.taken) / large) as u32).clamp(1, self.limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns in which `streams` each have one message of `bytes`, and the kernel fills what it has.
    fn run(depth: &mut Depth, turns: u32, streams: u32, bytes: u32) {
        for _ in 0..turns {
            (0..streams.min(depth.now())).for_each(|_| depth.count(bytes));
            if streams > depth.now() {
                depth.fall_short();
            }
            depth.end_turn();
        }
    }

    #[test]
    fn small_receives_find_twice_what_they_take() {
        let mut depth = Depth::new(1024);
        run(&mut depth, 20, 100, 16 * 1024);
        assert_eq!(depth.now(), 256, "doubled from the start until it was twice as much");
        depth.end_period();
        assert_eq!(depth.now(), 200);
        run(&mut depth, 20, 3, 128);
        depth.end_period();
        depth.end_period();
        assert_eq!(depth.now(), START);
    }

    #[test]
    fn large_receives_get_what_stays_warm() {
        let mut depth = Depth::new(1024);
        run(&mut depth, 20, 100, 128);
        run(&mut depth, 20, 10, 256 * 1024);
        assert_eq!(depth.now(), 1);
        run(&mut depth, 20, 10, 64 * 1024);
        assert_eq!(depth.now(), 5);
        run(&mut depth, 20, 10, 128);
        assert!(depth.now() >= 20, "and small ones have enough again: {}", depth.now());
    }

    #[test]
    fn a_few_large_receives_do_not_starve_many_small_ones() {
        let mut depth = Depth::new(1024);
        for _ in 0..20 {
            (0..depth.now().min(40))
                .for_each(|i| depth.count(if i % 8 == 7 { 200_000 } else { 128 }));
            depth.fall_short();
            depth.end_turn();
        }
        assert!(depth.now() >= 8, "{}", depth.now());
    }

    #[test]
    fn the_limit_holds() {
        for limit in [1, 2, 16, 64] {
            let mut depth = Depth::new(limit);
            run(&mut depth, 20, 1000, 128);
            assert!(depth.now() == limit && depth.is_at_its_limit());
        }
    }
}
