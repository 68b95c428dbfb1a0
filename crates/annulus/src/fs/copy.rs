//! Copying from file to file. The holes of the source, which take no space and read as zeros, are
//! left out.
#![allow(unsafe_code)]

use super::call::{CallArgs, CallSite};
use super::file::File;
use super::metadata::Metadata;
use super::open::OpenOptions;
use super::open_file::OpenFile;
use crate::bytes::buf::IoBuf;
use crate::file_policy::{CallKind, Class};
use annulus_kernel::file::{CURSOR_OFFSET, FileCall};
use rustix::io::Errno;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

/// Number of bytes per copy call. This is a few milliseconds of work, so a dropped copy ends soon.
const COPY_CALL_BYTES: u32 = 16 * 1024 * 1024;
/// Number of bytes read and written at a time if the kernel cannot copy.
const MAX_PIECE_BYTES: usize = 256 * 1024;

/// The arguments of a `copy_file_range` call. The call is made on the file that is written.
struct CopyRange {
    from: Rc<OpenFile>,
    from_offset: u64,
    to_offset: u64,
    len: u32,
}

// SAFETY: the call uses no memory, and the file that it reads is kept open here.
unsafe impl CallArgs for CopyRange {
    fn call(&mut self, to: RawFd) -> FileCall {
        let (from, from_offset) = (self.from.fd(), self.from_offset);
        FileCall::Copy { from, from_offset, to, to_offset: self.to_offset, len: self.len }
    }
}

impl File {
    /// Copies everything from the start of this file to the start of another, and returns the
    /// number of bytes. The kernel copies the bytes or lets both files share their blocks if it can
    /// (`copy_file_range`); otherwise, the bytes are read and written. Holes stay holes if the file
    /// systems support them. The policy and the device of `into` determine whether the copy runs on
    /// the loop.
    ///
    /// # Errors
    /// The errors of [`read_at`](Self::read_at) and [`write_at`](Self::write_at).
    pub async fn copy_to(&self, into: &File) -> io::Result<u64> {
        let mut copied = 0;
        self.copy_range_to(0, into, 0, u64::MAX, &mut copied).await.map(|()| copied)
    }

    /// Like [`copy_to`](Self::copy_to), but from one offset to another, and at most `limit` bytes.
    /// Stores the number of copied bytes in `done`, even if the copy fails.
    pub(crate) async fn copy_range_to(
        &self,
        from: u64,
        into: &File,
        to: u64,
        limit: u64,
        done: &mut u64,
    ) -> io::Result<()> {
        let cached = into.through_the_cache().await?;
        let target = cached.as_ref().unwrap_or(into);
        let known = self.metadata().await?;
        let len = known.len().saturating_sub(from).min(limit);
        // A longer copy would block the loop, unless both files can share their blocks.
        let short = usize::try_from(len).ok().filter(|len| *len <= MAX_PIECE_BYTES);
        let kind = short.and_then(|len| target.kind(Class::Write, len, true));
        let mut copy =
            RangeCopy { source: self, from, target, to, kind, by_kernel: true, at: 0, done };
        if is_sparse(&known)
            && let Some(target) = SparseTarget::of(target, &known).await?
            && let Some(holes) = Holes::of(self).await
            && !copy.sparsely_up_to(limit, &holes, &target).await?
        {
            return Ok(());
        }
        copy.up_to(limit).await.map(drop)
    }

    /// Reopens the file without direct I/O, with a separate cursor at the start, because copied
    /// bytes are not aligned, and the last block is rarely whole. Returns `None` if the file does
    /// not use direct I/O. See [`write_through`](Self::write_through).
    pub(crate) async fn through_the_cache(&self) -> io::Result<Option<Self>> {
        if !self.direct {
            return Ok(None);
        }
        let options = OpenOptions::new().write(true).append(self.append).policy(self.policy);
        self.reopened(&options).await.map(Some)
    }

    /// Opens the same file again, with a separate cursor.
    pub(super) async fn reopened(&self, options: &OpenOptions) -> io::Result<Self> {
        let again = options.open(format!("/proc/self/fd/{}", self.open.fd())).await?;
        // By its path, the file would count as being on the device of `/proc`.
        Ok(Self { device: self.device, ..again })
    }

