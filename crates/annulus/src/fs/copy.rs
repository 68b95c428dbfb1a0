//! Copying from file to file.

use super::buf::IoBuf;
use super::file::File;
use super::latency::{Class, Habitual};
use super::perform::Job;
use annulus_kernel::file::FileCall;
use rustix::io::Errno;
use std::io;

/// Bytes a call copies: some milliseconds' worth, so that a copy dropped early ends soon.
const STEP: u32 = 16 * 1024 * 1024;
/// Bytes read and written at a time where the kernel does not copy.
const PIECE: usize = 256 * 1024;

impl File {
    /// Copies everything from the start of this file to the start of another; the number of bytes. The kernel moves them
    /// where it can (`copy_file_range`), or lets both files share their blocks: on the loop or off it, as the other file's
    /// policy and device have it.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at) and [`write_at`](Self::write_at).
    pub async fn copy_to(&self, into: &File) -> io::Result<u64> {
        self.copy_range_to(0, into, 0).await
    }

    /// As [`copy_to`](Self::copy_to), from one place to another.
    pub(crate) async fn copy_range_to(&self, from: u64, into: &File, to: u64) -> io::Result<u64> {
        let len = self.metadata().await?.len().saturating_sub(from);
        // Much cannot be copied quickly enough for the loop, but where both files can share their blocks.
        let habit = usize::try_from(len).ok().filter(|len| *len <= PIECE);
        let habit = habit.and_then(|len| into.habit(Class::Write, len, true));
        let mut done = 0;
        loop {
            match self.copy_some(habit, from + done, into, to + done).await {
                Ok(0) if done == 0 => return self.copy_by_hand(from, into, to).await,
                Ok(0) => return Ok(done),
                Ok(count) => done += count,
                Err(error) if done == 0 && is_beyond_the_kernel(&error) => {
                    return self.copy_by_hand(from, into, to).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn copy_some(
        &self,
        habit: Option<Habitual>,
        from: u64,
        into: &File,
        to: u64,
    ) -> io::Result<u64> {
        let call = FileCall::Copy {
            from: self.as_raw_fd(),
            from_offset: from,
            to: into.as_raw_fd(),
            to_offset: to,
            len: STEP,
        };
        let kept = into.open.clone();
        let job = Job { call, policy: into.policy, habit };
        // SAFETY: the call names no memory; both files are kept open for it.
        #[allow(unsafe_code)]
        let (answer, _) = unsafe { self.make(job, kept).await };
        answer.map(|count| count as u64)
    }

    /// Also for files that tell no length, of which the kernel copies nothing.
    async fn copy_by_hand(&self, from: u64, into: &File, to: u64) -> io::Result<u64> {
        let (mut piece, mut done) = (vec![0; PIECE], 0);
        loop {
            let (read, full) = self.read_at(piece, from + done).await;
            let count = read?;
            if count == 0 {
                return Ok(done);
            }
            let (written, slice) = into.write_all_at(full.slice(..count), to + done).await;
            written?;
            piece = slice.into_inner();
            done += count as u64;
        }
    }
}

/// Between these two, or at all, this kernel does not copy.
fn is_beyond_the_kernel(error: &io::Error) -> bool {
    let codes =
        [Errno::XDEV, Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP, Errno::BADF, Errno::PERM];
    error.raw_os_error().is_some_and(|code| codes.map(Errno::raw_os_error).contains(&code))
        || error.kind() == io::ErrorKind::Unsupported
}
