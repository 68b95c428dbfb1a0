//! The kinds of owned bytes. Each can be sent, as a [`Chunk`], and written to a file, as an
//! [`IoBuf`].
#![allow(unsafe_code)]

use crate::bytes::buf::{IoBuf, Slice};
use crate::bytes::chunk::{Chunk, ChunkRepr};
use crate::bytes::lease::Lease;
use crate::bytes::shared::SharedBytes;
use std::any::Any;
use std::borrow::Cow;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

/// Implements `IoBuf` and the conversion into a chunk for types whose bytes do not move with the
/// value. A row is `TYPE: how to get its bytes, how to convert it into a chunk`.
macro_rules! owned_bytes {
    ($($type:ty: |$seen:ident| $bytes:expr, |$given:ident| $chunk:expr;)*) => {$(
        impl From<$type> for $crate::Chunk {
            #[inline]
            fn from($given: $type) -> Self {
                $chunk
            }
        }

        // SAFETY: the bytes are on the heap, in a pool or static, so they do not move with the
        // handle. No safe code changes them while the handle is not used, not even through another
        // handle: they have no interior mutability, and shared bytes are never changed.
        #[diagnostic::do_not_recommend]
        unsafe impl $crate::bytes::buf::IoBuf for $type {
            #[inline]
            fn as_ptr(&self) -> *const u8 {
                let $seen = self;
                let bytes: &[u8] = $bytes;
                bytes.as_ptr()
            }

            #[inline]
            fn bytes_init(&self) -> usize {
                let $seen = self;
                let bytes: &[u8] = $bytes;
                bytes.len()
            }
        }
    )*};
}

#[cfg(feature = "bytes")]
pub(crate) use owned_bytes;

owned_bytes! {
    Lease: |it| it, |it| Chunk(ChunkRepr::Lease(it));
    SharedBytes: |it| it, |it| Chunk(ChunkRepr::Shared(it));
    Vec<u8>: |it| it, |it| Chunk(ChunkRepr::Vec(it));
    String: |it| it.as_bytes(), |it| Chunk(ChunkRepr::Vec(it.into_bytes()));
    Box<[u8]>: |it| it, |it| Chunk(ChunkRepr::Vec(it.into_vec()));
    Box<str>: |it| it.as_bytes(), |it| Chunk(ChunkRepr::Vec(it.into_string().into_bytes()));
    Arc<[u8]>: |it| it, |it| Chunk(ChunkRepr::Arc(it));
    Arc<str>: |it| it.as_bytes(), |it| Chunk(ChunkRepr::Arc(it.into()));
    Arc<Vec<u8>>: |it| it, |it| Chunk::from_buf(it);
    Arc<String>: |it| it.as_bytes(), |it| Chunk::from_buf(it);
    Rc<[u8]>: |it| it, |it| Chunk(ChunkRepr::Rc(it));
    Rc<str>: |it| it.as_bytes(), |it| Chunk(ChunkRepr::Rc(it.into()));
    Rc<Vec<u8>>: |it| it, |it| Chunk::from_buf(it);
    Rc<String>: |it| it.as_bytes(), |it| Chunk::from_buf(it);
    &'static [u8]: |it| it, |it| Chunk(ChunkRepr::Static(it));
    &'static str: |it| it.as_bytes(), |it| Chunk(ChunkRepr::Static(it.as_bytes()));
    Cow<'static, [u8]>: |it| it, |it| match it {
        Cow::Borrowed(bytes) => bytes.into(),
        Cow::Owned(bytes) => bytes.into(),
    };
    Cow<'static, str>: |it| it.as_bytes(), |it| match it {
        Cow::Borrowed(text) => text.into(),
        Cow::Owned(text) => text.into(),
    };
}

impl<const N: usize> From<&'static [u8; N]> for Chunk {
    #[inline]
    fn from(bytes: &'static [u8; N]) -> Self {
        Self(ChunkRepr::Static(bytes))
    }
}

// SAFETY: the bytes are static.
#[diagnostic::do_not_recommend]
unsafe impl<const N: usize> IoBuf for &'static [u8; N] {
    fn as_ptr(&self) -> *const u8 {
        self.as_slice().as_ptr()
    }

    fn bytes_init(&self) -> usize {
        N
    }
}

