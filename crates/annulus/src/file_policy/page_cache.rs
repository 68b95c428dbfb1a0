//! The page-cache prediction: which reads of a file may skip the check that their data is in
//! memory.
//!
//! A *checked* read fails instead of waiting if its data is not in memory (`RWF_NOWAIT`), which
//! makes a cached read a seventh slower (ADR 0015). After enough small reads in a row have found
//! their data, the file is *predicted* to be in memory. Then only one read in several is checked,
//! and the first one after a possible stall. If a checked read misses, the prediction ends, and the
//! next prediction requires twice as many reads. Data written a moment ago is predicted to be in
//! memory at once.
//!
//! A checked read that misses is wasted, and not cheap: Linux starts to read the data from the
//! device, on its own, and the same read then goes off the loop. After a few misses in a row the
//! file is *cold*: reads go off the loop at once, and only a few of them are checked first. If a
//! read off the loop has ended within its turn, its data may have been in memory, so one read in
//! several is checked; otherwise only one in many. The first checked read that finds its data ends
//! that.

use std::cell::Cell;

/// Number of hits in a row before a file is predicted to be in memory: initially, and at most.
const MIN_REQUIRED_HITS: u32 = 1024;
const MAX_REQUIRED_HITS: u32 = 1 << 20;
/// One read in this many is checked while a file is predicted.
const READS_PER_CHECK: u32 = 16;
/// Number of misses in a row before a file is cold.
const COLD_MISSES: u32 = 4;
/// While a file is cold, one read in this many is checked if the last read off the loop has ended
/// within its turn. On a ring, reads of data in memory do, and so do all reads for which the loop
/// sleeps. Worker threads may take longer while other tasks keep the loop busy.
const COLD_READS_PER_CHECK: u32 = 16;
/// Otherwise, one read in this many is checked.
const WAITING_READS_PER_CHECK: u32 = 256;

pub(crate) struct PageCache {
    /// Number of hits in a row. While the file is predicted, unchecked reads count too.
    hits: Cell<u32>,
    required: Cell<u32>,
    /// Number of misses in a row, up to [`COLD_MISSES`].
    misses: Cell<u32>,
    /// Number of reads since the last checked one, while the file is cold.
    unchecked: Cell<u32>,
    /// Whether the last read off the loop took longer than its turn.
    waited: Cell<bool>,
    /// The bytes written last: offset, length and turn.
    written: Cell<(u64, u32, u32)>,
}

impl PageCache {
    /// Reads of more bytes than this gain next to nothing from skipping the check.
    pub(crate) const MAX_PREDICTED_READ_BYTES: usize = 16 * 1024;

    pub(crate) fn new() -> Self {
        Self {
            hits: Cell::new(0),
            required: Cell::new(MIN_REQUIRED_HITS),
            misses: Cell::new(0),
            unchecked: Cell::new(0),
            waited: Cell::new(false),
            written: Cell::default(),
        }
    }

    /// Records a write and its turn, replacing the previous record.
    #[inline]
    pub(crate) fn note_written(&self, offset: u64, len: u32, turn: u32) {
        self.written.set((offset, len, turn));
    }

    /// Returns true if the next read need not be checked. `lasting` says whether hits of this file
    /// predict anything; it is called once per prediction.
    #[inline]
    pub(crate) fn predicts(&self, lasting: impl FnOnce() -> bool) -> bool {
        let (hits, required) = (self.hits.get(), self.required.get());
        if hits < required {
            return false;
        }
        if hits == required && !lasting() {
            self.miss();
            return false;
        }
        self.hits.set(hits.wrapping_add(1).max(required + 1));
        hits % READS_PER_CHECK != READS_PER_CHECK - 1
    }

    /// Returns true if the file is cold and the next read need not be checked.
    #[inline]
    pub(crate) fn expects_miss(&self) -> bool {
        if self.misses.get() < COLD_MISSES {
            return false;
        }
        let per_check =
            if self.waited.get() { WAITING_READS_PER_CHECK } else { COLD_READS_PER_CHECK };
        let is_unchecked = self.unchecked.get() + 1 < per_check;
        self.unchecked.set(if is_unchecked { self.unchecked.get() + 1 } else { 0 });
        is_unchecked
    }

    /// Records whether a read off the loop took longer than the turn that it began in.
    #[inline]
    pub(crate) fn note_offloaded(&self, waited: bool) {
        self.waited.set(waited);
    }

    /// Records that a checked read found its data.
    #[inline]
    pub(crate) fn hit(&self) {
        self.misses.set(0);
        if self.hits.get() < self.required.get() {
            self.hits.set(self.hits.get() + 1);
        }
    }

