//! Reads and writes that transfer everything, in as many calls as needed.

use super::file::{File, check_offset};
use super::open_file::CursorGuard;
use super::transfer::{Read, Write};
use crate::bytes::buf::{IoBuf, IoBufMut};
use crate::errors::with_text;
use crate::tasks::consume_budget;
use annulus_kernel::file::CURSOR_OFFSET;
use std::io;

impl File {
    /// Reads until the buffer is full.
    ///
    /// # Errors
    /// The errors of [`read_at`](Self::read_at); `UnexpectedEof`, with the offset in the message,
    /// if the file ends first.
    pub async fn read_exact_at<B: IoBufMut>(&self, mut buf: B, offset: u64) -> (io::Result<()>, B) {
        let total = buf.bytes_total();
        if total == 0 {
            consume_budget().await;
        }
        let mut args = Read { buf, done: 0, offset, guard: None };
        while args.done < total {
            args.offset = match check_offset(offset + args.done as u64) {
                Ok(at) => at,
                Err(error) => {
                    consume_budget().await;
                    return (Err(error), args.buf);
                }
            };
            let read = match self.try_read(&mut args) {
                Some(Ok(count)) => Ok(count),
                tried => {
                    let read;
                    (read, args) = self.finish_read(tried, args).await;
                    read
                }
            };
            match read {
                Ok(0) => return (Err(ended(offset, args.done, total)), args.buf),
                Ok(count) => args.done += count,
                Err(error) => return (Err(error), args.buf),
            }
        }
        (Ok(()), args.buf)
    }

    /// Writes the whole buffer at an offset.
    ///
    /// # Errors
    /// The errors of [`write_at`](Self::write_at), with the number of bytes already written in the
    /// message.
    pub async fn write_all_at<B: IoBuf>(&self, buf: B, offset: u64) -> (io::Result<()>, B) {
        match check_offset(offset) {
            Ok(offset) => self.write_whole(buf, |done| offset + done, None, &mut 0).await,
            Err(error) => {
                consume_budget().await;
                (Err(error), buf)
            }
        }
    }

    /// Writes the whole buffer at the cursor, and moves the cursor past the bytes.
    ///
    /// # Errors
    /// The errors of [`write_all_at`](Self::write_all_at).
    pub async fn write_all<B: IoBuf>(&mut self, buf: B) -> (io::Result<()>, B) {
        self.write_whole(buf, |_| CURSOR_OFFSET, None, &mut 0).await
    }

    /// Writes the buffer from byte `done` on, and advances `done`. `offset` returns the file's
    /// offset for a byte of the buffer. `guard` is the cursor permit, if the caller already holds
    /// it.
    pub(crate) async fn write_whole<B: IoBuf>(
        &self,
        buf: B,
        offset: impl Fn(u64) -> u64,
        guard: Option<CursorGuard>,
        done: &mut usize,
    ) -> (io::Result<()>, B) {
        if let Err(error) = self.open.take_error() {
            return (Err(error), buf);
        }
        let total = buf.bytes_init();
        if total == 0 {
            consume_budget().await;
        }
        let mut args = Write { buf, done: *done, offset: 0, guard };
        while args.done < total {
            args.offset = offset(args.done as u64);
            let written = match self.try_write(&mut args) {
                Some(Ok(count)) => Ok(count),
                tried => {
                    let written;
                    (written, args) = self.finish_write(tried, args).await;
                    written
                }
            };
            let error = match written {
                Ok(count) if count > 0 => {
                    args.done += count;
                    *done = args.done;
                    continue;
                }
                Ok(_) => cut_short(io::ErrorKind::WriteZero.into(), args.done, total),
                Err(error) if args.done == 0 => error,
                Err(error) => cut_short(error, args.done, total),
            };
            return (Err(error), args.buf);
        }
        (Ok(()), args.buf)
    }
}

fn ended(offset: u64, done: usize, total: usize) -> io::Error {
    let end = offset + done as u64;
    let text = format!(
        "the file ends at {end}: only {done} of {total} bytes were read from offset {offset}"
    );
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

pub(super) fn cut_short(error: io::Error, done: usize, total: usize) -> io::Error {
    let text = format!("{error}, after {done} of {total} bytes were written");
    with_text(error, text)
}
