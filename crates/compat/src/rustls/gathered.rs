//! Bytes that were gathered so that they can be shown in one piece.

#[derive(Default)]
pub(super) struct Gathered {
    memory: Vec<u8>,
    start: usize,
}

impl Gathered {
    pub(super) fn shown(&self) -> &[u8] {
        &self.memory[self.start..]
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.memory.drain(..std::mem::take(&mut self.start));
        self.memory.extend_from_slice(bytes);
    }

    pub(super) fn consume(&mut self, n: usize) {
        let shown = self.shown().len();
        assert!(n <= shown, "consume({n}) of {shown} bytes that are shown");
        self.start += n;
        if n == shown {
            // An idle session holds none.
            *self = Self::default();
        }
    }
}

impl std::fmt::Debug for Gathered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.shown().len())
    }
}
