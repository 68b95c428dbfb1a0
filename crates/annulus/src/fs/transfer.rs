//! Single reads and writes: inline if they need not wait, and otherwise off the loop.
#![allow(unsafe_code)]

use super::call::{CallArgs, CallSite};
use super::file::{File, check_offset};
use super::open_file::CursorGuard;
use crate::bytes::buf::{IoBuf, IoBufMut};
use crate::file_policy::{Class, PageCache};
use crate::tasks::consume_budget;
use annulus_kernel::file::{CURSOR_OFFSET, FileCall};
use std::io;
use std::os::fd::RawFd;

/// Maximum number of bytes that Linux transfers per call.
const MAX_BYTES: usize = 0x7fff_f000;

/// A read into `buf`, from byte `done` on.
pub(crate) struct Read<B> {
    pub(crate) buf: B,
    pub(crate) done: usize,
    pub(crate) offset: u64,
    /// The cursor permit, while the call runs off the loop at the cursor.
    pub(crate) guard: Option<CursorGuard>,
}

/// A write of `buf`, from byte `done` on.
pub(crate) struct Write<B> {
    pub(crate) buf: B,
    pub(crate) done: usize,
    pub(crate) offset: u64,
    /// The cursor permit, from the first call off the loop at the cursor until everything is
    /// written.
    pub(crate) guard: Option<CursorGuard>,
}

impl<B: IoBufMut> Read<B> {
    fn len(&mut self) -> usize {
        (self.buf.bytes_total() - self.done).min(MAX_BYTES)
    }

    /// Records that the kernel has read `count` bytes.
    pub(super) fn filled(&mut self, count: u32) -> usize {
        let count = count as usize;
        // SAFETY: the kernel has written `count` bytes after the first `done`, which were already
        // initialised.
        unsafe { self.buf.set_init(self.done + count) };
        count
    }
}

impl<B: IoBuf> Write<B> {
    fn len(&self) -> usize {
        (self.buf.bytes_init() - self.done).min(MAX_BYTES)
    }
}

// SAFETY: `IoBufMut` promises that the memory is valid, belongs to the buffer alone, and does not
// move with the buffer; `done` is within it.
unsafe impl<B: IoBufMut> CallArgs for Read<B> {
    #[inline]
    fn call(&mut self, fd: RawFd) -> FileCall {
        let len = self.len() as u32;
        let buffer = self.buf.as_mut_ptr().wrapping_add(self.done);
        FileCall::Read { fd, buffer, len, offset: self.offset, nowait: false }
    }
}

// SAFETY: `IoBuf` promises that the memory is initialised, unchanged, and does not move with the
// buffer; `done` is within it.
unsafe impl<B: IoBuf> CallArgs for Write<B> {
    #[inline]
    fn call(&mut self, fd: RawFd) -> FileCall {
        let buffer = self.buf.as_ptr().wrapping_add(self.done);
        FileCall::Write { fd, buffer, len: self.len() as u32, offset: self.offset }
    }
}

impl File {
    /// Reads at an offset, until the buffer is full. Reads fewer bytes near the end of the file, or
    /// if the kernel has fewer available. Returns the number of bytes read: 0 at the end of the
    /// file, or if the buffer has no capacity.
    ///
    /// # Errors
    /// The error of the system; `InvalidInput` for direct I/O that is not
    /// [aligned](Self::alignment) or an offset above `i64::MAX`.
    pub async fn read_at<B: IoBufMut>(&self, buf: B, offset: u64) -> (io::Result<usize>, B) {
        if let Err(error) = check_offset(offset) {
            consume_budget().await;
            return (Err(error), buf);
        }
        // Does not await another future unless the read leaves the loop: moving the buffer into it
        // and out again is a considerable part of the cost of a cached read.
        let mut args = Read { buf, done: 0, offset, guard: None };
        match self.try_read(&mut args) {
            Some(Ok(count)) => (Ok(count), args.buf),
            tried => {
                let (answer, args) = self.finish_read(tried, args).await;
                (answer, args.buf)
            }
        }
    }

