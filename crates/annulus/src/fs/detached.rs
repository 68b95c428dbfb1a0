//! Writes that happen though nobody waits for them any more.

use super::file::{CURSOR, File};
use crate::lease::Lease;
use crate::task::spawn;
use std::io;

impl File {
    /// Writes all of a lease at the cursor, and moves it behind what was written. Dropped after its first poll, it does
    /// that all the same.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub(crate) async fn take(&self, mut lease: Lease) -> io::Result<()> {
        if let Some(Ok(count)) = self.write_at_once(&lease, 0, CURSOR) {
            lease.advance(count);
        }
        if lease.is_empty() { Ok(()) } else { self.take_in_background(lease).await }
    }

    /// The cursor moves first, so that whoever writes next writes behind. What has no cursor is written in order only as
    /// long as somebody waits.
    async fn take_in_background(&self, lease: Lease) -> io::Result<()> {
        let total = lease.len();
        let start = self.move_cursor(total as i64).map(|end| end - total as u64);
        let place = move |done| start.as_ref().map_or(CURSOR, |start| start + done);
        let file = self.try_clone()?;
        let task = spawn(async move {
            let mut done = 0;
            let (outcome, _) = file.write_whole(lease, place, &mut done).await;
            (outcome, done)
        });
        let (outcome, done) = task.await.map_err(|error| io::Error::other(error.to_string()))?;
        if done < total {
            // What has no cursor needs none moved back.
            _ = self.move_cursor(done as i64 - total as i64);
        }
        outcome
    }
}
