//! An open file.
#![allow(unsafe_code)]

use super::buf::{IoBuf, IoBufMut};
use super::latency::{Class, DeviceId, Habitual};
use super::metadata::Metadata;
use super::open::OpenOptions;
use super::page_cache::Trust;
use super::perform::{Job, attempt_at_once, breathe, perform, perform_later};
use super::policy::Policy;
use crate::runtime::core::Core;
use annulus_kernel::Fd;
use annulus_kernel::file::{FileCall, FileStat, PathAt};
use rustix::io::Errno;
use std::cell::OnceCell;
use std::fmt;
use std::fs::Permissions;
use std::io::{self, SeekFrom};
use std::os::fd::RawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;

/// The most a call moves, as Linux has it: more than that takes several.
pub(super) const MOST: usize = 0x7fff_f000;
/// The offset that stands for the file's cursor.
pub(super) const CURSOR: u64 = u64::MAX;

/// A descriptor, closed when nobody uses it any more: neither a file nor a call that is still under way.
pub(crate) struct OpenFile {
    pub(super) core: Rc<Core>,
    fd: Fd,
    /// In a box: seldom asked for, and large.
    known: OnceCell<Option<Box<Metadata>>>,
    pub(super) trust: Trust,
}

impl OpenFile {
    pub(crate) fn new(core: Rc<Core>, fd: Fd) -> Rc<Self> {
        Rc::new(Self { core, fd, known: OnceCell::new(), trust: Trust::new() })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.raw()
    }

    /// The number of its device; of one that does not tell, zero.
    pub(crate) fn device_number(&self) -> u64 {
        self.known().map_or(0, Metadata::dev)
    }

    /// Whether it is a file that waits for devices only: a pipe or a terminal waits for somebody at its other end.
    fn is_ordinary(&self) -> bool {
        self.known().is_some_and(Metadata::is_file)
    }

    /// What was known when first asked for.
    fn known(&self) -> Option<&Metadata> {
        let look = || {
            let mut stat = FileStat::default();
            let at = PathAt { dir: self.fd(), path: c"".as_ptr() };
            let call = FileCall::Stat { at, flags: AT_EMPTY_PATH, stat: &mut stat };
            // SAFETY: path and answer outlive the call.
            let looked = unsafe { self.core.kernel.file(&call) };
            looked.ok().map(|_| Box::new(Metadata::new(stat)))
        };
        self.known.get_or_init(look).as_deref()
    }
}

/// How a file will be used: `POSIX_FADV_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum Advice {
    /// Nothing in particular.
    Normal = 0,
    /// Here and there: do not read ahead.
    Random = 1,
    /// From start to end: read further ahead.
    Sequential = 2,
    /// Soon: read it now.
    WillNeed = 3,
    /// Not soon: forget what is cached of it.
    DontNeed = 4,
    /// Once only.
    NoReuse = 5,
}

/// What direct I/O needs; see [`File::alignment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Of memory's addresses, in bytes.
    pub memory: usize,
    /// Of offsets and lengths, in bytes.
    pub offset: u64,
}

/// `statx(2)`: of the descriptor itself.
pub(super) const AT_EMPTY_PATH: u32 = 0x1000;

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.core.at_home() {
            self.core.kernel.close(self.fd);
            self.core.files.note_close();
        }
    }
}

/// An open file, or device. Reads and writes take owned memory and give it back: the kernel may go on with it after the
/// future was dropped.
///
/// Dropping it closes the descriptor as soon as no call of it is under way.
///
/// # What dropping a future of it does
///
/// A read or write that has begun goes on; its memory is kept until then. One that waits for the other end of a pipe has
/// not begun. An open that comes late is closed.
pub struct File {
    pub(super) open: Rc<OpenFile>,
    pub(super) device: DeviceId,
    pub(super) direct: bool,
    pub(super) policy: Policy,
}

