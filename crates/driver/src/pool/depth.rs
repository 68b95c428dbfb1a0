//! The depth: how many buffers the kernel should have.
//!
//! A buffer ring is first in, first out: the kernel cycles through all the buffers that it has,
//! cached or not. So it gets as many as turns take, and some spare ones. If receives are large, it
//! gets only as many as a turn can fill and send on while the bytes are in the cache: arming a
//! receive again costs less than copying from memory.

/// Number of buffers at the start, and the minimum for small receives.
const INITIAL_BUFFERS: u32 = 16;
/// Maximum number of bytes of large receives per turn. With the kernel's copy of them, this much
/// stays in the cache until the turn sends it.
const MAX_CACHED_RECEIVE_BYTES: u64 = 320 * 1024;

/// The purpose of buffers, which determines how many the kernel has and how large they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Purpose {
    /// Whether a budget may shorten the buffers.
    pub(super) shortens: bool,
    /// Bytes above which a receive is large: copying it costs more than arming a receive again.
    pub(super) large_above_bytes: u32,
    /// Spare buffers for every four that a turn takes. The depth grows by the same ratio if
    /// receives find no buffer.
    spare: u32,
}

impl Purpose {
    /// Each stream that finds no buffer must be armed again, so the kernel gets twice as many
    /// buffers as turns take.
    pub(super) const STREAMS: Self =
        Self { shortens: true, large_above_bytes: 32 * 1024, spare: 4 };
    /// Shorter buffers would truncate datagrams. One receive delivers up to 33 datagrams per turn,
    /// so arming it again costs little per datagram. Therefore the threshold for large receives is
    /// lower, and there are fewer spare buffers (a depth of 42 for turns of 33).
    pub(super) const DATAGRAMS: Self =
        Self { shortens: false, large_above_bytes: 4 * 1024, spare: 1 };

    /// Adds the spare buffers to a number of buffers.
    #[inline]
    pub(super) fn with_spare(self, buffers: u32) -> u32 {
        buffers + (buffers * self.spare).div_ceil(4)
    }
}

