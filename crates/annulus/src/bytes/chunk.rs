//! Owned bytes that can be sent.

use crate::bytes::lease::Lease;
use crate::bytes::owned::OwnedPart;
use crate::bytes::shared::SharedBytes;
use crate::memory::Meter;
use crate::unwind::dispose_each;
use annulus_kernel::{Control, ControlWriter, Direction, MAX_DESCRIPTORS_PER_MESSAGE, space};
use std::any::Any;
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

/// Estimated memory of a queued chunk in addition to its bytes.
const CHUNK_OVERHEAD_BYTES: usize = 64;

/// Owned bytes of any kind that can be sent or written to a file without a copy.
///
/// Everything that is sent becomes a chunk, and `send` takes any type that converts into one: a
/// [`Lease`], [`SharedBytes`], vectors, strings, boxes, `Arc` and `Rc` of bytes or text, static
/// bytes and text, `Cow` of these, `Bytes` (feature `bytes`), and slices of file buffers. All of
/// these, and the chunk itself, implement [`IoBuf`](crate::fs::IoBuf), so they can be written to
/// files as well. [`from_owner`](Self::from_owner) converts other types.
///
/// ```
/// use annulus::Chunk;
/// use std::rc::Rc;
///
/// let page: Rc<[u8]> = Rc::from(*b"<html></html>");
/// let chunk = Chunk::from(page.clone());
/// assert_eq!(chunk.as_ref().as_ptr(), page.as_ptr(), "the same bytes, not a copy");
/// ```
pub struct Chunk(pub(crate) ChunkRepr);

/// A type that converts into a [`Chunk`] and so can be sent.
///
/// Borrowed bytes do not convert, because they might no longer exist when they are sent.
///
/// ```compile_fail,E0277
/// async fn send(stream: &mut annulus::net::TcpStream, bytes: Vec<u8>) -> std::io::Result<()> {
///     stream.send(&bytes).await
/// }
/// ```
///
/// ```
/// use annulus::net::UnixStream;
/// use annulus::{Chunk, IntoChunk};
///
/// async fn twice(stream: &mut UnixStream, bytes: impl IntoChunk + Clone) -> std::io::Result<()> {
///     stream.send(bytes.clone()).await?;
///     stream.send(bytes).await
/// }
///
/// # annulus::run(async {
/// let (mut one, mut other) = UnixStream::pair()?;
/// twice(&mut one, "bytes").await?;
/// assert_eq!(&*other.recv_exact(10).await?, b"bytesbytes");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent: `send` keeps the bytes until the kernel has taken them",
    label = "neither owned bytes nor a lease",
    note = "owned bytes are `Vec<u8>`, `String`, `Box`, `Arc` and `Rc` of bytes, `Bytes` (feature `bytes`), static text, and `Lease`",
    note = "borrowed bytes are sent by `write_all`, datagrams of borrowed bytes by `try_send`"
)]
pub trait IntoChunk: Into<Chunk> {}

#[diagnostic::do_not_recommend]
impl<T: Into<Chunk>> IntoChunk for T {}

pub(crate) enum ChunkRepr {
    Lease(Lease),
    /// Also holds boxed bytes: a chunk may be moved while the kernel reads its bytes, and a `Box`
    /// must not be.
    Vec(Vec<u8>),
    Static(&'static [u8]),
    Shared(SharedBytes),
    Arc(Arc<[u8]>),
    Rc(Rc<[u8]>),
    #[cfg(feature = "bytes")]
    Foreign(bytes::Bytes),
    /// Bytes whose owner may run foreign code in its destructor.
    Owned(OwnedPart),
    /// Bytes that were copied into a buffer of the runtime.
    Copied(Vec<u8>),
    Passing(Box<Passing>),
}

/// Bytes with descriptors, which stay open until the chunk is dropped.
pub(crate) struct Passing {
    bytes: Chunk,
    /// The control message with the descriptors, in the kernel's format.
    control: Vec<u8>,
    #[expect(dead_code, reason = "held for its drop")]
    descriptors: Vec<OwnedFd>,
}

impl Chunk {
    pub(crate) const EMPTY: Self = Self(ChunkRepr::Static(&[]));

    /// Converts any memory that can be written to a file: a file buffer, a slice, or a type of the
    /// program. This allocates, but does not copy the bytes.
    ///
    /// ```
    /// use annulus::Chunk;
    /// use annulus::fs::{AlignedBuf, IoBuf};
    ///
    /// let block = AlignedBuf::new(4096, 512)?;
    /// let chunk = Chunk::from_buf(block.slice(..100));
    /// assert_eq!(chunk.len(), 100);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn from_buf(buf: impl crate::bytes::buf::IoBuf) -> Self {
        OwnedPart::of_buf(buf).map_or(Self::EMPTY, |part| Self(ChunkRepr::Owned(part)))
    }

