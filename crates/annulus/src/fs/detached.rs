//! Writes that go on after their future was dropped.

use super::file::File;
use super::transfer::Write;
use crate::lease::Lease;
use crate::runtime::last_writes::AcceptedWrite;
use crate::task::spawn;
use annulus_kernel::file::CURSOR;
use std::io;

impl File {
    /// Writes all of a lease at the cursor, and moves the cursor behind what was written; also if it is dropped after its first
    /// poll.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub(crate) async fn write_detached(&self, lease: Lease) -> io::Result<()> {
        let mut args = Write { buf: lease, done: 0, offset: CURSOR };
        let written = self.try_write(&mut args);
        let mut lease = args.buf;
        if let Some(Ok(count)) = written {
            lease.advance(count);
        }
        if lease.is_empty() { Ok(()) } else { self.write_in_task(lease).await }
    }

    /// The cursor moves first, so that the next write goes behind these bytes. A file without a cursor, such as a pipe, is
    /// written in order only as long as each write is awaited.
    async fn write_in_task(&self, lease: Lease) -> io::Result<()> {
        let total = lease.len();
        let start = self.move_cursor(total as i64).map(|end| end - total as u64);
        let offset = move |done| start.as_ref().map_or(CURSOR, |start| start + done);
        let file = self.try_clone()?;
        let core = file.open.core.clone();
        let write = async move {
            let mut done = 0;
            let (outcome, _) = file.write_whole(lease, offset, &mut done).await;
            (outcome, done)
        };
        let task = spawn(AcceptedWrite::new(core, write));
        let (outcome, done) = task.await.map_err(|error| io::Error::other(error.to_string()))?;
        if done < total {
            // It fails only if there is no cursor to move back.
            _ = self.move_cursor(done as i64 - total as i64);
        }
        outcome
    }
}
