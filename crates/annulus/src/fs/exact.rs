//! Reads and writes that move everything, however many calls it takes.
#![allow(unsafe_code)]

use super::buf::{IoBuf, IoBufMut};
use super::file::{CURSOR, File, place};
use super::latency::Class;
use annulus_kernel::IoVec;
use annulus_kernel::file::FileCall;
use std::io;

/// Vectors a call takes: `IOV_MAX`.
const MOST_VECTORS: usize = 1024;

impl File {
    /// Reads until the memory is full.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at); `UnexpectedEof` where the file ends before, saying where.
    pub async fn read_exact_at<B: IoBufMut>(&self, mut buf: B, offset: u64) -> (io::Result<()>, B) {
        let total = buf.bytes_total();
        let mut done = 0;
        while done < total {
            let at = match place(offset + done as u64) {
                Ok(at) => at,
                Err(error) => return (Err(error), buf),
            };
            let read = match self.read_at_once(&mut buf, done, at) {
                Some(Ok(count)) => Ok(count),
                tried => {
                    let later;
                    (later, buf) = self.read_later(tried, buf, done, at).await;
                    later
                }
            };
            match read {
                Ok(0) => return (Err(ended(offset, done, total)), buf),
                Ok(count) => done += count,
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }

    /// Writes everything.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at), saying how many bytes were written before.
    pub async fn write_all_at<B: IoBuf>(&self, buf: B, offset: u64) -> (io::Result<()>, B) {
        match place(offset) {
            Ok(offset) => self.write_whole(buf, |done| offset + done, &mut 0).await,
            Err(error) => (Err(error), buf),
        }
    }

    /// Writes everything at the cursor, and moves it.
    ///
    /// # Errors
    /// As [`write_all_at`](Self::write_all_at).
    pub async fn write_all<B: IoBuf>(&mut self, buf: B) -> (io::Result<()>, B) {
        self.write_whole(buf, |_| CURSOR, &mut 0).await
    }

    /// Writes everything, and counts it in `done`. Where the next bytes go is told by how many were written.
    pub(super) async fn write_whole<B: IoBuf>(
        &self,
        mut buf: B,
        place: impl Fn(u64) -> u64,
        done: &mut usize,
    ) -> (io::Result<()>, B) {
        let total = buf.bytes_init();
        while *done < total {
            let at = place(*done as u64);
            let written = match self.write_at_once(&buf, *done, at) {
                Some(Ok(count)) => Ok(count),
                tried => {
                    let later;
                    (later, buf) = self.write_later(tried, buf, *done, at).await;
                    later
                }
            };
            match written {
                Ok(0) => return (Err(stuck(io::ErrorKind::WriteZero.into(), *done, total)), buf),
                Ok(count) => *done += count,
                Err(error) if *done == 0 => return (Err(error), buf),
                Err(error) => return (Err(stuck(error, *done, total)), buf),
            }
        }
        (Ok(()), buf)
    }

    /// As [`read_at`](Self::read_at), into several pieces of memory, one after the other.
    ///
    /// # Errors
    /// As there; `InvalidInput` for more than 1024 pieces.
    pub async fn read_vectored_at<B: IoBufMut>(
        &self,
        mut bufs: Vec<B>,
        offset: u64,
    ) -> (io::Result<usize>, Vec<B>) {
        let piece = |buf: &mut B| IoVec { base: buf.as_mut_ptr(), len: buf.bytes_total() };
        let vectors: Box<[IoVec]> = bufs.iter_mut().map(piece).collect();
        if let Err(error) = check(&vectors, offset) {
            return (Err(error), bufs);
        }
        let (pointer, count) = (vectors.as_ptr(), vectors.len() as u32);
        let call = FileCall::ReadVector {
            fd: self.as_raw_fd(),
            vectors: pointer,
            count,
            offset,
            nowait: false,
        };
        let bytes = vectors.iter().map(|vector| vector.len).sum();
        // SAFETY: the vectors are in their box, and name memory of the buffers' own.
        let (answer, (mut bufs, _)) =
            unsafe { self.perform(Class::Read, bytes, call, (bufs, Vectors(vectors))).await };
        let mut left = *answer.as_ref().unwrap_or(&0);
        for buf in &mut bufs {
            let here = left.min(buf.bytes_total());
            // SAFETY: the kernel has filled them in order.
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
        let piece = |buf: &B| IoVec { base: buf.as_ptr(), len: buf.bytes_init() };
        let vectors: Box<[IoVec]> = bufs.iter().map(piece).collect();
        if let Err(error) = check(&vectors, offset) {
            return (Err(error), bufs);
        }
        let (pointer, count) = (vectors.as_ptr(), vectors.len() as u32);
        let call = FileCall::WriteVector { fd: self.as_raw_fd(), vectors: pointer, count, offset };
        let bytes = vectors.iter().map(|vector| vector.len).sum();
        // SAFETY: as above.
        let (answer, (bufs, _)) =
            unsafe { self.perform(Class::Write, bytes, call, (bufs, Vectors(vectors))).await };
        (answer, bufs)
    }
}

/// Vectors that a call names.
struct Vectors(#[expect(dead_code, reason = "held for the kernel")] Box<[IoVec]>);

fn check(vectors: &[IoVec], offset: u64) -> io::Result<()> {
    if vectors.len() <= MOST_VECTORS {
        return place(offset).map(drop);
    }
    let text = format!("{} pieces in a call: at most {MOST_VECTORS}", vectors.len());
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn ended(offset: u64, done: usize, total: usize) -> io::Error {
    let end = offset + done as u64;
    let text =
        format!("the file ends at {end}: {done} of {total} bytes from {offset} on were read");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

fn stuck(error: io::Error, done: usize, total: usize) -> io::Error {
    io::Error::new(error.kind(), format!("{error}, after {done} of {total} bytes were written"))
}