/// The depth, and the demand of this turn and this period.
pub(super) struct Depth {
    buffers: u32,
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
        let buffers = INITIAL_BUFFERS.min(limit);
        Self { buffers, limit, purpose, large: 0, short: false, most_taken: 0 }
    }

    #[inline]
    pub(super) fn buffers(&self) -> u32 {
        self.buffers
    }

    pub(super) fn is_at_its_limit(&self) -> bool {
        self.buffers == self.limit
    }

    /// Records that a buffer was filled with `bytes` bytes.
    #[inline]
    pub(super) fn record_receive(&mut self, bytes: u32) {
        if bytes > self.purpose.large_above_bytes {
            self.large += u64::from(bytes);
        }
    }

    /// Records that a receive found no buffer.
    pub(super) fn record_shortage(&mut self) {
        self.short = true;
    }

    /// Fits the depth to the turn that ends, in which `taken` buffers were taken: adds spare
    /// buffers, or reduces the depth to what stays in the cache.
    #[inline]
    pub(super) fn end_turn(&mut self, taken: u32) {
        self.most_taken = self.most_taken.max(taken);
        let is_low = self.short || self.purpose.with_spare(taken) > self.buffers;
        if is_low || self.large > MAX_CACHED_RECEIVE_BYTES {
            self.fit(taken);
        }
        (self.large, self.short) = (0, false);
    }

    #[inline(never)]
    fn fit(&mut self, taken: u32) {
        let cached = self.cached_buffers(taken);
        if self.large > MAX_CACHED_RECEIVE_BYTES {
            self.buffers = self.buffers.min(cached);
        } else {
            self.buffers =
                self.purpose.with_spare(self.buffers).min(cached).max(self.buffers).min(self.limit);
        }
    }

    /// Ends a period: the depth falls to the largest number of buffers that one of its turns took,
    /// plus spare ones.
    pub(super) fn end_period(&mut self) {
        self.buffers =
            self.buffers.min(self.purpose.with_spare(self.most_taken).max(INITIAL_BUFFERS));
        self.most_taken = 0;
    }

    /// Returns how many buffers stay in the cache if they are filled as in this turn.
    fn cached_buffers(&self, taken: u32) -> u32 {
        match self.large {
            0 => self.limit,
            large => {
                ((MAX_CACHED_RECEIVE_BYTES * u64::from(taken) / large) as u32).clamp(1, self.limit)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs turns in which `streams` streams receive `bytes` bytes each, as long as the kernel has
    /// buffers.
    fn run(depth: &mut Depth, turns: u32, streams: u32, bytes: u32) {
        for _ in 0..turns {
            let taken = streams.min(depth.buffers());
            (0..taken).for_each(|_| depth.record_receive(bytes));
            if streams > taken {
                depth.record_shortage();
            }
            depth.end_turn(taken);
        }
    }

    #[test]
    fn the_depth_is_twice_the_number_of_small_receives() {
        let mut depth = Depth::new(1024, Purpose::STREAMS);
        run(&mut depth, 20, 100, 16 * 1024);
        assert_eq!(depth.buffers(), 256, "the depth did not double to at least twice the demand");
        depth.end_period();
        assert_eq!(depth.buffers(), 200);
        run(&mut depth, 20, 3, 128);
        depth.end_period();
        depth.end_period();
        assert_eq!(depth.buffers(), INITIAL_BUFFERS);
    }

    #[test]
    fn large_receives_get_buffers_that_fit_into_the_cache() {
        let mut depth = Depth::new(1024, Purpose::STREAMS);
        run(&mut depth, 20, 100, 128);
        run(&mut depth, 20, 10, 256 * 1024);
        assert_eq!(depth.buffers(), 1);
        run(&mut depth, 20, 10, 64 * 1024);
        assert_eq!(depth.buffers(), 5);
        run(&mut depth, 20, 10, 128);
        assert!(depth.buffers() >= 20, "small receives have too few buffers: {}", depth.buffers());
    }

    #[test]
    fn datagrams_count_as_large_from_fewer_bytes() {
        let mut streams = Depth::new(1024, Purpose::STREAMS);
        let mut datagrams = Depth::new(1024, Purpose::DATAGRAMS);
        for depth in [&mut streams, &mut datagrams] {
            run(depth, 20, 64, 16 * 1024);
        }
        assert_eq!((streams.buffers(), datagrams.buffers()), (128, 20));
    }

    #[test]
    fn small_datagrams_have_a_small_reserve() {
        let mut depth = Depth::new(1024, Purpose::DATAGRAMS);
        run(&mut depth, 20, 33, 128);
        assert!(
            (42..=64).contains(&depth.buffers()),
            "the depth is not one turn's buffers plus a reserve: {}",
            depth.buffers()
        );
        depth.end_period();
        assert_eq!(depth.buffers(), 42);
        run(&mut depth, 20, 4 * 33, 128);
        depth.end_period();
        assert_eq!(depth.buffers(), 4 * 33 + 33, "the reserve is not a quarter of the demand");
    }

    #[test]
    fn a_few_large_receives_do_not_starve_many_small_ones() {
        let mut depth = Depth::new(1024, Purpose::STREAMS);
        for _ in 0..20 {
            let taken = depth.buffers().min(40);
            (0..taken).for_each(|i| depth.record_receive(if i % 8 == 7 { 200_000 } else { 128 }));
            depth.record_shortage();
            depth.end_turn(taken);
        }
        assert!(depth.buffers() >= 8, "the depth fell to {}", depth.buffers());
    }

    #[test]
    fn the_depth_grows_up_to_the_limit() {
        for limit in [1, 2, 16, 64] {
            let mut depth = Depth::new(limit, Purpose::STREAMS);
            run(&mut depth, 20, 1000, 128);
            assert!(depth.buffers() == limit && depth.is_at_its_limit());
        }
    }
}
