//! Reads and writes of several pieces of memory in one call.
#![allow(unsafe_code)]

use super::call::CallArgs;
use super::file::{File, check_offset};
use crate::bytes::buf::{IoBuf, IoBufMut};
use crate::file_policy::Class;
use annulus_kernel::IoVec;
use annulus_kernel::file::FileCall;
use std::io;
use std::os::fd::RawFd;

/// Vectors that a call takes: `IOV_MAX`.
const MAX_VECTORS: usize = 1024;

/// The buffers of a call, and the vectors that name their memory.
struct Vectored<B> {
    bufs: Vec<B>,
    vectors: Box<[IoVec]>,
    offset: u64,
}

impl<B> Vectored<B> {
    fn new(
        mut bufs: Vec<B>,
        vector: impl FnMut(&mut B) -> IoVec,
        offset: u64,
    ) -> Result<Self, (io::Error, Vec<B>)> {
        let vectors: Box<[IoVec]> = bufs.iter_mut().map(vector).collect();
        match check(&vectors, offset) {
            Ok(()) => Ok(Self { bufs, vectors, offset }),
            Err(error) => Err((error, bufs)),
        }
    }

    fn bytes(&self) -> usize {
        self.vectors.iter().map(|vector| vector.len).sum()
    }
}

struct ReadVectored<B>(Vectored<B>);

struct WriteVectored<B>(Vectored<B>);

// SAFETY: the vectors are in a box. They name memory that `IoBufMut` promises to be valid, the buffers' own, and not to move with them.
unsafe impl<B: IoBufMut> CallArgs for ReadVectored<B> {
    fn call(&mut self, fd: RawFd) -> FileCall {
        let (vectors, count) = (self.0.vectors.as_ptr(), self.0.vectors.len() as u32);
        FileCall::ReadVector { fd, vectors, count, offset: self.0.offset, nowait: false }
    }
}

// SAFETY: the vectors are in a box. They name memory that `IoBuf` promises to be initialised, unchanged, and not to move with the buffers.
unsafe impl<B: IoBuf> CallArgs for WriteVectored<B> {
    fn call(&mut self, fd: RawFd) -> FileCall {
        let (vectors, count) = (self.0.vectors.as_ptr(), self.0.vectors.len() as u32);
        FileCall::WriteVector { fd, vectors, count, offset: self.0.offset }
    }
}

impl File {
    /// As [`read_at`](Self::read_at), into several pieces of memory, one after the other.
    ///
    /// # Errors
    /// As there; `InvalidInput` for more than 1024 pieces.
    pub async fn read_vectored_at<B: IoBufMut>(
        &self,
        bufs: Vec<B>,
        offset: u64,
    ) -> (io::Result<usize>, Vec<B>) {
        let vector = |buf: &mut B| IoVec { base: buf.as_mut_ptr(), len: buf.bytes_total() };
        let args = match Vectored::new(bufs, vector, offset) {
            Ok(args) => ReadVectored(args),
            Err((error, bufs)) => return (Err(error), bufs),
        };
        let site = self.site(Class::Read, args.0.bytes(), false);
        let (answer, ReadVectored(Vectored { mut bufs, .. })) = site.make(args).await;
        let answer = answer.map(|count| count as usize);
        let mut left = *answer.as_ref().unwrap_or(&0);
        for buf in &mut bufs {
            let here = left.min(buf.bytes_total());
            // SAFETY: the kernel fills the buffers in order, and the share of this one is `here`.
            unsafe { buf.set_init(here) };
            left -= here;
        }
        (answer, bufs)
    }

    /// As [`write_at`](Self::write_at), from several pieces of memory, one after the other.
    ///
    /// # Errors
    /// As there; `InvalidInput` for more than 1024 pieces.
    pub async fn write_vectored_at<B: IoBuf>(
        &self,
        bufs: Vec<B>,
        offset: u64,
    ) -> (io::Result<usize>, Vec<B>) {
        let vector = |buf: &mut B| IoVec { base: buf.as_ptr(), len: buf.bytes_init() };
        let args = match Vectored::new(bufs, vector, offset) {
            Ok(args) => WriteVectored(args),
            Err((error, bufs)) => return (Err(error), bufs),
        };
        let site = self.site(Class::Write, args.0.bytes(), false);
        let (answer, WriteVectored(Vectored { bufs, .. })) = site.make(args).await;
        (answer.map(|count| count as usize), bufs)
    }
}

fn check(vectors: &[IoVec], offset: u64) -> io::Result<()> {
    if vectors.len() <= MAX_VECTORS {
        return check_offset(offset).map(drop);
    }
    let text = format!("{} pieces in a call: at most {MAX_VECTORS}", vectors.len());
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}
