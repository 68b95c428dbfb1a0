//! The depth: how many buffers the kernel should have.
//!
//! A buffer ring is first in, first out: the kernel cycles through all the buffers that it has,
//! cached or not. So it gets as many as turns take, and some spare ones. If receives are large, it
//! gets only as many as a turn can receive and send on while the bytes are in the cache: arming a
//! receive again costs less than copying from memory.

/// Number of buffers at the start, and the minimum for small receives.
const START: u32 = 16;
/// Bytes of large receives that stay in the cache, next to the kernel's copies, until the turn
/// sends them.
const WARM: u64 = 320 * 1024;

/// The purpose of buffers, which determines how many the kernel has and how large they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purpose {
    /// Whether a budget may shorten the buffers.
    pub(super) shortens: bool,
    /// Bytes above which a receive is large: copying it costs more than arming a receive again.
    pub(super) large_above: u32,
    /// Spare buffers for every four that a turn takes. The depth grows by the same ratio if
    /// receives find no buffer.
    spare: u32,
}

impl Purpose {
    /// Each stream that finds no buffer must be armed again, so there are twice as many buffers as
    /// turns take.
    pub(super) const STREAMS: Self = Self { shortens: true, large_above: 32 * 1024, spare: 4 };
    /// Shorter buffers would truncate datagrams. One receive delivers up to 33 datagrams per turn,
    /// so there is less to arm again. The threshold for large receives is therefore lower, and
    /// there are fewer spare buffers (a depth of 42 for turns of 33).
    pub(super) const DATAGRAMS: Self = Self { shortens: false, large_above: 4 * 1024, spare: 1 };

    /// Adds the spare buffers to a number of buffers.
    #[inline]
    pub(super) fn with_spare(self, buffers: u32) -> u32 {
        buffers + (buffers * self.spare).div_ceil(4)
    }
}

/// The depth, and the demand of this turn and this period.
pub(super) struct Depth {
    now: u32,
    limit: u32,
    purpose: Purpose,
    /// Bytes of large receives in this turn.
    large: u64,
    /// Whether a receive found no buffer in this turn.
    short: bool,
    /// Largest number of buffers that a turn of this period took.
    most_taken: u32,
}

impl Depth {
    pub(super) fn new(limit: u32, purpose: Purpose) -> Self {
        let now = START.min(limit);
        Self { now, limit, purpose, large: 0, short: false, most_taken: 0 }
    }

    #[inline]
    pub(super) fn now(&self) -> u32 {
        self.now
    }

    pub(super) fn is_at_its_limit(&self) -> bool {
        self.now == self.limit
    }

    /// Records that a buffer was filled with `bytes` bytes.
    #[inline]
    pub(super) fn count(&mut self, bytes: u32) {
        if bytes > self.purpose.large_above {
            self.large += u64::from(bytes);
        }
    }

    /// Records that a receive found no buffer.
    pub(super) fn fall_short(&mut self) {
        self.short = true;
    }

    /// Fits the depth to the turn that ends, in which `taken` buffers were taken: adds spare
    /// buffers, or reduces the depth to what stays in the cache.
    #[inline]
    pub(super) fn end_turn(&mut self, taken: u32) {
        self.most_taken = self.most_taken.max(taken);
        let is_low = self.short || self.purpose.with_spare(taken) > self.now;
        if is_low || self.large > WARM {
            self.fit(taken);
        }
        (self.large, self.short) = (0, false);
    }

    #[inline(never)]
    fn fit(&mut self, taken: u32) {
        let warm = self.warm(taken);
        if self.large > WARM {
            self.now = self.now.min(warm);
        } else {
            self.now = self.purpose.with_spare(self.now).min(warm).max(self.now).min(self.limit);
        }
    }

    /// Ends a period: the depth falls to the largest number of buffers that one of its turns took,
    /// plus spare ones.
    pub(super) fn end_period(&mut self) {
        self.now = self.now.min(self.purpose.with_spare(self.most_taken).max(START));
        self.most_taken = 0;
    }

    /// Returns how many buffers stay in the cache if they are filled as in this turn.
    fn warm(&self, taken: u32) -> u32 {
        match self.large {
            0 => self.limit,
            large => ((WARM * u64::from(taken) / large) as u32).clamp(1, self.limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs turns in which each of `streams` receives `bytes`, as long as the kernel has buffers.
    fn run(depth: &mut Depth, turns: u32, streams: u32, bytes: u32) {
        for _ in 0..turns {
            let taken = streams.min(depth.now());
            (0..taken).for_each(|_| depth.count(bytes));
            if streams > taken {
                depth.fall_short();
            }
            depth.end_turn(taken);
        }
    }

    #[test]
    fn the_depth_is_twice_the_number_of_small_receives() {
        let mut depth = Depth::new(1024, Purpose::STREAMS);
        run(&mut depth, 20, 100, 16 * 1024);
        assert_eq!(depth.now(), 256, "the depth doubles until it is at least twice the demand");
        depth.end_period();
        assert_eq!(depth.now(), 200);
        run(&mut depth, 20, 3, 128);
        depth.end_period();
        depth.end_period();
        assert_eq!(depth.now(), START);
    }

    #[test]
    fn large_receives_get_buffers_that_fit_into_the_cache() {
        let mut depth = Depth::new(1024, Purpose::STREAMS);
        run(&mut depth, 20, 100, 128);
        run(&mut depth, 20, 10, 256 * 1024);
        assert_eq!(depth.now(), 1);
        run(&mut depth, 20, 10, 64 * 1024);
        assert_eq!(depth.now(), 5);
        run(&mut depth, 20, 10, 128);
        assert!(depth.now() >= 20, "small receives have enough again: {}", depth.now());
    }

    #[test]
    fn datagrams_count_as_large_from_fewer_bytes() {
        let mut streams = Depth::new(1024, Purpose::STREAMS);
        let mut datagrams = Depth::new(1024, Purpose::DATAGRAMS);
        for depth in [&mut streams, &mut datagrams] {
            run(depth, 20, 64, 16 * 1024);
        }
        assert_eq!((streams.now(), datagrams.now()), (128, 20));
    }

    #[test]
    fn small_datagrams_have_a_small_reserve() {
        let mut depth = Depth::new(1024, Purpose::DATAGRAMS);
        run(&mut depth, 20, 33, 128);
        assert!(
            (42..=64).contains(&depth.now()),
            "not one turn's buffers and a reserve: {}",
            depth.now()
        );
        depth.end_period();
        assert_eq!(depth.now(), 42);
        run(&mut depth, 20, 4 * 33, 128);
        depth.end_period();
        assert_eq!(depth.now(), 4 * 33 + 33, "the reserve is not a quarter of the demand");
    }

    #[test]
    fn a_few_large_receives_do_not_starve_many_small_ones() {
        let mut depth = Depth::new(1024, Purpose::STREAMS);
        for _ in 0..20 {
            let taken = depth.now().min(40);
            (0..taken).for_each(|i| depth.count(if i % 8 == 7 { 200_000 } else { 128 }));
            depth.fall_short();
            depth.end_turn(taken);
        }
        assert!(depth.now() >= 8, "{}", depth.now());
    }

    #[test]
    fn the_depth_grows_up_to_the_limit() {
        for limit in [1, 2, 16, 64] {
            let mut depth = Depth::new(limit, Purpose::STREAMS);
            run(&mut depth, 20, 1000, 128);
            assert!(depth.now() == limit && depth.is_at_its_limit());
        }
    }
}