    /// Writes the buffer at an offset, and returns the number of bytes written. It is less than the
    /// length of the buffer if, for example, the device is full.
    ///
    /// # Errors
    /// `StorageFull`, `FileTooLarge`, …; `InvalidInput` for direct I/O that is not
    /// [aligned](Self::alignment), or an offset above `i64::MAX`.
    pub async fn write_at<B: IoBuf>(&self, buf: B, offset: u64) -> (io::Result<usize>, B) {
        match check_offset(offset) {
            Ok(offset) => self.write_once(buf, offset).await,
            Err(error) => {
                consume_budget().await;
                (Err(error), buf)
            }
        }
    }

    /// Reads at the cursor and moves it. If calls at the cursor are made off the loop, they run one
    /// after another, even if they are made on clones or their futures are dropped.
    ///
    /// # Errors
    /// The errors of [`read_at`](Self::read_at).
    pub async fn read<B: IoBufMut>(&mut self, buf: B) -> (io::Result<usize>, B) {
        self.read_once(buf).await
    }

    /// Like [`read`](Self::read), but through a shared reference.
    pub(crate) async fn read_once<B: IoBufMut>(&self, buf: B) -> (io::Result<usize>, B) {
        let mut args = Read { buf, done: 0, offset: CURSOR_OFFSET, guard: None };
        match self.try_read(&mut args) {
            Some(Ok(count)) => (Ok(count), args.buf),
            tried => {
                let (answer, args) = self.finish_read(tried, args).await;
                (answer, args.buf)
            }
        }
    }

    /// Writes at the cursor and moves it. A pipe may take only some of the bytes.
    ///
    /// # Errors
    /// The errors of [`write_at`](Self::write_at).
    pub async fn write<B: IoBuf>(&mut self, buf: B) -> (io::Result<usize>, B) {
        self.write_once(buf, CURSOR_OFFSET).await
    }

    async fn write_once<B: IoBuf>(&self, buf: B, offset: u64) -> (io::Result<usize>, B) {
        if let Err(error) = self.open.take_error() {
            return (Err(error), buf);
        }
        let mut args = Write { buf, done: 0, offset, guard: None };
        match self.try_write(&mut args) {
            Some(Ok(count)) => (Ok(count), args.buf),
            tried => {
                let (answer, args) = self.finish_write(tried, args).await;
                (answer, args.buf)
            }
        }
    }

    /// Tries a read inline. Returns `None` if it must be made off the loop.
    #[inline]
    pub(crate) fn try_read<B: IoBufMut>(&self, args: &mut Read<B>) -> Option<io::Result<usize>> {
        if args.offset == CURSOR_OFFSET && self.open.is_cursor_taken() {
            return None;
        }
        let answer = self.read_site(args).try_inline(args)?;
        Some(answer.map(|count| args.filled(count)))
    }

    /// Explains the error of a read that failed inline, or makes the read off the loop.
    pub(crate) async fn finish_read<B: IoBufMut>(
        &self,
        tried: Option<io::Result<usize>>,
        mut args: Read<B>,
    ) -> (io::Result<usize>, Read<B>) {
        let answer = match tried {
            Some(answer) => answer,
            None => {
                if args.offset == CURSOR_OFFSET {
                    args.guard = self.cursor_guard().await;
                }
                let site = self.read_site(&mut args);
                let answer;
                (answer, args) = site.offload(args).await;
                answer.map(|count| args.filled(count))
            }
        };
        match answer {
            Ok(count) => (Ok(count), args),
            Err(error) => (Err(self.explain_read(error, &mut args).await), args),
        }
    }

