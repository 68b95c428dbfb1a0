//! Writes that are durable once they have ended.
#![allow(unsafe_code)]

use super::call::CallArgs;
use super::exact::cut_short;
use super::file::{File, check_offset};
use crate::bytes::buf::IoBuf;
use crate::file_policy::Class;
use crate::tasks::consume_budget;
use annulus_kernel::file::FileCall;
use std::io;
use std::os::fd::RawFd;

/// Maximum number of bytes that Linux transfers per call.
const MAX_BYTES: usize = 0x7fff_f000;

/// A durable write of `buf`, from byte `done` on.
struct DurableWrite<B> {
    buf: B,
    done: usize,
    offset: u64,
}

// SAFETY: `IoBuf` promises that the memory is initialised, unchanged, and does not move with the
// buffer; `done` is within it.
unsafe impl<B: IoBuf> CallArgs for DurableWrite<B> {
    fn call(&mut self, fd: RawFd) -> FileCall {
        let buffer = self.buf.as_ptr().wrapping_add(self.done);
        let len = (self.buf.bytes_init() - self.done).min(MAX_BYTES) as u32;
        FileCall::WriteDurable { fd, buffer, len, offset: self.offset }
    }
}

impl File {
    /// Writes the whole buffer, and returns once the bytes are on the device: after a power cut,
    /// they can be read at this offset. Other writes may not be durable yet. To make the name of a
    /// new file durable, open its directory as a file and [sync](super::File::sync_all) it.
    ///
    /// A durable write is usually one call (`RWF_DSYNC`), whereas
    /// [`write_all_at`](Self::write_all_at) and [`sync_data`](Self::sync_data) are two. A log that
    /// collects the records of several tasks and writes them together is durable at the cost of one
    /// call per batch.
    ///
    /// If the future is dropped, a call that has not begun is not made. A call that has begun
    /// completes.
    ///
    /// ```
    /// use annulus::fs::{self, File};
    ///
    /// # annulus::run(async {
    /// # let path = std::env::temp_dir().join(format!("annulus-durable-{}", std::process::id()));
    /// let log = File::create(&path).await?;
    /// let mut end = 0;
    /// for record in ["first\n", "second\n"] {
    ///     log.write_durable_at(record, end).await.0?;
    ///     end += record.len() as u64; // The record can be acknowledged.
    /// }
    /// assert_eq!(fs::read(&path).await?, b"first\nsecond\n");
    /// # fs::remove_file(&path).await?;
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The errors of [`write_all_at`](Self::write_all_at), and the errors of the device. After an
    /// error, some of the bytes may be in the file, and it is unknown whether they are durable. As
    /// after a failed [`sync_data`](Self::sync_data), a second attempt that succeeds proves nothing
    /// about the first. Write the bytes again at another place, or cut the file off first
    /// ([`set_len`](Self::set_len), [`sync_all`](Self::sync_all)).
    pub async fn write_durable_at<B: IoBuf>(&self, buf: B, offset: u64) -> (io::Result<()>, B) {
        consume_budget().await;
        if let Err(error) = self.open.take_error() {
            return (Err(error), buf);
        }
        let total = buf.bytes_init();
        let mut args = DurableWrite { buf, done: 0, offset };
        while args.done < total {
            args.offset = match check_offset(offset + args.done as u64) {
                Ok(offset) => offset,
                Err(error) => return (Err(error), args.buf),
            };
            let answer;
            // A durable write always waits for the device, so it has no kind.
            (answer, args) = self.site_of(None).make(args).await;
            let error = match answer {
                Ok(count) if count > 0 => {
                    args.done += count as usize;
                    continue;
                }
                Ok(_) => io::ErrorKind::WriteZero.into(),
                Err(error) => {
                    let (address, len) =
                        (args.buf.as_ptr() as usize + args.done, total - args.done);
                    self.explain(error, Class::Write, address, len, args.offset).await
                }
            };
            let is_first = args.done == 0;
            let error = if is_first { error } else { cut_short(error, args.done, total) };
            return (Err(error), args.buf);
        }
        (Ok(()), args.buf)
    }
}
