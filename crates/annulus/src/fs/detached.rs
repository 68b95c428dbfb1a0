//! Writes that continue after their future has been dropped.

use super::file::File;
use super::transfer::Write;
use crate::bytes::chunk::Chunk;
use crate::runtime::shutdown::QueuedWrite;
use crate::runtime::spawn::spawn;
use annulus_kernel::file::CURSOR;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::Poll;

impl File {
    /// Reports the error of a write whose future was dropped, once. Call it before taking bytes
    /// from a source for [`write_detached`](Self::write_detached), which would lose them because of
    /// such an error.
    ///
    /// # Errors
    /// The error of that write.
    pub(crate) fn check_dropped_writes(&self) -> io::Result<()> {
        self.open.take_error()
    }

    /// Writes a whole chunk at the cursor and moves the cursor past it, even if the future is
    /// dropped after its first poll. In that case, the next call that writes, syncs or seeks
    /// returns the error, if any. `cached` is the same file opened without direct I/O, if this file
    /// uses it. Counts the written bytes in `done`, unless the future is dropped.
    ///
    /// # Errors
    /// The errors of [`write_all`](Self::write_all).
    pub(crate) async fn write_detached(
        &self,
        chunk: Chunk,
        cached: Option<&Self>,
        done: &mut usize,
    ) -> io::Result<()> {
        if let Some(cached) = cached {
            return self.write_in_task(chunk, Some(cached.try_clone()?), done).await;
        }
        let mut args = Write { buf: chunk, done: 0, offset: CURSOR, guard: None };
        let written = self.try_write(&mut args);
        let mut chunk = args.buf;
        if let Some(Ok(count)) = written {
            drop(chunk.split_to(count));
            *done += count;
        }
        if chunk.is_empty() { Ok(()) } else { self.write_in_task(chunk, None, done).await }
    }

    /// First queues for the cursor, so that the next call at the cursor comes after these bytes. A
    /// file without a cursor, such as a pipe, is written in order only if each write is awaited.
    async fn write_in_task(
        &self,
        chunk: Chunk,
        cached: Option<Self>,
        done: &mut usize,
    ) -> io::Result<()> {
        let mut queued = self.open.queue_for_cursor();
        let taken =
            poll_fn(|cx| Poll::Ready(queued.as_mut().map(|queued| Pin::new(queued).poll(cx))))
                .await;
        let file = self.try_clone()?;
        let core = file.open.core.clone();
        let write = async move {
            let permit = match (taken, queued) {
                (Some(Poll::Ready(permit)), _) => Some(permit),
                (_, Some(queued)) => Some(queued.await),
                (_, None) => None,
            };
            let mut count = 0;
            let written = match &cached {
                Some(cached) => {
                    let _turn = permit;
                    file.write_through(cached, chunk, &mut count).await
                }
                None => file.write_whole(chunk, |_| CURSOR, permit, &mut count).await.0,
            };
            if let Err(error) = written {
                file.open.keep_error(error);
            }
            count
        };
        let task = spawn(QueuedWrite::new(core, write));
        *done += task.await.map_err(|error| io::Error::other(error.to_string()))?;
        self.open.take_error()
    }
}