    /// Tries a write inline. Returns `None` if it must be made off the loop.
    #[inline]
    pub(crate) fn try_write<B: IoBuf>(&self, args: &mut Write<B>) -> Option<io::Result<usize>> {
        if args.offset == CURSOR_OFFSET && args.guard.is_none() && self.open.is_cursor_taken() {
            return None;
        }
        let answer = self.write_site(args).try_inline(args)?;
        Some(answer.map(|count| {
            // Appended bytes are at the end of the file, whatever the offset of the call.
            if !self.append {
                let turn = self.open.core.inline_policy.turn();
                self.open.page_cache.note_written(args.offset, count, turn);
            }
            count as usize
        }))
    }

    /// Explains the error of a write that failed inline, or makes the write off the loop.
    pub(crate) async fn finish_write<B: IoBuf>(
        &self,
        tried: Option<io::Result<usize>>,
        mut args: Write<B>,
    ) -> (io::Result<usize>, Write<B>) {
        let answer = match tried {
            Some(answer) => answer,
            None => {
                if args.offset == CURSOR_OFFSET && args.guard.is_none() {
                    args.guard = self.cursor_guard().await;
                }
                let site = self.write_site(&args);
                let answer;
                (answer, args) = site.offload(args).await;
                answer.map(|count| count as usize)
            }
        };
        match answer {
            Ok(count) => (Ok(count), args),
            Err(error) => (Err(self.explain_write(error, &args).await), args),
        }
    }

    /// [Explains](Self::explain) the error of a read.
    #[cold]
    pub(super) async fn explain_read<B: IoBufMut>(
        &self,
        error: io::Error,
        args: &mut Read<B>,
    ) -> io::Error {
        let len = args.buf.bytes_total() - args.done;
        let address = args.buf.as_ptr() as usize + args.done;
        self.explain(error, Class::Read, address, len, args.offset).await
    }

    /// [Explains](Self::explain) the error of a write.
    #[cold]
    pub(super) async fn explain_write<B: IoBuf>(
        &self,
        error: io::Error,
        args: &Write<B>,
    ) -> io::Error {
        let len = args.buf.bytes_init() - args.done;
        let address = args.buf.as_ptr() as usize + args.done;
        self.explain(error, Class::Write, address, len, args.offset).await
    }

    /// Waits until no call at the cursor is in flight off the loop, and blocks further calls until
    /// the permit is dropped. Returns `None` if the file has no cursor.
    pub(crate) async fn cursor_guard(&self) -> Option<CursorGuard> {
        Some(self.open.queue_for_cursor()?.await)
    }

    /// Returns the call site of a read. Small reads at an offset may be predicted to be in the page
    /// cache.
    #[inline]
    pub(super) fn read_site<B: IoBufMut>(&self, args: &mut Read<B>) -> CallSite<'_> {
        let (len, at_cursor) = (args.len(), args.offset == CURSOR_OFFSET);
        let site = self.site(Class::Read, len, at_cursor);
        let predictable = len <= PageCache::MAX_PREDICTED_READ_BYTES && !at_cursor && !self.direct;
        CallSite { predictable: predictable.then_some(args.offset), ..site }
    }

    #[inline]
    pub(super) fn write_site<B: IoBuf>(&self, args: &Write<B>) -> CallSite<'_> {
        self.site(Class::Write, args.len(), args.offset == CURSOR_OFFSET)
    }
}

#[cfg(test)]
mod tests {
    use crate::Runtime;
    use crate::fs::OpenOptions;

    #[test]
    fn appended_bytes_are_not_expected_at_the_offset_of_the_write() {
        let path = std::env::temp_dir().join(format!("annulus-appended-{}", std::process::id()));
        Runtime::new().unwrap().block_on(async {
            for append in [false, true] {
                std::fs::write(&path, [0; 8192]).unwrap();
                let mut options = OpenOptions::new().read(true).write(true);
                options = options.append(append);
                let file = options.open(&path).await.unwrap();
                assert_eq!(file.write_at(vec![1; 4096], 0).await.0.unwrap(), 4096);
                let turn = file.open.core.inline_policy.turn();
                let expected = file.open.page_cache.was_just_written(0, 4096, turn);
                assert_eq!(expected, !append, "append: {append}");
            }
        });
        std::fs::remove_file(&path).unwrap();
    }
}
