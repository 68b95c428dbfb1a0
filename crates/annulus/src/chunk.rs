//! What can be sent: owned bytes.

use crate::lease::Lease;
use crate::shared::SharedBytes;
use std::fmt;

/// Owned bytes on their way out. Anything that converts into one can be sent; nothing is copied.
pub struct Chunk(Repr);

enum Repr {
    Lease(Lease),
    Vec(Vec<u8>),
    Boxed(Box<[u8]>),
    Static(&'static [u8]),
    Shared(SharedBytes),
    /// Copied into a buffer of the runtime's own by `poll_write`.
    Copied(Vec<u8>),
}

impl Chunk {
    /// Bytes copied into a buffer of the runtime's own.
    pub(crate) fn copied(buffer: Vec<u8>) -> Self {
        Self(Repr::Copied(buffer))
    }

    /// The buffer of copied bytes, to append to.
    pub(crate) fn copied_mut(&mut self) -> Option<&mut Vec<u8>> {
        match &mut self.0 {
            Repr::Copied(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// The runtime's own buffer, to use again.
    pub(crate) fn into_copied(self) -> Option<Vec<u8>> {
        match self.0 {
            Repr::Copied(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// Takes the first `n` bytes off, without copying.
    ///
    /// # Panics
    /// Where `n` is more than the length.
    pub(crate) fn split_to(&mut self, n: usize) -> Self {
        match &mut self.0 {
            Repr::Lease(bytes) => Self(Repr::Lease(bytes.split_to(n))),
            Repr::Static(bytes) => {
                let (first, rest) = bytes.split_at(n);
                *bytes = rest;
                Self(Repr::Static(first))
            }
            Repr::Shared(bytes) => {
                let first = bytes.slice(..n);
                *bytes = bytes.slice(n..);
                Self(Repr::Shared(first))
            }
            Repr::Vec(bytes) | Repr::Copied(bytes) => {
                self.0 = Repr::Shared(std::mem::take(bytes).into());
                self.split_to(n)
            }
            Repr::Boxed(bytes) => {
                self.0 = Repr::Shared(std::mem::take(bytes).into());
                self.split_to(n)
            }
        }
    }

    /// How many bytes there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// True where there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl AsRef<[u8]> for Chunk {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Repr::Lease(bytes) => bytes,
            Repr::Vec(bytes) | Repr::Copied(bytes) => bytes,
            Repr::Boxed(bytes) => bytes,
            Repr::Static(bytes) => bytes,
            Repr::Shared(bytes) => bytes,
        }
    }
}

impl From<Lease> for Chunk {
    #[inline]
    fn from(bytes: Lease) -> Self {
        Self(Repr::Lease(bytes))
    }
}

impl From<Vec<u8>> for Chunk {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Repr::Vec(bytes))
    }
}

impl From<String> for Chunk {
    fn from(text: String) -> Self {
        Self(Repr::Vec(text.into_bytes()))
    }
}

impl From<Box<[u8]>> for Chunk {
    fn from(bytes: Box<[u8]>) -> Self {
        Self(Repr::Boxed(bytes))
    }
}

impl From<&'static [u8]> for Chunk {
    fn from(bytes: &'static [u8]) -> Self {
        Self(Repr::Static(bytes))
    }
}

impl<const N: usize> From<&'static [u8; N]> for Chunk {
    fn from(bytes: &'static [u8; N]) -> Self {
        Self(Repr::Static(bytes))
    }
}

impl From<&'static str> for Chunk {
    fn from(text: &'static str) -> Self {
        Self(Repr::Static(text.as_bytes()))
    }
}

impl From<SharedBytes> for Chunk {
    fn from(bytes: SharedBytes) -> Self {
        Self(Repr::Shared(bytes))
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes)", self.len())
    }
}