    /// Writes all bytes at this file's cursor, through `cached`: the same file opened without
    /// direct I/O. Advances `done` by the number of written bytes. The caller holds the cursor
    /// permit.
    pub(crate) async fn write_through(
        &self,
        cached: &Self,
        bytes: impl IoBuf,
        done: &mut usize,
    ) -> io::Result<()> {
        cached.take_cursor_of(self)?;
        let written = cached.write_whole(bytes, |_| CURSOR_OFFSET, None, done).await.0;
        self.take_cursor_of(cached).and(written)
    }
}

/// Returns true if a file takes less space than its length, so that it may have holes.
fn is_sparse(known: &Metadata) -> bool {
    known.is_file() && known.blocks().saturating_mul(512) < known.len()
}

/// A copy of part of a file. Positions are relative to the start of the part.
struct RangeCopy<'a> {
    source: &'a File,
    from: u64,
    target: &'a File,
    to: u64,
    /// The kind under which the latency policy tracks copies by the kernel.
    kind: Option<CallKind>,
    /// Whether the kernel makes the copy. Once a copy by the kernel fails, the rest is read and
    /// written.
    by_kernel: bool,
    /// The position of the next byte to copy.
    at: u64,
    /// Number of bytes copied. A skipped hole counts only once something is written after it or the
    /// target is extended over it, because it may lie beyond the target's end.
    done: &'a mut u64,
}

impl RangeCopy<'_> {
    /// Copies data up to a position. Returns false if the source ends first.
    ///
    /// Only an empty read means the end, because the kernel's copy returns 0 in the middle of some
    /// files, such as those in `/proc`. After an error, reads and writes take over, which may
    /// succeed: file systems and seccomp profiles refuse the kernel's copy with many error codes.
    async fn up_to(&mut self, end: u64) -> io::Result<bool> {
        while self.at < end {
            let copied = match self.by_kernel {
                true => self.copy_some(end).await?,
                false => self.read_and_write(end).await?,
            };
            match copied {
                0 if self.by_kernel => self.by_kernel = false,
                0 => return Ok(false),
                count => self.count(count),
            }
        }
        Ok(true)
    }

    fn count(&mut self, copied: u64) {
        self.at += copied;
        *self.done = self.at;
    }

    /// Makes the kernel copy some bytes in a call on the target. Returns 0 if it copies none.
    async fn copy_some(&self, end: u64) -> io::Result<u64> {
        let len = (end - self.at).min(u64::from(COPY_CALL_BYTES)) as u32;
        let (from_offset, to_offset) = (self.from + self.at, self.to + self.at);
        let args = CopyRange { from: self.source.open.clone(), from_offset, to_offset, len };
        let site = self.target.site_of(self.kind);
        let group = site.group.or(self.source.open.group);
        let (answer, _) = CallSite { group, ..site }.make(args).await;
        match answer {
            Err(error) if error.raw_os_error().is_some() => Ok(0),
            answer => answer.map(u64::from),
        }
    }

    /// Reads and writes a piece. Returns 0 at the end of the source.
    async fn read_and_write(&mut self, end: u64) -> io::Result<u64> {
        let most = usize::try_from(end - self.at)
            .map_or(MAX_PIECE_BYTES, |left| left.min(MAX_PIECE_BYTES));
        let mut piece = self.source.read_piece(self.from + self.at, most).await?;
        piece.truncate(most);
        let (mut written, start) = (0, self.to + self.at);
        let ended = self.target.write_whole(piece, |done| start + done, None, &mut written).await.0;
        if ended.is_err() {
            self.count(written as u64);
        }
        ended.map(|()| written as u64)
    }

    /// Copies the data up to `limit`, and leaves out holes. Returns false if the limit has been
    /// reached, or if a read has found the end of the source.
    ///
    /// Returns true if the caller must continue without looking for holes: the file system does not
    /// report them, or the source ended in a hole before `limit`, so that only bytes appended since
    /// then can follow.
    async fn sparsely_up_to(
        &mut self,
        limit: u64,
        holes: &Holes,
        target: &SparseTarget<'_>,
    ) -> io::Result<bool> {
        let end = self.from.saturating_add(limit);
        loop {
            let at = self.from + self.at;
            let (data, is_last) = match holes.next_data(at).await {
                NextData::At(data) => (data.min(end), data >= end),
                NextData::None => (self.source.metadata().await?.len().clamp(at, end), true),
                NextData::Unknown => return Ok(true),
            };
            let hole_end = data - self.from;
            if target.skip(self.to + self.at, self.to + hole_end).await? {
                self.at = hole_end;
            } else if !self.up_to(hole_end).await? {
                return Ok(false);
            }
            if is_last {
                // A copy of no bytes changes nothing, even if it starts after the target's end.
                if self.at > 0 {
                    target.grow_to(self.to + self.at).await?;
                }
                *self.done = self.at;
                return Ok(data < end);
            }
            let data_end = holes.end_of_data(data).await.map_or(end, |hole| hole.min(end));
            if !self.up_to(data_end - self.from).await? {
                return Ok(false);
            }
        }
    }
}

