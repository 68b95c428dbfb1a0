//! Reads and writes of several pieces of memory in one call.
#![allow(unsafe_code)]

use super::call::CallArgs;
use super::file::{File, check_offset};
use super::open_file::CursorGuard;
use crate::bytes::buf::{IoBuf, IoBufMut};
use crate::file_policy::Class;
use annulus_kernel::IoVec;
use annulus_kernel::file::{CURSOR_OFFSET, FileCall};
use std::io;
use std::os::fd::RawFd;

/// Maximum number of vectors per call: `IOV_MAX`.
const MAX_VECTORS: usize = 1024;

/// The buffers of a call, and the vectors that point to their memory.
struct Vectored<B> {
    bufs: Vec<B>,
    vectors: Box<[IoVec]>,
    offset: u64,
    writes: bool,
    /// The cursor permit, while the call runs off the loop at the cursor.
    guard: Option<CursorGuard>,
}

impl<B> Vectored<B> {
    fn reading(bufs: Vec<B>, offset: u64) -> Result<Self, (io::Error, Vec<B>)>
    where
        B: IoBufMut,
    {
        let vector = |buf: &mut B| IoVec { base: buf.as_mut_ptr(), len: buf.bytes_total() };
        Self::new(bufs, vector, offset, false)
    }

    fn writing(bufs: Vec<B>, offset: u64) -> Result<Self, (io::Error, Vec<B>)>
    where
        B: IoBuf,
    {
        let vector = |buf: &mut B| IoVec { base: buf.as_ptr(), len: buf.bytes_init() };
        Self::new(bufs, vector, offset, true)
    }

    fn new(
        mut bufs: Vec<B>,
        vector: impl FnMut(&mut B) -> IoVec,
        offset: u64,
        writes: bool,
    ) -> Result<Self, (io::Error, Vec<B>)> {
        let vectors: Box<[IoVec]> = bufs.iter_mut().map(vector).collect();
        match check(&vectors) {
            Ok(()) => Ok(Self { bufs, vectors, offset, writes, guard: None }),
            Err(error) => Err((error, bufs)),
        }
    }
}

// SAFETY: the vectors are in a box. `IoBufMut` (for reads) and `IoBuf` (for writes) guarantee that
// the memory they point to is valid, belongs to the buffers and does not move with them.
unsafe impl<B> CallArgs for Vectored<B> {
    fn call(&mut self, fd: RawFd) -> FileCall {
        let (vectors, count) = (self.vectors.as_ptr(), self.vectors.len() as u32);
        let offset = self.offset;
        if self.writes {
            FileCall::WriteVector { fd, vectors, count, offset }
        } else {
            FileCall::ReadVector { fd, vectors, count, offset, nowait: false }
        }
    }
}

impl File {
    /// Like [`read_at`](Self::read_at), but fills several pieces of memory in order.
    ///
    /// # Errors
    /// The errors of [`read_at`](Self::read_at); `InvalidInput` for more than 1024 pieces.
    pub async fn read_vectored_at<B: IoBufMut>(
        &self,
        bufs: Vec<B>,
        offset: u64,
    ) -> (io::Result<usize>, Vec<B>) {
        match check_offset(offset) {
            Ok(offset) => self.read_pieces(bufs, offset).await,
            Err(error) => (Err(error), bufs),
        }
    }

    /// Like [`read`](Self::read), but fills several pieces of memory in order.
    ///
    /// # Errors
    /// The errors of [`read_vectored_at`](Self::read_vectored_at).
    pub async fn read_vectored<B: IoBufMut>(
        &mut self,
        bufs: Vec<B>,
    ) -> (io::Result<usize>, Vec<B>) {
        self.read_pieces(bufs, CURSOR_OFFSET).await
    }

    /// Like [`write_at`](Self::write_at), but writes several pieces of memory in order.
    ///
    /// # Errors
    /// The errors of [`write_at`](Self::write_at); `InvalidInput` for more than 1024 pieces.
    pub async fn write_vectored_at<B: IoBuf>(
        &self,
        bufs: Vec<B>,
        offset: u64,
    ) -> (io::Result<usize>, Vec<B>) {
        match check_offset(offset).and_then(|offset| self.open.take_error().map(|()| offset)) {
            Ok(offset) => self.make_vectored(Vectored::writing(bufs, offset)).await,
            Err(error) => (Err(error), bufs),
        }
    }

    /// Like [`write`](Self::write), but writes several pieces of memory in order.
    ///
    /// # Errors
    /// The errors of [`write_vectored_at`](Self::write_vectored_at).
    pub async fn write_vectored<B: IoBuf>(&mut self, bufs: Vec<B>) -> (io::Result<usize>, Vec<B>) {
        match self.open.take_error() {
            Ok(()) => self.make_vectored(Vectored::writing(bufs, CURSOR_OFFSET)).await,
            Err(error) => (Err(error), bufs),
        }
    }

    async fn read_pieces<B: IoBufMut>(
        &self,
        bufs: Vec<B>,
        offset: u64,
    ) -> (io::Result<usize>, Vec<B>) {
        let (answer, mut bufs) = self.make_vectored(Vectored::reading(bufs, offset)).await;
        let mut left = *answer.as_ref().unwrap_or(&0);
        for buf in &mut bufs {
            let here = left.min(buf.bytes_total());
            // SAFETY: the kernel fills the buffers in order, so it has written the first `here`
            // bytes of this one.
            unsafe { buf.set_init(here) };
            left -= here;
        }
        (answer, bufs)
    }

    async fn make_vectored<B: Unpin + 'static>(
        &self,
        args: Result<Vectored<B>, (io::Error, Vec<B>)>,
    ) -> (io::Result<usize>, Vec<B>) {
        let mut args = match args {
            Ok(args) => args,
            Err((error, bufs)) => return (Err(error), bufs),
        };
        let bytes = args.vectors.iter().map(|vector| vector.len).sum();
        let at_cursor = args.offset == CURSOR_OFFSET;
        let class = if args.writes { Class::Write } else { Class::Read };
        let site = self.site(class, bytes, at_cursor);
        let is_taken = at_cursor && self.open.is_cursor_taken();
        let inline = if is_taken { None } else { site.try_inline(&mut args) };
        let (answer, args) = match inline {
            Some(answer) => (answer, args),
            None => {
                if at_cursor {
                    args.guard = self.cursor_guard().await;
                }
                site.offload(args).await
            }
        };
        (answer.map(|count| count as usize), args.bufs)
    }
}

/// Checks that one call can take this many vectors.
///
/// # Errors
/// `InvalidInput` for more than [`MAX_VECTORS`].
fn check(vectors: &[IoVec]) -> io::Result<()> {
    if vectors.len() <= MAX_VECTORS {
        return Ok(());
    }
    let text =
        format!("{} pieces are too many for one call (at most {MAX_VECTORS})", vectors.len());
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}
