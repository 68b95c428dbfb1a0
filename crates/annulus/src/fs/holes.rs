//! Holes in files: parts that take no space and read as zeros.

use super::file::File;
use super::metadata::Metadata;
use super::open::OpenOptions;
use annulus_kernel::file::FileCall;
use rustix::io::Errno;
use std::io;

/// `lseek(2)`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// `fallocate(2)`: a hole within the file, `FALLOC_FL_PUNCH_HOLE` with `FALLOC_FL_KEEP_SIZE`.
const PUNCH_HOLE: u32 = 0x02 | 0x01;

/// The holes of a source file. Searching for them moves a cursor, so the file is opened again.
pub(super) struct Holes(File);

/// Where the next data is.
pub(super) enum NextData {
    At(u64),
    /// Only a hole or the end of the file follows.
    None,
    /// The file system does not tell. Treat what follows as data.
    Unknown,
}

impl Holes {
    /// Returns `None` if the file cannot be opened again, for example without `/proc`.
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

    /// Finds the end of the data at an offset. Returns `None` if the file system does not tell.
    pub(super) async fn end_of_data(&self, data: u64) -> Option<u64> {
        let end = self.0.seek_from(data as i64, SEEK_HOLE).await.ok();
        end.filter(|end| *end > data)
    }
}

/// A target file in which parts may be left out.
pub(super) struct SparseTarget<'a> {
    file: &'a File,
    /// Its initial length. Anything beyond is a hole unless it is written.
    len: u64,
}

impl<'a> SparseTarget<'a> {
    /// Returns `None` if nothing may be left out: a device has no holes, an append has no offsets,
    /// and a file copied into itself would lose data that has not been read yet.
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
        // Punches to the end of the hole, so that the last block becomes a hole too.
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
