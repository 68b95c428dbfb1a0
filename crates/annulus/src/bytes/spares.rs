//! Spare buffers for copied bytes.

/// Buffers for copied bytes, kept for reuse.
#[derive(Default)]
pub(crate) struct Spares(Vec<Vec<u8>>);

impl Spares {
    const MOST: usize = 64;
    const MOST_BYTES: usize = 64 * 1024;

    #[inline]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    /// Frees all buffers.
    pub(crate) fn clear(&mut self) {
        self.0 = Vec::new();
    }

    /// Keeps a buffer, unless it is large or enough buffers are kept already.
    #[inline]
    pub(crate) fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.0.len() < Self::MOST && buffer.capacity() <= Self::MOST_BYTES {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}