// SAFETY: the bytes of a chunk are on the heap, in a pool or static. They do not move with the
// chunk, and do not change while the chunk is not used. Each type that becomes a chunk is an
// `IoBuf`, or its `as_ref` is called once and the value is then only dropped.
#[diagnostic::do_not_recommend]
unsafe impl IoBuf for Chunk {
    fn as_ptr(&self) -> *const u8 {
        self.as_ref().as_ptr()
    }

    fn bytes_init(&self) -> usize {
        self.len()
    }
}

impl<B: IoBuf> From<Slice<B>> for Chunk {
    fn from(part: Slice<B>) -> Self {
        Self::from_buf(part)
    }
}

/// Bytes and the owner that keeps them in place, whose destructor may run foreign code.
pub(crate) struct OwnedPart {
    start: NonNull<u8>,
    len: usize,
    owner: Rc<dyn Any>,
}

impl OwnedPart {
    /// Takes over a file buffer with all its initialised bytes. Returns `None` if it has no bytes.
    pub(crate) fn of_buf(buf: impl IoBuf) -> Option<Self> {
        Self::new(buf, |buf| (buf.as_ptr(), buf.bytes_init()))
    }

    /// Takes over any value with all its bytes. Returns `None` if it has no bytes.
    pub(crate) fn of_owner(owner: impl AsRef<[u8]> + 'static) -> Option<Self> {
        Self::new(owner, |owner| {
            let bytes = owner.as_ref();
            (bytes.as_ptr(), bytes.len())
        })
    }

    /// Moves the owner to the heap before it calls `bytes`. If the owner contains a `Box`, a later
    /// move would invalidate pointers into the box.
    fn new<T: 'static>(owner: T, bytes: impl FnOnce(&T) -> (*const u8, usize)) -> Option<Self> {
        let owner = Rc::new(owner);
        let (start, len) = bytes(&*owner);
        let start = NonNull::new(start.cast_mut()).filter(|_| len > 0)?;
        Some(Self { start, len, owner })
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the owner returned these bytes when it was already in its final place on the
        // heap. Nothing uses the owner afterwards except to drop it, which `self` prevents.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Splits off the first `n` bytes.
    ///
    /// # Panics
    /// If `n` is more than the length.
    pub(crate) fn split_to(&mut self, n: usize) -> Self {
        let (first, rest) = self.bytes().split_at(n);
        let (first, rest) = (NonNull::from(first).cast(), NonNull::from(rest).cast());
        let head = Self { start: first, len: n, owner: self.owner.clone() };
        (self.start, self.len) = (rest, self.len - n);
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn parts_stay_where_they_are_when_their_handles_move() {
        let boxed: Box<[u8]> = Box::from(*b"head-middle-tail");
        let mut rest = vec![Chunk::from_buf(boxed.slice(..11)), Chunk::from("vector".to_owned())];
        let mut head = rest[0].split_to(5);
        let part = rest[1].split_to(3);
        rest.reserve(100);
        let first = head.split_to(4);
        assert_eq!((first.as_ref(), head.as_ref()), (&b"head"[..], &b"-"[..]));
        drop((first, head));
        assert_eq!((rest[0].as_ref(), rest[1].as_ref()), (&b"middle"[..], &b"tor"[..]));
        drop(rest);
        assert_eq!(part.as_ref(), b"vec");
    }

    #[test]
    fn an_owner_is_dropped_with_its_last_part() {
        struct CountsDrops(Rc<Cell<u32>>);

        impl AsRef<[u8]> for CountsDrops {
            fn as_ref(&self) -> &[u8] {
                b"static"
            }
        }

        impl Drop for CountsDrops {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }

        let dropped = Rc::new(Cell::new(0));
        let mut rest = Chunk::from_owner(CountsDrops(dropped.clone()));
        let first = rest.split_to(2);
        drop(rest);
        assert_eq!(dropped.get(), 0);
        drop(first);
        assert_eq!(dropped.get(), 1);
    }
}
