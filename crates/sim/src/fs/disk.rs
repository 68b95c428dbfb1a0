//! A disk with a file system: open files, and the calls on them.

use super::names;
use super::pages::{PAGE_SIZE, Pages};
use super::tree::{Ino, Node, ROOT_INO, Tree};
use crate::memory_range::MemoryRange;
use crate::random::Random;
use crate::slab::Slab;
use crate::timeline::{Nanos, nanos};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use std::ops::Range;
use std::time::Duration;

const SEEK_SET: u32 = 0;
const SEEK_CUR: u32 = 1;
const SEEK_END: u32 = 2;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// The device of a simulated disk: how long it takes, and how often it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The time of a read that bypasses the page cache or finds a page missing in it.
    pub read: Duration,
    /// The time of a write to the device, by direct I/O or by a sync.
    pub write: Duration,
    /// The time of a sync, in addition to the time of its write.
    pub sync: Duration,
    /// The mean of a random time that each read, write and sync takes in addition. The distribution
    /// is exponential: about 1% of operations take 4.4 times the mean or more. Zero by default.
    pub jitter: Duration,
    /// Maximum total size of all files in bytes, counted in whole pages. Writing more fails with
    /// ENOSPC.
    pub capacity: u64,
    /// The alignment of memory, offset and length for direct I/O. Anything else fails with EINVAL.
    pub alignment: u32,
    /// Reads from the device that fail with EIO, per thousand. Zero by default.
    pub read_errors: u16,
    /// Writes to the device that fail with EIO, per thousand: direct writes, synchronous writes,
    /// and syncs of files with cached changes. Some of the bytes may have reached the device. Zero
    /// by default.
    pub write_errors: u16,
    /// Syncs that fail with EIO, per thousand. As on Linux, each open file reports the failure
    /// once, and the pages are clean afterwards: the next sync succeeds without writing their
    /// bytes. Zero by default.
    pub sync_errors: u16,
}

impl Default for Device {
    /// Returns a fast device of 1 GiB without errors: 80 µs to read, 20 µs to write, 500 µs to
    /// sync.
    fn default() -> Self {
        Self {
            read: Duration::from_micros(80),
            write: Duration::from_micros(20),
            sync: Duration::from_micros(500),
            jitter: Duration::ZERO,
            capacity: 1 << 30,
            alignment: 512,
            read_errors: 0,
            write_errors: 0,
            sync_errors: 0,
        }
    }
}

impl Device {
    /// Draws a device: a fast or a slow one, which never fails, or fails rarely or often.
    pub fn any(random: &mut Random) -> Self {
        let micros = |random: &mut Random, most| Duration::from_micros(random.between(1, most));
        let most = random.pick(&[100, 1_000, 100_000]);
        let rate = |random: &mut Random| random.pick(&[0, 0, 0, 1, 10, 100]);
        Self {
            read: micros(random, most),
            write: micros(random, most),
            sync: micros(random, 10 * most),
            jitter: micros(random, most),
            read_errors: rate(random),
            write_errors: rate(random),
            sync_errors: rate(random),
            ..Self::default()
        }
    }

    /// Draws the time that an operation takes in addition to its usual one.
    pub(crate) fn draw_jitter(&self, random: &mut Random) -> Nanos {
        let mean = nanos(self.jitter);
        if mean == 0 {
            return 0;
        }
        // Each further step is half as likely, and the place within a step is uniform, so the mean
        // is 1.5 steps. Unlike a logarithm, this has the same result on every machine.
        let step = mean / 3 * 2;
        u64::from(random.bits().leading_zeros()) * step + random.below(step)
    }
}

pub(crate) type OpenId = u32;

/// A path and the directory or file it starts from; `None` is the root. An empty path refers to
/// `dir` itself.
#[derive(Debug)]
pub(crate) struct AnchoredPath {
    pub(crate) dir: Option<OpenId>,
    pub(crate) path: Vec<u8>,
}

impl AnchoredPath {
    /// Returns the last name of the path.
    pub(super) fn last_step(&self) -> Option<&[u8]> {
        self.path.split(|byte| *byte == b'/').rfind(|step| !step.is_empty())
    }

    /// Returns true if a slash at the end allows only a directory.
    pub(super) fn demands_directory(&self) -> bool {
        self.path.ends_with(b"/")
    }
}