    /// Makes the next read a checked one, because the last read may have stalled.
    #[cold]
    pub(crate) fn check_next(&self) {
        self.hits.set(self.hits.get() | (READS_PER_CHECK - 1));
    }

    #[inline]
    pub(crate) fn checked_miss(&self) {
        if self.misses.get() < COLD_MISSES {
            self.misses.set(self.misses.get() + 1);
        }
        self.miss();
    }

    /// Ends the prediction.
    #[inline]
    pub(crate) fn miss(&self) {
        if self.hits.get() >= self.required.get() {
            self.required.set((self.required.get() * 2).min(MAX_REQUIRED_HITS));
        }
        self.hits.set(0);
        self.written.set((0, 0, 0));
    }

    /// Returns true if these bytes were written in this turn or the previous one: pages are hardly
    /// ever evicted that soon.
    #[inline]
    pub(crate) fn was_just_written(&self, offset: u64, len: u64, turn: u32) -> bool {
        let (start, written, then) = self.written.get();
        let inside = offset
            .checked_sub(start)
            .is_some_and(|skipped| skipped.saturating_add(len) <= u64::from(written));
        inside && turn.wrapping_sub(then) <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the checked reads that must hit before a read is no longer checked.
    fn hits_until_predicted(cache: &PageCache) -> u32 {
        let checked = || !cache.predicts(|| true);
        (0..).take_while(|_| checked()).map(|_| cache.hit()).count() as u32
    }

    #[test]
    fn a_prediction_is_checked_sometimes_and_needs_more_hits_after_each_miss() {
        let cache = PageCache::new();
        assert_eq!(hits_until_predicted(&cache), MIN_REQUIRED_HITS);
        let checked = (0..100 * READS_PER_CHECK).filter(|_| !cache.predicts(|| true)).count();
        assert_eq!(checked, 100);
        cache.check_next();
        assert!(
            !cache.predicts(|| true) && cache.predicts(|| true),
            "only the next read is checked"
        );
        let mut required = MIN_REQUIRED_HITS;
        for _ in 0..30 {
            cache.miss();
            required = (required * 2).min(MAX_REQUIRED_HITS);
            assert_eq!(hits_until_predicted(&cache), required);
        }
    }

    #[test]
    fn a_cold_file_is_checked_sometimes_until_a_read_hits() {
        let cache = PageCache::new();
        let read = |hits: bool| {
            let is_checked = !cache.expects_miss();
            match hits {
                _ if !is_checked => {}
                true => cache.hit(),
                false => cache.checked_miss(),
            }
            is_checked
        };
        let checks = |reads: u32, hits| (0..reads).filter(|_| read(hits)).count() as u32;
        assert_eq!(checks(COLD_MISSES, false), COLD_MISSES);
        assert_eq!(checks(100 * COLD_READS_PER_CHECK, false), 100);
        // A device that makes reads wait is checked less often.
        cache.note_offloaded(true);
        assert_eq!(checks(100 * WAITING_READS_PER_CHECK, false), 100);
        // Reads that no longer wait may have found their data, so one is checked soon.
        assert_eq!(checks(WAITING_READS_PER_CHECK / 2, false), 0);
        cache.note_offloaded(false);
        assert_eq!(checks(1, false), 1);
        // Once the data is in memory, the next checked read finds it, and all later reads are
        // checked.
        let warm = checks(COLD_READS_PER_CHECK, true);
        assert!(warm >= 1, "no read was checked");
        assert_eq!(checks(50, true), 50);
        // Reads that miss now and then do not make the file cold.
        for number in 0..50 {
            assert!(read(number % COLD_MISSES == 0));
        }
    }

    #[test]
    fn a_file_whose_hits_predict_nothing_is_always_checked() {
        let cache = PageCache::new();
        for _ in 0..5 * MIN_REQUIRED_HITS {
            assert!(!cache.predicts(|| false));
            cache.hit();
        }
    }

    #[test]
    fn only_bytes_just_written_are_predicted() {
        let cache = PageCache::new();
        let predicted = |offset, len, turn| cache.was_just_written(offset, len, turn);
        assert!(!predicted(0, 1, 0), "nothing was written");
        cache.note_written(4096, 8192, 7);
        assert!(predicted(4096, 8192, 7) && predicted(8192, 4096, 8));
        for (offset, len) in [(4096, 8193), (4095, 2), (12_288, 1), (u64::MAX, 9)] {
            assert!(!predicted(offset, len, 7), "{len} bytes at {offset}");
        }
        assert!(!predicted(4096, 8192, 9), "two turns later");
    }
}