    /// Converts any value that has bytes. Its `as_ref` is called once, and it is dropped when the
    /// bytes have been sent. This allocates, but does not copy the bytes.
    ///
    /// ```
    /// use annulus::Chunk;
    ///
    /// struct Page {
    ///     html: String,
    /// }
    ///
    /// impl AsRef<[u8]> for Page {
    ///     fn as_ref(&self) -> &[u8] {
    ///         self.html.as_bytes()
    ///     }
    /// }
    ///
    /// let chunk = Chunk::from_owner(Page { html: "<html></html>".into() });
    /// assert_eq!(chunk.as_ref(), b"<html></html>");
    /// ```
    pub fn from_owner(owner: impl AsRef<[u8]> + 'static) -> Self {
        OwnedPart::of_owner(owner).map_or(Self::EMPTY, |part| Self(ChunkRepr::Owned(part)))
    }

    /// Creates a chunk of bytes that were copied into a buffer of the runtime.
    pub(crate) fn copied(buffer: Vec<u8>) -> Self {
        Self(ChunkRepr::Copied(buffer))
    }

    /// Adds descriptors to the chunk.
    ///
    /// # Errors
    /// `InvalidInput` for more descriptors than one message can carry.
    pub(crate) fn with_descriptors(self, descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        if descriptors.len() > MAX_DESCRIPTORS_PER_MESSAGE {
            let text = format!(
                "{} descriptors are more than one message can carry ({MAX_DESCRIPTORS_PER_MESSAGE})",
                descriptors.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if descriptors.is_empty() {
            return Ok(self);
        }
        let numbers: Vec<u8> =
            descriptors.iter().flat_map(|fd| fd.as_raw_fd().to_ne_bytes()).collect();
        let mut control = vec![0; space(numbers.len())];
        let mut writer = ControlWriter::new(&mut control, Direction::Sent);
        assert!(
            writer.push(Control::Descriptors(&numbers)),
            "the descriptors do not fit into the control message"
        );
        Ok(Self(ChunkRepr::Passing(Box::new(Passing { bytes: self, control, descriptors }))))
    }

    /// Returns the control message, or an empty slice if the chunk has no descriptors.
    #[inline]
    pub(crate) fn control(&self) -> &[u8] {
        match &self.0 {
            ChunkRepr::Passing(passing) => &passing.control,
            _ => &[],
        }
    }

    /// Returns the runtime's buffer, to append to it, or `None` for any other kind of bytes.
    #[inline]
    pub(crate) fn copied_mut(&mut self) -> Option<&mut Vec<u8>> {
        match &mut self.0 {
            ChunkRepr::Copied(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// Drops a chunk that was sent or discarded. A buffer of the runtime goes to `spares`. Bytes
    /// with a foreign owner go to `deferred`, since dropping the owner runs foreign code and the
    /// runtime is borrowed here.
    #[inline]
    pub(crate) fn retire(self, spares: &mut Spares, deferred: &mut DeferredDrops) {
        match self.0 {
            // The common cases come first.
            ChunkRepr::Lease(lease) => drop(lease),
            ChunkRepr::Static(_) => {}
            other => Self(other).retire_other(spares, deferred),
        }
    }

    /// Returns the bytes that a queued chunk adds to the memory meter. Leases are metered
    /// separately.
    #[inline]
    pub(crate) fn weight(&self) -> usize {
        if matches!(self.0, ChunkRepr::Lease(_)) { 0 } else { self.weight_of_other() }
    }

    #[inline(never)]
    fn weight_of_other(&self) -> usize {
        self.len() + CHUNK_OVERHEAD_BYTES
    }

    /// Like [`retire`](Self::retire), but for a queued chunk, whose weight is on the meter.
    #[inline]
    pub(crate) fn retire_queued(
        self,
        meter: &Meter,
        spares: &mut Spares,
        deferred: &mut DeferredDrops,
    ) {
        match self.0 {
            ChunkRepr::Lease(lease) => drop(lease),
            other => Self(other).retire_weighed(meter, spares, deferred),
        }
    }

    /// Like [`retire_queued`](Self::retire_queued), but for a chunk that the caller drops next. A
    /// lease stays in place, which saves a move, and that drop frees it.
    #[inline]
    pub(crate) fn release_queued(
        &mut self,
        meter: &Meter,
        spares: &mut Spares,
        deferred: &mut DeferredDrops,
    ) {
        if !matches!(self.0, ChunkRepr::Lease(_)) {
            mem::replace(self, Self::EMPTY).retire_weighed(meter, spares, deferred);
        }
    }

    #[inline(never)]
    fn retire_weighed(self, meter: &Meter, spares: &mut Spares, deferred: &mut DeferredDrops) {
        meter.sub(self.weight());
        self.retire_other(spares, deferred);
    }

    #[inline(never)]
    fn retire_other(self, spares: &mut Spares, deferred: &mut DeferredDrops) {
        match self.0 {
            ChunkRepr::Copied(buffer) => spares.keep(buffer),
            #[cfg(feature = "bytes")]
            ChunkRepr::Foreign(_) => deferred.chunks.push(self),
            ChunkRepr::Owned(_) => deferred.chunks.push(self),
            ChunkRepr::Passing(passing) => passing.bytes.retire(spares, deferred),
            ChunkRepr::Lease(_)
            | ChunkRepr::Vec(_)
            | ChunkRepr::Static(_)
            | ChunkRepr::Shared(_)
            | ChunkRepr::Arc(_)
            | ChunkRepr::Rc(_) => {}
        }
    }

    /// Splits off the first `n` bytes without a copy, for an [`AsyncSend`](crate::io::AsyncSend)
    /// that takes only a part.
    ///
    /// ```
    /// use annulus::Chunk;
    ///
    /// let mut chunk = Chunk::from("taken, and not");
    /// drop(chunk.split_to(5));
    /// assert_eq!(chunk.as_ref(), b", and not");
    /// ```
    ///
    /// # Panics
    /// If `n` is more than the length.
    pub fn split_to(&mut self, n: usize) -> Self {
        match &mut self.0 {
            ChunkRepr::Lease(bytes) => Self(ChunkRepr::Lease(bytes.split_to(n))),
            ChunkRepr::Static(bytes) => {
                let (first, rest) = bytes.split_at(n);
                *bytes = rest;
                Self(ChunkRepr::Static(first))
            }
            #[cfg(feature = "bytes")]
            ChunkRepr::Foreign(bytes) => Self(ChunkRepr::Foreign(bytes.split_to(n))),
            ChunkRepr::Shared(bytes) => {
                let first = bytes.slice(..n);
                *bytes = bytes.slice(n..);
                Self(ChunkRepr::Shared(first))
            }
            ChunkRepr::Owned(part) => Self(ChunkRepr::Owned(part.split_to(n))),
            ChunkRepr::Vec(_) | ChunkRepr::Copied(_) | ChunkRepr::Arc(_) | ChunkRepr::Rc(_) => {
                *self = Self::from_owner(mem::replace(self, Self::EMPTY));
                self.split_to(n)
            }
            ChunkRepr::Passing(_) => {
                unreachable!("datagrams and Unix sends with descriptors are never split")
            }
        }
    }

    fn bytes_of_other(&self) -> &[u8] {
        match &self.0 {
            ChunkRepr::Lease(bytes) => bytes,
            ChunkRepr::Vec(bytes) | ChunkRepr::Copied(bytes) => bytes,
            ChunkRepr::Static(bytes) => bytes,
            ChunkRepr::Shared(bytes) => bytes,
            ChunkRepr::Arc(bytes) => bytes,
            ChunkRepr::Rc(bytes) => bytes,
            ChunkRepr::Owned(part) => part.bytes(),
            #[cfg(feature = "bytes")]
            ChunkRepr::Foreign(bytes) => bytes,
            ChunkRepr::Passing(passing) => passing.bytes.as_ref(),
        }
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Returns true if there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl AsRef<[u8]> for Chunk {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            // Handles the common case first.
            ChunkRepr::Lease(bytes) => bytes,
            _ => self.bytes_of_other(),
        }
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes)", self.len())
    }
}

/// Wakers to wake and values to drop once the runtime is no longer borrowed.
#[derive(Default)]
pub(crate) struct DeferredDrops {
    pub(crate) wakes: Vec<Waker>,
    pub(crate) drops: Vec<Waker>,
    /// Arguments and descriptors of file calls whose futures were dropped: dropping them may close
    /// a file.
    pub(crate) kept: Vec<Box<dyn Any>>,
    /// Chunks with a foreign owner that were sent or discarded.
    pub(crate) chunks: Vec<Chunk>,
}

impl DeferredDrops {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.wakes.is_empty() && !self.has_drops()
    }

    #[inline]
    pub(crate) fn has_drops(&self) -> bool {
        !self.drops.is_empty() || !self.kept.is_empty() || !self.chunks.is_empty()
    }

    /// Drops everything, including the wakers to wake. The runtime must not be borrowed.
    #[cold]
    pub(crate) fn discard(self) {
        let Self { wakes, drops, kept, chunks } = self;
        dispose_each(wakes);
        dispose_each(drops);
        dispose_each(kept);
        dispose_each(chunks);
    }
}

/// Buffers for copied bytes, kept for reuse.
#[derive(Default)]
pub(crate) struct Spares(Vec<Vec<u8>>);

impl Spares {
    const MAX_BUFFERS: usize = 64;
    const MAX_BUFFER_BYTES: usize = 64 * 1024;

    #[inline]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    pub(crate) fn clear(&mut self) {
        self.0 = Vec::new();
    }

    /// Keeps a buffer, unless it is large or enough buffers are kept already.
    #[inline]
    pub(crate) fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.0.len() < Self::MAX_BUFFERS && buffer.capacity() <= Self::MAX_BUFFER_BYTES {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}
