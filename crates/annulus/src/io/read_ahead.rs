//! Bytes that an adapter has read and not given out yet.

/// Memory of the first read, in bytes.
const FIRST: usize = 8 * 1024;

/// Bytes that were read ahead, in memory that grows with them.
#[derive(Default)]
pub(super) struct ReadAhead {
    memory: Vec<u8>,
    start: usize,
    end: usize,
    /// The last read has found the end, and nothing was consumed since.
    ended: bool,
}

impl ReadAhead {
    /// The bytes.
    pub(super) fn shown(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Whether more is to be read, so that `n` bytes and at least one are shown.
    pub(super) fn wants(&self, n: usize) -> bool {
        !self.ended && self.shown().len() < n.max(1)
    }

    /// Memory to read into, at least one byte.
    pub(super) fn free(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.end == self.memory.len() && self.start > 0 {
            self.memory.copy_within(self.start.., 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.memory.len() {
            self.memory.resize((2 * self.end).max(FIRST), 0);
        }
        &mut self.memory[self.end..]
    }

    /// `count` bytes were read into the free memory; none at the end of the stream.
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
        self.ended = count == 0;
    }

    pub(super) fn consume(&mut self, n: usize) {
        let shown = self.shown().len();
        assert!(n <= shown, "consume({n}) of {shown} bytes that are shown");
        self.start += n;
        self.ended = false;
    }

    /// The bytes, as owned memory.
    pub(super) fn into_vec(mut self) -> Vec<u8> {
        self.memory.truncate(self.end);
        self.memory.drain(..self.start);
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(ahead: &mut ReadAhead, bytes: &[u8]) {
        ahead.free()[..bytes.len()].copy_from_slice(bytes);
        ahead.filled(bytes.len());
    }

    #[test]
    fn memory_that_was_consumed_is_used_again() {
        let mut ahead = ReadAhead::default();
        fill(&mut ahead, &[1; FIRST - 1]);
        fill(&mut ahead, &[2]);
        ahead.consume(FIRST - 2);
        assert_eq!((ahead.free().len(), ahead.shown()), (FIRST - 2, &[1, 2][..]));
        fill(&mut ahead, &[3; FIRST - 2]);
        assert_eq!(ahead.free().len(), FIRST, "it grows only if all of it is unread");
        assert_eq!(ahead.shown()[..3], [1, 2, 3]);
        ahead.consume(FIRST);
        assert_eq!(ahead.free().len(), 2 * FIRST);
        fill(&mut ahead, &[4, 5, 6]);
        ahead.consume(1);
        assert_eq!(ahead.into_vec(), [5, 6], "without what was consumed, and what is free");
    }
}