/// How a call uses the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceUse {
    None,
    Read,
    Write,
    /// A write that is followed by a sync of the file.
    SyncedWrite(OpenId),
    Sync(OpenId),
}

pub(crate) type MemoryRanges = Box<[MemoryRange]>;

/// A simulated disk: a device with files on it.
///
/// Written bytes are in the page cache at first, and on the device once they have been synced.
/// After a power cut ([`after_power_cut`](Self::after_power_cut)), the disk has the synced bytes
/// and an arbitrary choice of the unsynced sectors of 512 bytes. It also has the synced name
/// changes, and in each directory some of the oldest unsynced ones. A name change is durable once
/// its directory is synced: the sync of a new file alone does not make its name durable.
#[derive(Clone, Debug)]
pub struct Disk {
    pub(super) device: Device,
    pub(super) tree: Tree,
    opens: Slab<OpenFile>,
}

#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    pub(super) ino: Ino,
    pub(super) flags: OFlags,
    /// The offset of the next byte; in a directory, the position of the next entry.
    pub(super) cursor: u64,
    /// Number of the inode's failed syncs that this open file need not report: it has reported
    /// them, or they were reported before it was opened.
    errors_seen: u32,
    lock: Option<Lock>,
    /// The bytes of the last write, which a durable write syncs.
    last_write: Range<u64>,
    /// Whether the disk has lost its power since the open. The file can then only be closed.
    is_cut_off: bool,
}

/// The lock of an open file on its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Shared,
    Exclusive,
}

impl Disk {
    /// Creates an empty disk.
    pub fn new(device: Device) -> Self {
        Self { device, tree: Tree::new(), opens: Slab::new() }
    }

    /// Returns the disk after a power cut at this moment. Each `seed` gives one of the possible
    /// outcomes.
    pub fn after_power_cut(&self, seed: u64) -> Self {
        let mut tree = self.tree.clone();
        tree.cut_power(&mut Random::new(seed));
        Self { device: self.device, tree, opens: Slab::new() }
    }

    /// Cuts the power of this disk, and turns it on again. Files that are still open can only be
    /// closed afterwards.
    pub(crate) fn cut_power(&mut self, random: &mut Random) {
        self.tree.cut_power(random);
        self.opens.iter_mut().for_each(|open| open.is_cut_off = true);
    }

    /// Returns the device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Replaces the device from now on. Files keep their content even if it exceeds the capacity.
    pub fn set_device(&mut self, device: Device) {
        self.device = device;
    }

    /// Returns the same disk without open files.
    pub(crate) fn without_open_files(&self) -> Self {
        let mut tree = self.tree.clone();
        let open = self.opens.iter().filter(|(_, open)| !open.is_cut_off);
        open.for_each(|(_, open)| tree.inode_mut(open.ino).opens -= 1);
        tree.sweep();
        Self { device: self.device, tree, opens: Slab::new() }
    }

    /// Drops all clean pages from the cache.
    pub(crate) fn drop_cache(&mut self) {
        self.tree.files_mut().for_each(Pages::drop_cache);
    }

    /// Returns true if a read needs the device, because it is direct or a page is not cached.
    pub(crate) fn read_needs_device(
        &self,
        file: OpenId,
        into: &MemoryRanges,
        offset: Option<u64>,
    ) -> bool {
        let Ok(pages) = self.pages(file) else { return false };
        let at = offset.unwrap_or(self.opens.at(file).cursor);
        self.is_direct(file) || !pages.is_cached(at, len(into))
    }

    /// Returns how a write uses the device. A cached write does not: its pages are written by the
    /// sync.
    pub(crate) fn device_use_of_write(&self, file: OpenId) -> DeviceUse {
        match () {
            () if self.is_synchronous(file) => DeviceUse::SyncedWrite(file),
            () if self.is_direct(file) => DeviceUse::Write,
            () => DeviceUse::None,
        }
    }

    /// Returns how long an operation takes at the device, without jitter.
    pub(crate) fn time_of(&self, device_use: DeviceUse) -> Nanos {
        let Device { read, write, sync, .. } = self.device;
        match device_use {
            DeviceUse::None => 0,
            DeviceUse::Read => nanos(read),
            DeviceUse::Write => nanos(write),
            DeviceUse::SyncedWrite(_) => nanos(write).saturating_add(nanos(sync)),
            DeviceUse::Sync(file) if self.is_dirty(file) => {
                nanos(write).saturating_add(nanos(sync))
            }
            DeviceUse::Sync(_) => nanos(sync),
        }
    }

