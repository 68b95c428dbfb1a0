//! Bytes that an adapter has read but not returned yet.

/// Size of the memory for the first read.
const INITIAL_BYTES: usize = 8 * 1024;

/// Bytes that were read ahead, in memory that grows as needed.
#[derive(Default)]
pub(super) struct ReadAhead {
    memory: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the last read reached the end, and nothing has been consumed since.
    ended: bool,
}

impl ReadAhead {
    /// Returns the bytes that were read ahead.
    pub(super) fn shown(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Returns true if more must be read so that at least `n` bytes, and at least one, are shown.
    pub(super) fn needs_more(&self, n: usize) -> bool {
        !self.ended && self.shown().len() < n.max(1)
    }

    /// Returns memory to read into, at least one byte.
    pub(super) fn free(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.end == self.memory.len() && self.start > 0 {
            self.memory.copy_within(self.start.., 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.memory.len() {
            self.memory.resize((2 * self.end).max(INITIAL_BYTES), 0);
        }
        &mut self.memory[self.end..]
    }

    /// Records that `count` bytes were read into the free memory: 0 at the end of the stream.
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
        self.ended = count == 0;
    }

    pub(super) fn consume(&mut self, n: usize) {
        let shown = self.shown().len();
        assert!(n <= shown, "consume({n}), but only {shown} bytes are shown");
        self.start += n;
        self.ended = false;
    }

    /// Returns the bytes as owned memory.
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
    fn consumed_memory_is_reused() {
        let mut ahead = ReadAhead::default();
        fill(&mut ahead, &[1; INITIAL_BYTES - 1]);
        fill(&mut ahead, &[2]);
        ahead.consume(INITIAL_BYTES - 2);
        assert_eq!((ahead.free().len(), ahead.shown()), (INITIAL_BYTES - 2, &[1, 2][..]));
        fill(&mut ahead, &[3; INITIAL_BYTES - 2]);
        assert_eq!(
            ahead.free().len(),
            INITIAL_BYTES,
            "the memory grows only if all of it is unread"
        );
        assert_eq!(ahead.shown()[..3], [1, 2, 3]);
        ahead.consume(INITIAL_BYTES);
        assert_eq!(ahead.free().len(), 2 * INITIAL_BYTES);
        fill(&mut ahead, &[4, 5, 6]);
        ahead.consume(1);
        assert_eq!(ahead.into_vec(), [5, 6], "the owned memory has only the unread bytes");
    }
}
