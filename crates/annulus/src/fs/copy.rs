//! Copying from file to file.
#![allow(unsafe_code)]

use super::call::CallArgs;
use super::file::File;
use super::open::OpenOptions;
use super::open_file::OpenFile;
use crate::bytes::buf::IoBuf;
use crate::file_policy::{CallKind, Class};
use annulus_kernel::file::{CURSOR, FileCall};
use rustix::io::Errno;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

/// Bytes that a call copies: a few milliseconds of work, so that a copy that is dropped ends soon.
const STEP: u32 = 16 * 1024 * 1024;
/// Bytes read and written at a time if the kernel does not copy.
const PIECE: usize = 256 * 1024;

/// A call on the file that is written.
struct CopyRange {
    from: Rc<OpenFile>,
    from_offset: u64,
    to_offset: u64,
    len: u32,
}

// SAFETY: the call names no memory, and the file that it reads is kept open here.
unsafe impl CallArgs for CopyRange {
    fn call(&mut self, to: RawFd) -> FileCall {
        let (from, from_offset) = (self.from.fd(), self.from_offset);
        FileCall::Copy { from, from_offset, to, to_offset: self.to_offset, len: self.len }
    }
}

impl File {
    /// Copies everything from the start of this file to the start of another; the number of bytes. The kernel moves them
    /// if it can (`copy_file_range`), or lets both files share their blocks. The other file's policy and device decide if that is
    /// done on the loop.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at) and [`write_at`](Self::write_at).
    pub async fn copy_to(&self, into: &File) -> io::Result<u64> {
        let mut copied = 0;
        self.copy_range_to(0, into, 0, u64::MAX, &mut copied).await.map(|()| copied)
    }

    /// As [`copy_to`](Self::copy_to), from one offset to another, `limit` bytes at most. The number of bytes goes to `done`, also if it
    /// fails.
    pub(crate) async fn copy_range_to(
        &self,
        from: u64,
        into: &File,
        to: u64,
        limit: u64,
        done: &mut u64,
    ) -> io::Result<()> {
        let cached = into.through_the_cache().await?;
        let into = cached.as_ref().unwrap_or(into);
        let len = self.metadata().await?.len().saturating_sub(from).min(limit);
        // A longer copy holds up the loop, unless both files can share their blocks.
        let short = usize::try_from(len).ok().filter(|len| *len <= PIECE);
        let kind = short.and_then(|len| into.kind(Class::Write, len, true));
        while *done < limit {
            match self.copy_some(kind, from + *done, into, to + *done, limit - *done).await {
                Ok(0) if *done == 0 => {
                    return self.read_and_write(from, into, to, limit, done).await;
                }
                Ok(0) => break,
                Ok(count) => *done += count,
                Err(error) if is_unsupported(&error) => {
                    return self.read_and_write(from, into, to, limit, done).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Has the kernel copy some bytes, in a call on the other file.
    async fn copy_some(
        &self,
        kind: Option<CallKind>,
        from_offset: u64,
        into: &File,
        to_offset: u64,
        limit: u64,
    ) -> io::Result<u64> {
        let len = limit.min(u64::from(STEP)) as u32;
        let args = CopyRange { from: self.open.clone(), from_offset, to_offset, len };
        let (answer, _) = into.site_of(kind).make(args).await;
        answer.map(u64::from)
    }

    /// Reads and writes, also files without a known length, of which the kernel copies nothing.
    async fn read_and_write(
        &self,
        from: u64,
        into: &File,
        to: u64,
        limit: u64,
        done: &mut u64,
    ) -> io::Result<()> {
        while *done < limit {
            let most = usize::try_from(limit - *done).map_or(PIECE, |left| left.min(PIECE));
            let mut piece = self.read_piece(from + *done, most).await?;
            piece.truncate(most);
            if piece.is_empty() {
                break;
            }
            let (mut written, start) = (0, to + *done);
            let ended = into.write_whole(piece, |at| start + at, None, &mut written).await.0;
            *done += written as u64;
            ended?;
        }
        Ok(())
    }

    /// For direct I/O, the same file opened again without it, with a cursor of its own at the start: copied bytes are aligned to nothing,
    /// and the last block is seldom whole. See [`write_through`](Self::write_through).
    pub(crate) async fn through_the_cache(&self) -> io::Result<Option<Self>> {
        if !self.direct {
            return Ok(None);
        }
        let path = format!("/proc/self/fd/{}", self.open.fd());
        let options = OpenOptions::new().write(true).append(self.append).policy(self.policy);
        options.open(path).await.map(Some)
    }

    /// Writes everything at the cursor, through the same file opened without direct I/O. The turn at the cursor is the caller's.
    pub(crate) async fn write_through(&self, cached: &Self, bytes: impl IoBuf) -> io::Result<()> {
        cached.take_cursor_of(self)?;
        let written = cached.write_whole(bytes, |_| CURSOR, None, &mut 0).await.0;
        self.take_cursor_of(cached).and(written)
    }
}

/// Whether the kernel cannot copy between these two files, or at all.
fn is_unsupported(error: &io::Error) -> bool {
    let codes =
        [Errno::XDEV, Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP, Errno::BADF, Errno::PERM];
    error.raw_os_error().is_some_and(|code| codes.map(Errno::raw_os_error).contains(&code))
        || error.kind() == io::ErrorKind::Unsupported
}