impl File {
    pub(super) fn new(open: Rc<OpenFile>, device: DeviceId, direct: bool, policy: Policy) -> Self {
        Self { open, device, direct, policy }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Opens a file for writing: made where it does not exist, emptied where it does.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path).await
    }

    /// Reads at an offset: as many bytes as fit the memory, or fewer at the end of the file, or where the kernel has
    /// fewer at hand; 0 at the end, or where nothing fits.
    ///
    /// # Errors
    /// The system's; `InvalidInput` for direct I/O that is not [aligned](Self::alignment).
    pub async fn read_at<B: IoBufMut>(&self, mut buf: B, offset: u64) -> (io::Result<usize>, B) {
        if let Err(error) = place(offset) {
            return (Err(error), buf);
        }
        // No future between: it costs a good part of a cached read to move the memory into one and out of it.
        match self.read_at_once(&mut buf, 0, offset) {
            Some(Ok(count)) => (Ok(count), buf),
            tried => self.read_later(tried, buf, 0, offset).await,
        }
    }

    /// Writes at an offset: as many bytes as the memory has, or fewer where the device is full.
    ///
    /// # Errors
    /// `StorageFull`, `FileTooLarge`, …; `InvalidInput` for direct I/O that is not [aligned](Self::alignment).
    pub async fn write_at<B: IoBuf>(&self, buf: B, offset: u64) -> (io::Result<usize>, B) {
        match place(offset) {
            Ok(offset) => self.write_part(buf, 0, offset).await,
            Err(error) => (Err(error), buf),
        }
    }

    /// Reads at the cursor, and moves it.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub async fn read<B: IoBufMut>(&mut self, buf: B) -> (io::Result<usize>, B) {
        self.read_part(buf, 0, CURSOR).await
    }

    /// Writes at the cursor, and moves it. A pipe may take fewer bytes than there are.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub async fn write<B: IoBuf>(&mut self, buf: B) -> (io::Result<usize>, B) {
        self.write_part(buf, 0, CURSOR).await
    }

    /// Says what is wrong, where direct I/O is refused without a word.
    #[cold]
    pub(super) async fn explain(
        &self,
        error: io::Error,
        at: *const u8,
        len: usize,
        offset: u64,
    ) -> io::Error {
        if !(self.direct && error.raw_os_error() == Some(Errno::INVAL.raw_os_error())) {
            return error;
        }
        let Ok(Alignment { memory, offset: step }) = self.alignment().await else { return error };
        let wrong = |what: &str, value: u64, step: u64| {
            let text = format!("direct I/O needs {what} in multiples of {step}, not {value}");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let from = if offset == CURSOR { 0 } else { offset };
        match (at as usize % memory, len as u64 % step, from % step) {
            (0, 0, 0) => error,
            (0, 0, _) => wrong("offsets", offset, step),
            (0, _, _) => wrong("lengths", len as u64, step),
            (past, _, _) => wrong("addresses", past as u64, memory as u64),
        }
    }

    /// Makes a call on this file, which stays open for it.
    ///
    /// # Safety
    /// As [`perform`].
    pub(super) async unsafe fn perform<B: Unpin + 'static>(
        &self,
        class: Class,
        bytes: usize,
        call: FileCall,
        kept: B,
    ) -> (io::Result<usize>, B) {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.make(self.job(class, bytes, call), kept).await }
    }

    /// As [`perform`](Self::perform), by a habit or none.
    ///
    /// # Safety
    /// As there.
    pub(super) async unsafe fn make<B: Unpin + 'static>(
        &self,
        job: Job,
        kept: B,
    ) -> (io::Result<usize>, B) {
        // SAFETY: what the call names is `kept`'s, which is here.
        let (answer, kept) = match unsafe { attempt_at_once(&self.open.core, &job) } {
            Some(answer) => (answer, kept),
            // SAFETY: the caller's promise, passed on.
            None => unsafe { self.perform_later(job, kept).await },
        };
        (answer.map(|count| count as usize), kept)
    }

    /// As [`perform`](Self::perform), of a call that could not be made at once.
    ///
    /// # Safety
    /// As [`perform`].
    pub(super) async unsafe fn perform_later<B: Unpin + 'static>(
        &self,
        job: Job,
        kept: B,
    ) -> (io::Result<u32>, B) {
        let kept = (kept, self.open.clone());
        // SAFETY: the caller's promise, passed on.
        let (answer, (kept, _open)) = unsafe { perform_later(&self.open.core, job, kept).await };
        (answer, kept)
    }

    #[inline]
    pub(super) fn job(&self, class: Class, bytes: usize, call: FileCall) -> Job {
        let habit = self.habit(class, bytes, is_at_cursor(&call));
        Job { call, policy: self.policy, habit }
    }

    /// `None` for what always waits: for the device, as what goes past the cache does, or for the other end of a pipe. What
    /// names a place does not wait for that: a pipe has none, and refuses it.
    #[inline]
    pub(super) fn habit(&self, class: Class, bytes: usize, at_cursor: bool) -> Option<Habitual> {
        let device = self.device;
        let waits = self.direct || at_cursor && self.moves(class) && !self.open.is_ordinary();
        (!waits).then_some(Habitual { device, class, bytes })
    }

    /// Whether what was found in memory is likely to be found there again.
    pub(super) fn lasts_in_memory(&self) -> bool {
        let device = self.device;
        self.open.is_ordinary() && self.open.core.files.habits.borrow().can_stay_cached(device)
    }

    /// Whether a call of this class moves bytes, and cannot be told not to wait.
    fn moves(&self, class: Class) -> bool {
        match class {
            Class::Read => !self.open.core.files.habits.borrow().can_stay_cached(self.device),
            Class::Write => true,
            _ => false,
        }
    }

    /// Waits until everything that was written is on the device, and what is known about the file with it.
    ///
    /// # Errors
    /// The device's: what had been written may be lost, and a second try that succeeds does not bring it back.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.plain(None, FileCall::Sync { fd: self.open.fd(), data_only: false }).await
    }

    /// As [`sync_all`](Self::sync_all), without what is not needed to read the data back, such as times.
    ///
    /// # Errors
    /// As there.
    pub async fn sync_data(&self) -> io::Result<()> {
        self.plain(None, FileCall::Sync { fd: self.open.fd(), data_only: true }).await
    }

    /// Cuts the file, or extends it with zeroes that take no room.
    ///
    /// # Errors
    /// `InvalidInput` for a file not open for writing, `FileTooLarge`, ….
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        self.plain(Some(Class::Change), FileCall::SetLen { fd: self.open.fd(), len }).await
    }

    /// Reserves room on the device, so that writes there cannot run out of it. The file grows where it ends before.
    ///
    /// # Errors
    /// `StorageFull`; `Unsupported` where the file system cannot.
    pub async fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let call = FileCall::Allocate { fd: self.open.fd(), mode: 0, offset, len };
        self.plain(None, call).await
    }

    /// Says how the file will be used, so that the kernel reads ahead, or forgets. A length of 0 is to the end.
    ///
    /// # Errors
    /// `InvalidInput` for a pipe, or a length above 4 GiB.
    pub async fn advise(&self, offset: u64, len: u64, advice: Advice) -> io::Result<()> {
        let len = u32::try_from(len).map_err(|_| {
            let text = format!("advice for {len} bytes: at most {} at a time", u32::MAX);
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let call = FileCall::Advise { fd: self.open.fd(), offset, len, advice: advice as u32 };
        self.plain(None, call).await
    }

    /// Changes the file's permissions, for whoever opens it from then on.
    ///
    /// # Errors
    /// `PermissionDenied`, ….
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        let mode = permissions.mode() & 0o7777;
        self.plain(Some(Class::Change), FileCall::SetModeOf { fd: self.open.fd(), mode }).await
    }

    /// What is known about the file.
    ///
    /// # Errors
    /// The system's; or outside a runtime.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let mut stat: Box<FileStat> = Box::default();
        let at = PathAt { dir: self.open.fd(), path: c"".as_ptr() };
        let call = FileCall::Stat { at, flags: AT_EMPTY_PATH, stat: &mut *stat };
        // SAFETY: the call writes to the box's memory.
        let (answer, stat) = unsafe { self.perform(Class::Look, 0, call, stat).await };
        answer.map(|_| Metadata::new(*stat))
    }

    /// What direct I/O needs, in bytes: of memory's addresses, and of offsets and lengths. Where the kernel does not tell
    /// (before 6.1), 4096 for both, which suits every device.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata).
    pub async fn alignment(&self) -> io::Result<Alignment> {
        let (memory, offset) = self.metadata().await?.direct_alignment().unwrap_or((4096, 4096));
        Ok(Alignment { memory: memory as usize, offset: u64::from(offset) })
    }

    /// Another handle on the same open file: they share the cursor, the locks and the descriptor, which is closed with the
    /// last of them.
    ///
    /// # Errors
    /// None today; a result, as `std`'s.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { open: self.open.clone(), ..*self })
    }

    /// Moves the cursor; where it is then.
    ///
    /// # Errors
    /// `InvalidInput` for a place before the start, or what has no places, such as a pipe.
    pub async fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (offset, origin) = match to {
            SeekFrom::Start(offset) => (place(offset)? as i64, 0),
            SeekFrom::Current(offset) => (offset, 1),
            SeekFrom::End(offset) => (offset, 2),
        };
        let mut position: Box<u64> = Box::default();
        let call = FileCall::Seek { fd: self.open.fd(), offset, origin, position: &mut *position };
        // SAFETY: the call writes to the box's memory.
        let (answer, position) = unsafe { self.perform(Class::Look, 0, call, position).await };
        answer.map(|_| *position)
    }

    /// Moves the cursor, at once: no device is asked for that. Where it is then.
    pub(crate) fn move_cursor(&self, by: i64) -> io::Result<u64> {
        let mut position = 0;
        let call =
            FileCall::Seek { fd: self.open.fd(), offset: by, origin: 1, position: &mut position };
        // SAFETY: the answer outlives the call.
        unsafe { self.open.core.kernel.file(&call)? };
        Ok(position)
    }

    /// Lets the others have their turn, before a call that is made on the loop.
    pub(crate) async fn breathe(&self) {
        breathe(&self.open.core, self.policy).await;
    }

    /// The descriptor, which stays the file's.
    pub fn as_raw_fd(&self) -> RawFd {
        self.open.fd()
    }

    /// A call that names no memory, and answers nothing but whether it went well.
    pub(super) async fn plain(&self, class: Option<Class>, call: FileCall) -> io::Result<()> {
        let habit = class.map(|class| Habitual { device: self.device, class, bytes: 0 });
        let job = Job { call, policy: self.policy, habit };
        // SAFETY: the call names no memory.
        let (answer, _open) = unsafe { perform(&self.open.core, job, self.open.clone()).await };
        answer.map(drop)
    }
}

/// An offset that the kernel can be given: more would be negative there, and the last one its word for the cursor.
pub(super) fn place(offset: u64) -> io::Result<u64> {
    if i64::try_from(offset).is_ok() {
        return Ok(offset);
    }
    let text = format!("a place at {offset}: no file has more than {} bytes", i64::MAX);
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn is_at_cursor(call: &FileCall) -> bool {
    match *call {
        FileCall::Read { offset, .. }
        | FileCall::Write { offset, .. }
        | FileCall::ReadVector { offset, .. }
        | FileCall::WriteVector { offset, .. } => offset == CURSOR,
        _ => false,
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("fd", &self.open.fd).field("policy", &self.policy).finish()
    }
}
