//! Writes that go on after their future was dropped.

use super::file::File;
use super::transfer::Write;
use crate::bytes::lease::Lease;
use crate::runtime::last_writes::QueuedWrite;
use crate::runtime::spawn::spawn;
use annulus_kernel::file::CURSOR;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::Poll;

impl File {
    /// Writes all of a lease at the cursor, and moves the cursor behind what was written; also if it is dropped after its first
    /// poll. The next call that writes, syncs or seeks then has the error of that, if there is one. `cached` is the same file opened
    /// without direct I/O, if this one has it.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub(crate) async fn write_detached(
        &self,
        lease: Lease,
        cached: Option<&Self>,
    ) -> io::Result<()> {
        self.open.take_error()?;
        if let Some(cached) = cached {
            return self.write_in_task(lease, Some(cached.try_clone()?)).await;
        }
        let mut args = Write { buf: lease, done: 0, offset: CURSOR, turn: None };
        let written = self.try_write(&mut args);
        let mut lease = args.buf;
        if let Some(Ok(count)) = written {
            lease.advance(count);
        }
        if lease.is_empty() { Ok(()) } else { self.write_in_task(lease, None).await }
    }

    /// Takes the place in line for the cursor first, so that the next call at the cursor comes after these bytes. A file without a
    /// cursor, such as a pipe, is written in order only as long as each write is awaited.
    async fn write_in_task(&self, lease: Lease, cached: Option<Self>) -> io::Result<()> {
        let mut turn = self.open.cursor_turn();
        let taken =
            poll_fn(|cx| Poll::Ready(turn.as_mut().map(|turn| Pin::new(turn).poll(cx)))).await;
        let file = self.try_clone()?;
        let core = file.open.core.clone();
        let write = async move {
            let permit = match (taken, turn) {
                (Some(Poll::Ready(permit)), _) => Some(permit),
                (_, Some(turn)) => Some(turn.await),
                (_, None) => None,
            };
            let written = match &cached {
                Some(cached) => {
                    let _turn = permit;
                    file.write_through(cached, lease).await
                }
                None => file.write_whole(lease, |_| CURSOR, permit, &mut 0).await.0,
            };
            written.map_err(|error| file.open.keep_error(error)).is_ok()
        };
        let task = spawn(QueuedWrite::new(core, write));
        task.await.map_err(|error| io::Error::other(error.to_string()))?;
        self.open.take_error()
    }
}
