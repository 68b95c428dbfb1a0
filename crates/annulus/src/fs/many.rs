//! Several reads or writes of a file that are started together.

use super::call::StartedCall;
use super::file::{File, check_offset};
use super::transfer::{Read, Write};
use crate::bytes::buf::{IoBuf, IoBufMut};
use crate::errors::copy_of;
use crate::tasks::consume_budget;
use std::io;

impl File {
    /// Makes several reads at once, each like [`read_at`](Self::read_at). Reads whose data is not
    /// in memory are started together (on io_uring, by one system call) and wait for the device
    /// together. Returns the result of each read, with its buffer, in the order of the list.
    ///
    /// This costs less than a task per read. It suits code that knows all of its reads beforehand,
    /// such as an index.
    ///
    /// If the future is dropped, reads that have not begun are cancelled. The buffer of a read that
    /// has begun is freed when the read ends.
    ///
    /// ```
    /// use annulus::fs::{self, File};
    ///
    /// # annulus::run(async {
    /// # let path = std::env::temp_dir().join(format!("annulus-many-{}", std::process::id()));
    /// fs::write(&path, "a small file").await?;
    /// let file = File::open(&path).await?;
    /// // Each read has a buffer of four bytes and an offset.
    /// let reads = [8, 0, 100].map(|offset| (vec![0; 4], offset));
    /// let mut found = Vec::new();
    /// for (read, bytes) in file.read_many_at(reads.into()).await {
    ///     found.push(String::from_utf8_lossy(&bytes[..read?]).into_owned());
    /// }
    /// assert_eq!(found, ["file", "a sm", ""]); // The last one is past the end of the file.
    /// # fs::remove_file(&path).await?;
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// Each result has the errors of [`read_at`](Self::read_at). One error does not affect the
    /// other reads.
    pub async fn read_many_at<B: IoBufMut>(
        &self,
        reads: Vec<(B, u64)>,
    ) -> Vec<(io::Result<usize>, B)> {
        consume_budget().await;
        let mut started = Vec::with_capacity(reads.len());
        for (buf, offset) in reads {
            let checked = check_offset(offset);
            let mut args = Read { buf, done: 0, offset, guard: None };
            started.push(match checked {
                Ok(_) => self.read_site(&mut args).start(args).await,
                Err(error) => StartedCall::ended(error, args),
            });
        }
        let mut ended = Vec::with_capacity(started.len());
        for call in started {
            let (answer, mut args) = call.finish(&self.open.core).await;
            let answer = match answer {
                Ok(count) => Ok(args.filled(count)),
                Err(error) => Err(self.explain_read(error, &mut args).await),
            };
            ended.push((answer, args.buf));
        }
        ended
    }

    /// Makes several writes at once, each like [`write_at`](Self::write_at). Writes that are not
    /// made on the loop are started together. Returns the result of each write, with its buffer, in
    /// the order of the list. The writes happen in any order, so they should not overlap.
    ///
    /// If the future is dropped, writes that have not begun are cancelled. Other writes complete.
    ///
    /// # Errors
    /// Each result has the errors of [`write_at`](Self::write_at). One error does not affect the
    /// other writes. But if an earlier write whose future was dropped has failed, nothing is
    /// written, and each result has the error of that write.
    pub async fn write_many_at<B: IoBuf>(
        &self,
        writes: Vec<(B, u64)>,
    ) -> Vec<(io::Result<usize>, B)> {
        consume_budget().await;
        if let Err(error) = self.open.take_error() {
            return writes.into_iter().map(|(buf, _)| (Err(copy_of(&error)), buf)).collect();
        }
        let mut started = Vec::with_capacity(writes.len());
        for (buf, offset) in writes {
            let args = Write { buf, done: 0, offset, guard: None };
            started.push(match check_offset(offset) {
                Ok(_) => self.write_site(&args).start(args).await,
                Err(error) => StartedCall::ended(error, args),
            });
        }
        let mut ended = Vec::with_capacity(started.len());
        for call in started {
            let (answer, args) = call.finish(&self.open.core).await;
            let answer = match answer {
                Ok(count) => Ok(count as usize),
                Err(error) => Err(self.explain_write(error, &args).await),
            };
            ended.push((answer, args.buf));
        }
        ended
    }
}
