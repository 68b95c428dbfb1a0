//! One read or one write: at once where it need not wait, and later.
#![allow(unsafe_code)]

use super::buf::{IoBuf, IoBufMut};
use super::file::{File, MOST};
use super::latency::Class;
use super::perform::{Job, attempt_at_once};
use annulus_kernel::file::FileCall;
use std::io;

impl File {
    /// Reads into what lies behind the first `done` bytes of the memory.
    pub(super) async fn read_part<B: IoBufMut>(
        &self,
        mut buf: B,
        done: usize,
        offset: u64,
    ) -> (io::Result<usize>, B) {
        match self.read_at_once(&mut buf, done, offset) {
            Some(Ok(count)) => (Ok(count), buf),
            tried => self.read_later(tried, buf, done, offset).await,
        }
    }

    /// The answer of a read that need not wait. Apart from what has to, so that it costs no future.
    #[inline]
    pub(super) fn read_at_once<B: IoBufMut>(
        &self,
        buf: &mut B,
        done: usize,
        offset: u64,
    ) -> Option<io::Result<usize>> {
        let (len, call) = self.read_call(buf, done, offset);
        // SAFETY: the memory is the buffer's own.
        let answer = unsafe { self.attempt_read(len, call) }?;
        Some(answer.map(|count| {
            // SAFETY: the kernel has written so many.
            unsafe { buf.set_init(done + count as usize) };
            count as usize
        }))
    }

    /// A read that was tried and failed, or could not be made at once.
    pub(super) async fn read_later<B: IoBufMut>(
        &self,
        tried: Option<io::Result<usize>>,
        mut buf: B,
        done: usize,
        offset: u64,
    ) -> (io::Result<usize>, B) {
        let answer = match tried {
            Some(answer) => answer,
            None => {
                let (len, call) = self.read_call(&mut buf, done, offset);
                let job = self.job(Class::Read, len, call);
                let answer;
                // SAFETY: the memory is the buffer's own, and does not move with it.
                (answer, buf) = unsafe { self.perform_later(job, buf).await };
                answer.map(|count| count as usize)
            }
        };
        match answer {
            Ok(count) => {
                // SAFETY: the kernel has written so many.
                unsafe { buf.set_init(done + count) };
                (Ok(count), buf)
            }
            Err(error) => {
                let (at, len) = (buf.as_ptr().wrapping_add(done), buf.bytes_total() - done);
                (Err(self.explain(error, at, len, offset).await), buf)
            }
        }
    }

    /// The call, and how many bytes it reads at most.
    #[inline]
    fn read_call<B: IoBufMut>(&self, buf: &mut B, done: usize, offset: u64) -> (usize, FileCall) {
        let len = (buf.bytes_total() - done).min(MOST);
        let (fd, buffer) = (self.as_raw_fd(), buf.as_mut_ptr().wrapping_add(done));
        (len, FileCall::Read { fd, buffer, len: len as u32, offset, nowait: false })
    }

    /// Writes what lies behind the first `done` bytes of the memory.
    pub(super) async fn write_part<B: IoBuf>(
        &self,
        buf: B,
        done: usize,
        offset: u64,
    ) -> (io::Result<usize>, B) {
        match self.write_at_once(&buf, done, offset) {
            Some(Ok(count)) => (Ok(count), buf),
            tried => self.write_later(tried, buf, done, offset).await,
        }
    }

    /// The answer of a write that need not wait.
    #[inline]
    pub(super) fn write_at_once<B: IoBuf>(
        &self,
        buf: &B,
        done: usize,
        offset: u64,
    ) -> Option<io::Result<usize>> {
        let job = self.write_job(buf, done, offset);
        // SAFETY: the memory is the buffer's own.
        let answer = unsafe { attempt_at_once(&self.open.core, &job) }?;
        Some(answer.map(|count| {
            self.open.trust.wrote(offset, count, self.open.core.files.turn());
            count as usize
        }))
    }

    /// A write that was tried and failed, or could not be made at once.
    pub(super) async fn write_later<B: IoBuf>(
        &self,
        tried: Option<io::Result<usize>>,
        mut buf: B,
        done: usize,
        offset: u64,
    ) -> (io::Result<usize>, B) {
        let answer = match tried {
            Some(answer) => answer,
            None => {
                let job = self.write_job(&buf, done, offset);
                let answer;
                // SAFETY: the memory is the buffer's own, and does not move with it.
                (answer, buf) = unsafe { self.perform_later(job, buf).await };
                answer.map(|count| count as usize)
            }
        };
        match answer {
            Ok(count) => (Ok(count), buf),
            Err(error) => {
                let (at, len) = (buf.as_ptr().wrapping_add(done), buf.bytes_init() - done);
                (Err(self.explain(error, at, len, offset).await), buf)
            }
        }
    }

    fn write_job<B: IoBuf>(&self, buf: &B, done: usize, offset: u64) -> Job {
        let len = (buf.bytes_init() - done).min(MOST);
        let (fd, buffer) = (self.as_raw_fd(), buf.as_ptr().wrapping_add(done));
        let call = FileCall::Write { fd, buffer, len: len as u32, offset };
        self.job(Class::Write, len, call)
    }
}