    pub(crate) fn is_dirty(&self, file: OpenId) -> bool {
        self.pages(file).is_ok_and(Pages::is_dirty)
    }

    pub(crate) fn close(&mut self, file: OpenId) {
        let open = self.opens.remove(file);
        if !open.is_cut_off {
            self.tree.inode_mut(open.ino).opens -= 1;
            self.tree.sweep();
        }
    }

    /// Returns true if a file was open when the disk lost its power.
    pub(crate) fn is_cut_off(&self, file: OpenId) -> bool {
        self.opens.at(file).is_cut_off
    }

    pub(crate) fn open(
        &mut self,
        at: &AnchoredPath,
        flags: u32,
        mode: u32,
    ) -> Result<usize, Errno> {
        let flags = OFlags::from_bits_retain(flags);
        let from = self.start_inode(at)?;
        let creates = flags.contains(OFlags::CREATE);
        if creates && flags.contains(OFlags::DIRECTORY) {
            return Err(Errno::INVAL);
        }
        if creates && at.demands_directory() {
            let parent = self.tree.parent_and_name(from, &at.path);
            return Err(parent
                .err()
                .filter(|errno| *errno != Errno::INVAL)
                .unwrap_or(Errno::ISDIR));
        }
        let found = if at.path.is_empty() && at.dir.is_some() {
            Ok(from)
        } else {
            self.tree.find(from, &at.path)
        };
        let ino = match found {
            Ok(_) if flags.contains(OFlags::CREATE | OFlags::EXCL) => return Err(Errno::EXIST),
            Err(Errno::NOENT) if creates => {
                let name = self.tree.parent_and_name(from, &at.path)?;
                self.tree.create(name, Node::File(Pages::default()), mode & 0o7777)
            }
            found => found?,
        };
        let directory = matches!(self.tree.inode(ino).node, Node::Dir { .. });
        let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC);
        if directory && (writes || creates) {
            return Err(Errno::ISDIR);
        }
        if !directory && flags.contains(OFlags::DIRECTORY) {
            return Err(Errno::NOTDIR);
        }
        if let Node::File(pages) = &mut self.tree.inode_mut(ino).node
            && flags.contains(OFlags::TRUNC)
        {
            pages.set_len(0);
        }
        let inode = self.tree.inode_mut(ino);
        inode.opens += 1;
        // If no open file has reported the last error yet, this one will.
        let errors_seen = inode.errors - u32::from(inode.is_error_new);
        let open = OpenFile {
            ino,
            flags,
            cursor: 0,
            errors_seen,
            lock: None,
            last_write: 0..0,
            is_cut_off: false,
        };
        Ok(self.opens.insert(open) as usize)
    }

    /// Returns the inode that a path starts from: its directory's, or the root.
    pub(super) fn start_inode(&self, at: &AnchoredPath) -> Result<Ino, Errno> {
        at.dir.map_or(Ok(ROOT_INO), |dir| self.opens.find(dir).map(|it| it.ino).ok_or(Errno::BADF))
    }

    pub(super) fn opened(&mut self, file: OpenId) -> &mut OpenFile {
        self.opens.at_mut(file)
    }

    pub(super) fn cursor(&self, file: OpenId) -> u64 {
        self.opens.at(file).cursor
    }

    pub(crate) fn ino(&self, file: OpenId) -> Ino {
        self.opens.at(file).ino
    }

    fn is_direct(&self, file: OpenId) -> bool {
        self.opens.at(file).flags.contains(OFlags::DIRECT)
    }

    fn is_synchronous(&self, file: OpenId) -> bool {
        self.opens.at(file).flags.intersects(OFlags::DSYNC | OFlags::SYNC)
    }

    fn pages(&self, file: OpenId) -> Result<&Pages, Errno> {
        match &self.tree.inode(self.ino(file)).node {
            Node::File(pages) => Ok(pages),
            Node::Dir { .. } => Err(Errno::ISDIR),
        }
    }

    fn pages_mut(&mut self, file: OpenId) -> Result<&mut Pages, Errno> {
        match &mut self.tree.inode_mut(self.opens.at(file).ino).node {
            Node::File(pages) => Ok(pages),
            Node::Dir { .. } => Err(Errno::ISDIR),
        }
    }

    /// Like [`pages_mut`](Self::pages_mut), but fails unless the file was opened for writing.
    fn writable(&mut self, file: OpenId) -> Result<&mut Pages, Errno> {
        if self.opens.at(file).flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
            self.pages_mut(file)
        } else {
            Err(Errno::BADF)
        }
    }

    pub(crate) fn read(
        &mut self,
        file: OpenId,
        into: &MemoryRanges,
        offset: Option<u64>,
        nowait: bool,
    ) -> Result<usize, Errno> {
        if self.opens.at(file).flags.contains(OFlags::WRONLY) {
            return Err(Errno::BADF);
        }
        check_offset(offset, len(into))?;
        self.check_alignment(file, into, offset)?;
        let at = offset.unwrap_or(self.opens.at(file).cursor);
        let direct = self.is_direct(file);
        if len(into) == 0 {
            return Ok(0);
        }
        let pages = self.pages_mut(file)?;
        if nowait && !pages.is_cached(at, len(into)) {
            return Err(Errno::AGAIN);
        }
        let bytes = pages.read(at, len(into), direct);
        scatter(into, &bytes);
        self.advance_cursor(file, offset, bytes.len());
        Ok(bytes.len())
    }

    pub(crate) fn write(
        &mut self,
        file: OpenId,
        from: &MemoryRanges,
        offset: Option<u64>,
    ) -> Result<usize, Errno> {
        self.check_alignment(file, from, offset)?;
        let bytes: Vec<u8> = from.iter().flat_map(|range| range.bytes()).collect();
        self.write_bytes(file, &bytes, offset)
    }

    /// Writes as many bytes as fit on the device.
    fn write_bytes(
        &mut self,
        file: OpenId,
        bytes: &[u8],
        offset: Option<u64>,
    ) -> Result<usize, Errno> {
        let (cursor, append) =
            (self.opened(file).cursor, self.opened(file).flags.contains(OFlags::APPEND));
        let end = self.writable(file)?.len();
        check_offset(offset, bytes.len())?;
        if bytes.is_empty() {
            self.opened(file).last_write = 0..0;
            return Ok(0);
        }
        let at = if append { end } else { offset.unwrap_or(cursor) };
        let count = self.writable_len(file, at, bytes.len())?;
        self.writable(file)?.write(at, &bytes[..count]);
        self.opened(file).last_write = at..at + count as u64;
        if append && offset.is_none() {
            self.opened(file).cursor = at;
        }
        self.advance_cursor(file, offset, count);
        Ok(count)
    }

    /// Returns how many bytes of a write fit; ENOSPC if none do.
    fn writable_len(&self, file: OpenId, at: u64, len: usize) -> Result<usize, Errno> {
        let (pages, free) = (self.pages(file)?, self.free_pages());
        if pages.fits(at, len, free) {
            return Ok(len);
        }
        let page = PAGE_SIZE as u64;
        let ends = (at / page + 1..).map(|next| (next * page - at) as usize);
        let fits = |count: &usize| pages.fits(at, *count, free);
        ends.take_while(fits).last().ok_or(Errno::NOSPC)
    }

    /// Returns how many pages have space on the device.
    fn free_pages(&self) -> usize {
        (self.device.capacity as usize / PAGE_SIZE).saturating_sub(self.tree.pages())
    }

    /// Moves the cursor, and writes its new position to `into`.
    pub(crate) fn seek(
        &mut self,
        file: OpenId,
        offset: i64,
        origin: u32,
        into: MemoryRange,
    ) -> Result<usize, Errno> {
        let from = match origin {
            SEEK_SET => 0,
            SEEK_CUR => self.cursor(file),
            SEEK_END => self.pages(file)?.len(),
            SEEK_DATA | SEEK_HOLE => {
                let (pages, at) = (self.pages(file)?, u64::try_from(offset).ok());
                let data = origin == SEEK_DATA;
                let find = |at| if data { pages.next_data(at) } else { pages.next_hole(at) };
                let found = at.and_then(find).ok_or(Errno::NXIO)?;
                return self.seek(file, found as i64, SEEK_SET, into);
            }
            _ => return Err(Errno::INVAL),
        };
        let to = from.checked_add_signed(offset).filter(|&to| i64::try_from(to).is_ok());
        let to = to.ok_or(Errno::INVAL)?;
        self.opened(file).cursor = to;
        into.put(&to.to_ne_bytes());
        Ok(0)
    }

    fn advance_cursor(&mut self, file: OpenId, offset: Option<u64>, count: usize) {
        if offset.is_none() {
            self.opened(file).cursor += count as u64;
        }
    }

    /// Checks that direct I/O uses whole blocks and aligned memory.
    fn check_alignment(
        &self,
        file: OpenId,
        ranges: &MemoryRanges,
        offset: Option<u64>,
    ) -> Result<(), Errno> {
        let block = u64::from(self.device.alignment.max(1));
        let at = offset.unwrap_or(self.opens.at(file).cursor);
        let aligned = |range: &MemoryRange| {
            range.address().is_multiple_of(block) && (range.len() as u64).is_multiple_of(block)
        };
        let sound = at.is_multiple_of(block) && ranges.iter().all(aligned);
        if sound || !self.is_direct(file) { Ok(()) } else { Err(Errno::INVAL) }
    }

    pub(crate) fn copy(
        &mut self,
        (from, from_offset): (OpenId, Option<u64>),
        (to, to_offset): (OpenId, Option<u64>),
        len: usize,
    ) -> Result<usize, Errno> {
        let len = self.copied_len((from, from_offset), (to, to_offset), len)?;
        let at = from_offset.unwrap_or(self.opens.at(from).cursor);
        let bytes = self.pages_mut(from)?.read(at, len, false);
        let count = self.write_bytes(to, &bytes, to_offset)?;
        self.advance_cursor(from, from_offset, count);
        Ok(count)
    }

    /// Returns how many bytes of a copy there are, or the error if it is not possible.
    fn copied_len(
        &self,
        (from, from_offset): (OpenId, Option<u64>),
        (to, to_offset): (OpenId, Option<u64>),
        len: usize,
    ) -> Result<usize, Errno> {
        let end = self.pages(from)?.len();
        self.pages(to)?;
        let (source, target) = (self.opens.at(from), self.opens.at(to));
        let writes = target.flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        if source.flags.contains(OFlags::WRONLY) || !writes || target.flags.contains(OFlags::APPEND)
        {
            return Err(Errno::BADF);
        }
        let at = from_offset.unwrap_or(source.cursor);
        let to_at = to_offset.unwrap_or(target.cursor);
        check_offset(Some(at), len)?;
        check_offset(Some(to_at), len)?;
        let count = (len as u64).min(end.saturating_sub(at));
        let overlaps = to_at < at + count && at < to_at + count;
        if source.ino == target.ino && overlaps {
            return Err(Errno::INVAL);
        }
        Ok(count as usize)
    }

    /// Writes a file's bytes, or a directory's names, to the device. Reports an earlier failure
    /// that this open file has not reported.
    pub(crate) fn sync(&mut self, file: OpenId) -> Result<usize, Errno> {
        match self.pages_mut(file) {
            Ok(pages) => pages.sync(),
            Err(_) => self.tree.commit(self.ino(file)),
        }
        self.report_error(file)
    }

    /// Like [`sync`](Self::sync), but writes only the bytes of the last write.
    pub(crate) fn sync_last_write(&mut self, file: OpenId) -> Result<usize, Errno> {
        let bytes = self.opens.at(file).last_write.clone();
        self.pages_mut(file)?.sync_range(bytes);
        self.report_error(file)
    }

    /// Performs a sync that fails: a random part of the dirty pages reaches the device.
    pub(crate) fn fail_sync(&mut self, device_use: DeviceUse, random: &mut Random) -> Errno {
        let (file, bytes) = match device_use {
            DeviceUse::SyncedWrite(file) => (file, self.opens.at(file).last_write.clone()),
            DeviceUse::Sync(file) => (file, 0..u64::MAX),
            DeviceUse::None | DeviceUse::Read | DeviceUse::Write => return Errno::IO,
        };
        let Ok(pages) = self.pages_mut(file) else { return Errno::IO };
        pages.fail_sync(bytes, random);
        let inode = self.tree.inode_mut(self.opens.at(file).ino);
        (inode.errors, inode.is_error_new) = (inode.errors + 1, true);
        self.report_error(file).err().unwrap_or(Errno::IO)
    }

    fn report_error(&mut self, file: OpenId) -> Result<usize, Errno> {
        let open = self.opens.at_mut(file);
        let inode = self.tree.inode_mut(open.ino);
        if open.errors_seen == inode.errors {
            return Ok(0);
        }
        (open.errors_seen, inode.is_error_new) = (inode.errors, false);
        Err(Errno::IO)
    }

    pub(crate) fn set_len(&mut self, file: OpenId, len: u64) -> Result<usize, Errno> {
        if is_negative(len) {
            return Err(Errno::INVAL);
        }
        self.writable(file).map_err(|_| Errno::INVAL)?.set_len(len);
        Ok(0)
    }

    /// Locks the inode of an open file, or releases its lock. Fails if the lock of another open file
    /// prevents this. As on Linux, a lock that the file has had is then released.
    pub(crate) fn lock(&mut self, file: OpenId, lock: Option<Lock>) -> Result<usize, Errno> {
        self.opens.at_mut(file).lock = None;
        let ino = self.ino(file);
        let conflicts = |open: &OpenFile| match lock {
            None => false,
            Some(Lock::Shared) => open.lock == Some(Lock::Exclusive),
            Some(Lock::Exclusive) => open.lock.is_some(),
        };
        let prevents = |open: &OpenFile| open.ino == ino && !open.is_cut_off && conflicts(open);
        if self.opens.iter().any(|(_, open)| prevents(open)) {
            return Err(Errno::AGAIN);
        }
        self.opens.at_mut(file).lock = lock;
        Ok(0)
    }

    pub(crate) fn allocate(
        &mut self,
        file: OpenId,
        keep: bool,
        offset: u64,
        len: u64,
    ) -> Result<usize, Errno> {
        let end = self.allocated_end(file, offset, len)?;
        let bytes = usize::try_from(len).map_err(|_| Errno::FBIG)?;
        let free = self.free_pages();
        let pages = self.writable(file)?;
        if !pages.fits(offset, bytes, free) {
            return Err(Errno::NOSPC);
        }
        pages.allocate(offset, bytes);
        if !keep && end > pages.len() {
            pages.set_len(end);
        }
        Ok(0)
    }

    /// Checks the range of an allocation, in the order of Linux, and returns its end.
    fn allocated_end(&mut self, file: OpenId, offset: u64, len: u64) -> Result<u64, Errno> {
        if len == 0 || is_negative(offset) || is_negative(len) {
            return Err(Errno::INVAL);
        }
        self.writable(file)?;
        let end = offset + len;
        if is_negative(end) { Err(Errno::FBIG) } else { Ok(end) }
    }

    pub(crate) fn punch(&mut self, file: OpenId, offset: u64, len: u64) -> Result<usize, Errno> {
        self.allocated_end(file, offset, len)?;
        let pages = self.writable(file)?;
        let last = pages.len().next_multiple_of(PAGE_SIZE as u64);
        let len = len.min(last.saturating_sub(offset));
        pages.punch(offset, len as usize);
        Ok(0)
    }

    pub(crate) fn stat(
        &mut self,
        at: &AnchoredPath,
        itself: bool,
        into: MemoryRange,
    ) -> Result<usize, Errno> {
        let ino = match at.dir.filter(|_| itself && at.path.is_empty()) {
            Some(file) => self.ino(file),
            None => self.tree.find(self.start_inode(at)?, &at.path)?,
        };
        let inode = self.tree.inode(ino);
        let (kind, size, pages) = match &inode.node {
            Node::File(pages) => (FileType::RegularFile, pages.len(), pages.count()),
            Node::Dir { .. } => (FileType::Directory, PAGE_SIZE as u64, 1),
        };
        let mode = kind.as_raw_mode() | inode.mode;
        into.put_stat(&names::stat(ino, inode.links, mode, size, pages, self.device.alignment));
        Ok(0)
    }
}

/// Returns true if an offset is negative for Linux, where it has a sign.
fn is_negative(offset: u64) -> bool {
    i64::try_from(offset).is_err()
}

/// Fails with EINVAL if a transfer would begin or end at a negative offset.
fn check_offset(offset: Option<u64>, len: usize) -> Result<(), Errno> {
    let is_bad = |at: u64| is_negative(at) || is_negative(at + len as u64);
    if offset.is_some_and(is_bad) { Err(Errno::INVAL) } else { Ok(()) }
}

fn len(ranges: &MemoryRanges) -> usize {
    ranges.iter().map(|range| range.len()).sum()
}

fn scatter(ranges: &MemoryRanges, mut bytes: &[u8]) {
    for range in ranges {
        let (part, rest) = bytes.split_at(range.len().min(bytes.len()));
        range.put(part);
        bytes = rest;
    }
}