/// Origins for `lseek(2)`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// Mode for `fallocate(2)`: punch a hole and keep the file's length (`FALLOC_FL_PUNCH_HOLE` with
/// `FALLOC_FL_KEEP_SIZE`).
const PUNCH_HOLE: u32 = 0x02 | 0x01;

/// The holes of a source file. Searching for them moves a cursor, so the file is opened again.
pub(super) struct Holes(File);

/// Where the next data is.
pub(super) enum NextData {
    At(u64),
    /// Only a hole or the end of the file follows.
    None,
    /// The file system does not report holes. Treat the following bytes as data.
    Unknown,
}

impl Holes {
    /// Opens the file again. Returns `None` if that fails, for example without `/proc`.
    pub(super) async fn of(file: &File) -> Option<Self> {
        let options = OpenOptions::new().read(true).policy(file.policy);
        file.reopened(&options).await.ok().map(Self)
    }

    /// Finds the first byte of data at or after an offset.
    pub(super) async fn next_data(&self, offset: u64) -> NextData {
        match self.0.seek_from(offset as i64, SEEK_DATA).await {
            Ok(data) if data >= offset => NextData::At(data),
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                NextData::None
            }
            _ => NextData::Unknown,
        }
    }

    /// Finds the end of the data at an offset. Returns `None` if the file system does not report
    /// it.
    pub(super) async fn end_of_data(&self, data: u64) -> Option<u64> {
        let end = self.0.seek_from(data as i64, SEEK_HOLE).await.ok();
        end.filter(|end| *end > data)
    }
}

/// A target file in which parts may be left out.
pub(super) struct SparseTarget<'a> {
    file: &'a File,
    /// The initial length of the file. Anything beyond it is a hole unless it is written.
    len: u64,
}

impl<'a> SparseTarget<'a> {
    /// Returns the target, or `None` if nothing may be left out: a device has no holes, a file
    /// opened for appending cannot be written at an offset, and a file copied into itself would
    /// lose data that has not been read yet.
    pub(super) async fn of(file: &'a File, source: &Metadata) -> io::Result<Option<Self>> {
        let known = file.metadata().await?;
        let is_same = (known.dev(), known.ino()) == (source.dev(), source.ino());
        let may_skip = known.is_file() && !file.append && !is_same;
        Ok(may_skip.then_some(Self { file, len: known.len() }))
    }

    /// Leaves out a part. Returns false if the existing bytes cannot be turned into a hole, so that
    /// zeros must be written.
    pub(super) async fn skip(&self, from: u64, to: u64) -> io::Result<bool> {
        let len = to.saturating_sub(from);
        if len == 0 || from >= self.len {
            return Ok(true);
        }
        // Punch up to the end of the source's hole, so that the last block becomes a hole too.
        let punch = move |fd| FileCall::Allocate { fd, mode: PUNCH_HOLE, offset: from, len };
        match self.file.plain(None, punch).await {
            Err(error) if error.raw_os_error().is_some() => Ok(false),
            punched => punched.map(|()| true),
        }
    }

    /// Extends the file to a length, unless it is already that long.
    pub(super) async fn grow_to(&self, len: u64) -> io::Result<()> {
        if self.file.metadata().await?.len() < len { self.file.set_len(len).await } else { Ok(()) }
    }
}
