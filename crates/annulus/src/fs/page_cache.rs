//! Reads that need not ask whether they would wait: asking costs a sixth of a cached read.
//!
//! A file is *trusted* once so many small reads of it in a row have found their data in memory. Then only one read of
//! several asks, and each that follows a stall; where it would have to wait, trust is lost, and takes twice as many reads
//! to earn again. What was written a moment ago is trusted at once.
#![allow(unsafe_code)]

use super::file::{CURSOR, File};
use super::latency::Class;
use super::perform::{attempt, attempt_at_once, glanced};
use super::policy::Policy;
use annulus_kernel::file::FileCall;
use std::cell::Cell;
use std::io;

/// Reads in a row that find their data in memory before a file is trusted: at first, and at most.
const EARNED: u32 = 1024;
const MOST: u32 = 1 << 20;
/// Of so many reads of a trusted file, one asks.
const ASKS: u32 = 16;
/// Bytes of a read beyond which asking costs next to nothing.
const SMALL: usize = 16 * 1024;

/// How far a file is trusted to be in memory.
pub(super) struct Trust {
    /// Reads in a row that found their data; once it is trusted, all that were made since.
    hits: Cell<u32>,
    needed: Cell<u32>,
    /// The bytes written last: where, how many, and in which turn.
    written: Cell<(u64, u32, u32)>,
}

impl Trust {
    pub(super) fn new() -> Self {
        Self { hits: Cell::new(0), needed: Cell::new(EARNED), written: Cell::default() }
    }

    /// Notes what was just written.
    #[inline]
    pub(super) fn wrote(&self, offset: u64, len: u32, turn: u32) {
        self.written.set((offset, len, turn));
    }

    /// Whether the next read may be made without asking. `lasts` tells whether what was found in memory is worth a trust.
    #[inline]
    fn begin(&self, lasts: impl FnOnce() -> bool) -> bool {
        let (hits, needed) = (self.hits.get(), self.needed.get());
        if hits < needed {
            return false;
        }
        if hits == needed && !lasts() {
            self.lose();
            return false;
        }
        self.hits.set(hits.wrapping_add(1).max(needed + 1));
        hits % ASKS != ASKS - 1
    }

    /// A read that asked has found its data.
    #[inline]
    fn confirm(&self) {
        if self.hits.get() < self.needed.get() {
            self.hits.set(self.hits.get() + 1);
        }
    }

    /// Something may have stalled, since the clock was looked at last: the next read asks.
    #[cold]
    fn doubt(&self) {
        self.hits.set(self.hits.get() | (ASKS - 1));
    }

    /// A read would have had to wait.
    #[cold]
    fn lose(&self) {
        if self.hits.get() >= self.needed.get() {
            self.needed.set((self.needed.get() * 2).min(MOST));
        }
        self.hits.set(0);
        self.written.set((0, 0, 0));
    }

    /// Pages hardly leave memory within a turn.
    #[inline]
    fn has_just_written(&self, offset: u64, len: u64, turn: u32) -> bool {
        let (start, written, then) = self.written.get();
        let inside = offset
            .checked_sub(start)
            .is_some_and(|skipped| skipped.saturating_add(len) <= u64::from(written));
        inside && turn.wrapping_sub(then) <= 1
    }
}

impl File {
    /// As [`attempt_at_once`], of a read of so many bytes.
    ///
    /// # Safety
    /// What the call names must be valid.
    #[inline]
    pub(super) unsafe fn attempt_read(
        &self,
        len: usize,
        call: FileCall,
    ) -> Option<io::Result<u32>> {
        let (core, trust) = (&self.open.core, &self.open.trust);
        let Some(offset) = self.place_to_trust(len, &call) else {
            // SAFETY: the caller's promise, passed on.
            return unsafe { attempt_at_once(core, &self.job(Class::Read, len, call)) };
        };
        if !core.is_running() || core.files.is_out_of_breath() {
            return None;
        }
        let written = trust.has_just_written(offset, len as u64, core.files.turn());
        if written || trust.begin(|| self.lasts_in_memory()) {
            core.files.count_inline(len);
            // SAFETY: the caller's promise, passed on.
            let (answer, stalled) = glanced(core, || unsafe { core.kernel.file(&call) });
            if stalled {
                trust.doubt();
            }
            return Some(answer);
        }
        // SAFETY: as above.
        let answer = unsafe { attempt(core, &self.job(Class::Read, len, call)) };
        match &answer {
            Some(Ok(_)) => trust.confirm(),
            Some(Err(_)) => {}
            None => trust.lose(),
        }
        answer
    }

    /// Where a call reads, if that is something to trust in.
    #[inline]
    fn place_to_trust(&self, len: usize, call: &FileCall) -> Option<u64> {
        match *call {
            FileCall::Read { offset, .. } if len <= SMALL && offset != CURSOR => {
                (self.policy == Policy::Adaptive && !self.direct).then_some(offset)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads that ask and find, until the next would not ask; how many.
    fn earn(trust: &Trust) -> u32 {
        let asks = || !trust.begin(|| true);
        (0..).take_while(|_| asks()).map(|_| trust.confirm()).count() as u32
    }

    #[test]
    fn trust_is_earned_and_looked_after_and_lost_for_longer_each_time() {
        let trust = Trust::new();
        assert_eq!(earn(&trust), EARNED);
        let asked = (0..100 * ASKS).filter(|_| !trust.begin(|| true)).count();
        assert_eq!(asked, 100);
        trust.doubt();
        assert!(!trust.begin(|| true) && trust.begin(|| true), "the next one asks");
        let mut needed = EARNED;
        for _ in 0..30 {
            trust.lose();
            needed = (needed * 2).min(MOST);
            assert_eq!(earn(&trust), needed);
        }
    }

    #[test]
    fn what_does_not_last_is_never_trusted() {
        let trust = Trust::new();
        for _ in 0..5 * EARNED {
            assert!(!trust.begin(|| false));
            trust.confirm();
        }
    }

    #[test]
    fn what_was_just_written_is_trusted_and_nothing_beside_it() {
        let trust = Trust::new();
        let may = |offset, len, turn| trust.has_just_written(offset, len, turn);
        assert!(!may(0, 1, 0), "nothing was written");
        trust.wrote(4096, 8192, 7);
        assert!(may(4096, 8192, 7) && may(8192, 4096, 8));
        assert!(
            !may(4096, 8193, 7) && !may(4095, 2, 7) && !may(12_288, 1, 7) && !may(u64::MAX, 9, 7)
        );
        assert!(!may(4096, 8192, 9), "long ago");
    }
}
