//! The handle of an open file, and locks between processes.
#![allow(unsafe_code)]

use super::call::{CallArgs, CallSite, Plain};
use super::metadata::{Metadata, Stat};
use super::open::OpenOptions;
use super::open_file::{AT_EMPTY_PATH, CursorGuard, OpenFile};
use super::path::QuotedPath;
use crate::bytes::thread_bound::stays;
use crate::errors::with_text;
use crate::file_policy::{CallKind, Class, DeviceId, Policy};
use crate::tasks::consume_budget;
use crate::time::sleep;
use annulus_kernel::file::{CURSOR_OFFSET, FileCall};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::fs::Permissions;
use std::io::{self, SeekFrom};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// How a file will be used: `POSIX_FADV_*`.
///
/// ```
/// use annulus::fs::{self, Advice, File};
///
/// # annulus::run(async {
/// # let path = std::env::temp_dir().join(format!("annulus-advice-{}", std::process::id()));
/// # fs::write(&path, "an archive").await?;
/// let archive = File::open(&path).await?;
/// archive.advise(0, 0, Advice::Sequential).await?; // From the start to the end.
/// let copied = archive.copy_to(&File::create(path.with_extension("copy")).await?).await?;
/// archive.advise(0, copied, Advice::DontNeed).await?; // Leaves the cache to other files.
/// # fs::remove_file(path.with_extension("copy")).await?;
/// # fs::remove_file(&path).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum Advice {
    /// No advice.
    Normal = 0,
    /// The file will be read in random order: do not read ahead.
    Random = 1,
    /// The file will be read from start to end: read further ahead.
    Sequential = 2,
    /// The range will be needed soon: read it into memory now.
    WillNeed = 3,
    /// The range will not be needed soon: drop it from the page cache.
    DontNeed = 4,
    /// The range will be used only once.
    NoReuse = 5,
}

/// The alignment that direct I/O needs; see [`File::alignment`].
///
/// ```
/// use annulus::fs::{self, AlignedBuf, Alignment, File};
///
/// # annulus::run(async {
/// # let path = std::env::temp_dir().join(format!("annulus-alignment-{}", std::process::id()));
/// # fs::write(&path, "data").await?;
/// let Alignment { memory, offset } = File::open(&path).await?.alignment().await?;
/// // A buffer for at least 10,000 bytes.
/// let buf = AlignedBuf::new(10_000_usize.next_multiple_of(offset as usize), memory)?;
/// assert!(buf.len() as u64 % offset == 0);
/// # fs::remove_file(&path).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// The alignment of memory addresses, in bytes.
    pub memory: usize,
    /// The alignment of offsets and lengths, in bytes.
    pub offset: u64,
}

/// An open file or device. Reads and writes take owned memory and give it back, because the kernel
/// may still use it after the future has been dropped.
///
/// Dropping the file releases its [lock](Self::lock) and closes the descriptor as soon as no call
/// on it is in flight. A read or direct write that ran on a kernel worker may hold the file a few
/// microseconds longer. If other threads start processes, a file that has been written and dropped
/// cannot always be executed at once. A forked child also holds the descriptor until it executes
/// its program, and until then an `execve` of the file fails with `ETXTBSY`. Retry in that case.
///
/// ```
/// use annulus::fs::{File, OpenOptions};
///
/// # annulus::run(async {
/// # let path = std::env::temp_dir().join(format!("annulus-file-{}", std::process::id()));
/// let file = OpenOptions::new().read(true).write(true).create(true).open(&path).await?;
/// let (written, _) = file.write_all_at("one two three", 0).await;
/// written?;
/// file.sync_data().await?; // On the device now.
///
/// // The read fills the vector's capacity, and gives the vector back.
/// let (read, word) = file.read_at(Vec::with_capacity(3), 4).await;
/// assert_eq!((read?, &word[..]), (3, &b"two"[..]));
/// # annulus::fs::remove_file(&path).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # What dropping a future does
///
/// A read or write that has begun continues, and its memory is kept until it is done. A read or
/// write that waits for the other end of a pipe has not begun. If the future of an open is dropped,
/// the file is closed once it has been opened.
pub struct File {
    pub(super) open: Rc<OpenFile>,
    pub(super) device: DeviceId,
    pub(super) direct: bool,
    /// Every write goes to the end of the file, wherever the cursor is.
    pub(super) append: bool,
    pub(super) policy: Policy,
}

stays!(Send File Sync File);

impl File {
    pub(super) fn new(open: Rc<OpenFile>, device: DeviceId, flags: OFlags, policy: Policy) -> Self {
        let (direct, append) = (flags.contains(OFlags::DIRECT), flags.contains(OFlags::APPEND));
        Self { open, device, direct, append, policy }
    }

    /// Takes over a file of the standard library.
    ///
    /// # Errors
    /// Outside a runtime; `Unsupported` under a simulated kernel. The file is closed if the call
    /// fails.
    pub fn from_std(file: std::fs::File) -> io::Result<Self> {
        Self::try_from(OwnedFd::from(file))
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// The errors of [`OpenOptions::open`].
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path).await
    }

    /// Opens a file for writing. Creates it if it does not exist, and truncates it if it does.
    ///
    /// # Errors
    /// The errors of [`OpenOptions::open`].
    pub async fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path).await
    }

    /// Adds the bytes, the file and a remedy to an error for which a remedy is known. Other errors
    /// stay as they are.
    #[cold]
    pub(super) async fn explain(
        &self,
        error: io::Error,
        class: Class,
        address: usize,
        len: usize,
        offset: u64,
    ) -> io::Error {
        let (doing, is_write) =
            if class == Class::Write { ("writing", true) } else { ("reading", false) };
        let remedy = match Errno::from_io_error(&error) {
            Some(Errno::INVAL) if self.direct => {
                match self.misalignment(address, len, offset).await {
                    Some(text) => text,
                    None => return error,
                }
            }
            Some(Errno::NOSPC) if is_write => "free some space, and write again".to_owned(),
            Some(Errno::DQUOT) if is_write => "free some of the quota, and write again".to_owned(),
            Some(Errno::FBIG) if is_write => match getrlimit(Resource::Fsize).current {
                Some(limit) => {
                    format!(
                        "the process may write files of {limit} bytes: raise RLIMIT_FSIZE (ulimit -f)"
                    )
                }
                None => "the file system allows no file that long".to_owned(),
            },
            Some(Errno::BADF) if is_write => {
                "open the file for writing, with OpenOptions::write or append".to_owned()
            }
            _ => return error,
        };
        let place = if offset == CURSOR_OFFSET {
            "at the cursor".to_owned()
        } else {
            format!("at offset {offset}")
        };
        let name = self.shown_name();
        let text = format!("{doing} {len} bytes {place} of {name}: {error}; {remedy}");
        with_text(error, text)
    }

    /// Describes the value that is not aligned in a call of direct I/O. Returns `None` if it finds
    /// no such value.
    async fn misalignment(&self, address: usize, len: usize, offset: u64) -> Option<String> {
        let Alignment { memory, offset: step } = self.alignment().await.ok()?;
        let wrong = |what: &str, value: u64, step: u64| {
            Some(format!("direct I/O needs {what} in multiples of {step}, not {value}"))
        };
        let from = if offset == CURSOR_OFFSET { 0 } else { offset };
        match (address % memory, len as u64 % step, from % step) {
            (0, 0, 0) => None,
            (0, 0, _) => wrong("offsets", offset, step),
            (0, _, _) => wrong("lengths", len as u64, step),
            (past, _, _) => wrong("addresses", past as u64, memory as u64),
        }
    }

    /// Returns the file's path for an error message. The file does not keep its path, so this asks
    /// the kernel, which takes a few microseconds. A simulated kernel does not know the path.
    fn shown_name(&self) -> String {
        let link = format!("/proc/self/fd/{}", self.open.fd.raw());
        let path = self.open.core.kernel.real_descriptors().then(|| std::fs::read_link(link).ok());
        path.flatten().map_or("the file".to_owned(), |path| QuotedPath(&path).to_string())
    }

    /// Returns the call site of a call of this class on this file that moves at most `bytes` bytes.
    #[inline]
    pub(super) fn site(&self, class: Class, bytes: usize, at_cursor: bool) -> CallSite<'_> {
        CallSite { at_cursor, ..self.site_of(self.kind(class, bytes, at_cursor)) }
    }

    #[inline]
    pub(super) fn site_of(&self, kind: Option<CallKind>) -> CallSite<'_> {
        let core = &self.open.core;
        CallSite {
            core,
            open: Some(&self.open),
            policy: self.policy,
            kind,
            predictable: None,
            at_cursor: false,
            group: self.open.group,
        }
    }

    /// Returns the kind under which the latency policy tracks a call. Returns `None` for calls that
    /// are expected to wait: direct I/O, which waits for the device, and calls at the cursor of a
    /// pipe or terminal, unless they can fail instead of waiting. A pipe refuses calls at an offset
    /// at once.
    #[inline]
    pub(super) fn kind(&self, class: Class, bytes: usize, at_cursor: bool) -> Option<CallKind> {
        let device = self.device;
        let waits =
            self.direct || at_cursor && self.may_wait_for_peer(class) && !self.open.is_ordinary();
        (!waits).then_some(CallKind { device, class, bytes })
    }

    /// Returns true if a call of this class reads or writes and has no mode that fails instead of
    /// waiting.
    fn may_wait_for_peer(&self, class: Class) -> bool {
        match class {
            Class::Read => !self.open.core.inline_policy.supports_nowait(self.device),
            Class::Write => true,
            _ => false,
        }
    }

    /// Closes the file once all calls at its cursor are done, including those whose futures were
    /// dropped. Clones keep the descriptor open.
    ///
    /// # Errors
    /// The error of a write whose future was dropped. Errors that a file system, such as NFS,
    /// reports only at the close are lost. To get them, call [`sync_all`](Self::sync_all) first.
    pub async fn close(self) -> io::Result<()> {
        drop(self.cursor_guard().await);
        self.open.take_error()
    }

    /// Waits until all written data and the file's attributes are on the device.
    ///
    /// # Errors
    /// The error of the device. Written bytes may then be lost, even if a later call succeeds.
    pub async fn sync_all(&self) -> io::Result<()> {
        drop(self.wait_for_cursor_calls().await?);
        self.plain(None, |fd| FileCall::Sync { fd, data_only: false }).await
    }

    /// Like [`sync_all`](Self::sync_all), but without attributes that are not needed to read the
    /// data back, such as timestamps.
    ///
    /// # Errors
    /// The errors of [`sync_all`](Self::sync_all).
    pub async fn sync_data(&self) -> io::Result<()> {
        drop(self.wait_for_cursor_calls().await?);
        self.plain(None, |fd| FileCall::Sync { fd, data_only: true }).await
    }

    /// Truncates the file, or extends it with zeroes that take no space on the device.
    ///
    /// # Errors
    /// `InvalidInput` for a file not open for writing, `FileTooLarge`, ….
    pub async fn set_len(&self, len: u64) -> io::Result<()> {
        self.plain(Some(Class::Modify), move |fd| FileCall::SetLen { fd, len }).await
    }

    /// Reserves space on the device, so that writes to this range cannot fail for lack of it. A
    /// shorter file grows to the end of the range.
    ///
    /// # Errors
    /// `StorageFull`; `Unsupported` if the file system cannot reserve space.
    pub async fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.plain(None, move |fd| FileCall::Allocate { fd, mode: 0, offset, len }).await
    }

    /// Advises the kernel how the file will be used, so that it reads ahead or drops pages. A
    /// length of 0 means up to the end.
    ///
    /// # Errors
    /// `InvalidInput` for a pipe, or a length of 4 GiB or more.
    pub async fn advise(&self, offset: u64, len: u64, advice: Advice) -> io::Result<()> {
        let len = u32::try_from(len).map_err(|_| {
            let text = format!("cannot advise on {len} bytes at a time (at most {})", u32::MAX);
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let advice = advice as u32;
        self.plain(None, move |fd| FileCall::Advise { fd, offset, len, advice }).await
    }

    /// Changes the file's permissions for later opens.
    ///
    /// # Errors
    /// `PermissionDenied`, ….
    pub async fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        let mode = permissions.mode() & 0o7777;
        self.plain(Some(Class::Modify), move |fd| FileCall::SetModeOf { fd, mode }).await
    }

    /// Returns the metadata of the file.
    ///
    /// # Errors
    /// The system's error. Also fails outside a runtime.
    pub async fn metadata(&self) -> io::Result<Metadata> {
        let args = Stat { path: c"".into(), flags: AT_EMPTY_PATH, stat: Box::default() };
        let (answer, Stat { stat, .. }) = self.site(Class::Query, 0, false).make(args).await;
        answer.map(|_| Metadata::new(*stat))
    }

    /// Returns the alignment that direct I/O needs. If the kernel does not report it (before 6.1,
    /// or for a file without direct I/O), both values are 4096 bytes, which suits every device.
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata).
    pub async fn alignment(&self) -> io::Result<Alignment> {
        let (memory, offset) = self.metadata().await?.direct_alignment().unwrap_or((4096, 4096));
        Ok(Alignment { memory: memory as usize, offset: u64::from(offset) })
    }

    /// Returns another handle to the same open file. Both share the cursor, the locks and the
    /// descriptor, which is closed with the last handle.
    ///
    /// # Errors
    /// Never fails at present. It returns a `Result` as in `std`.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { open: self.open.clone(), ..*self })
    }

    /// Moves the cursor and returns its new offset.
    ///
    /// # Errors
    /// `InvalidInput` for an offset before the start; an error for a file without offsets, such as
    /// a pipe.
    pub async fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        consume_budget().await;
        let (offset, origin) = match to {
            SeekFrom::Start(offset) => (check_offset(offset)? as i64, 0),
            SeekFrom::Current(offset) => (offset, 1),
            SeekFrom::End(offset) => (offset, 2),
        };
        self.seek_from(offset, origin).await
    }

    /// Moves the cursor relative to an origin (`SEEK_*`) and returns its new offset.
    pub(super) async fn seek_from(&self, offset: i64, origin: u32) -> io::Result<u64> {
        let guard = self.wait_for_cursor_calls().await?;
        let args = Seek { offset, origin, position: Box::default(), _guard: guard };
        let (answer, Seek { position, .. }) = self.site(Class::Query, 0, false).make(args).await;
        answer.map(|_| *position)
    }

    /// Returns true if the file has a cursor, unlike a pipe or a terminal.
    pub(crate) fn has_cursor(&self) -> bool {
        self.open.is_ordinary()
    }

    /// Returns true if bytes written at an offset are stored at that offset.
    pub(crate) fn writes_at_offsets(&self) -> bool {
        self.has_cursor() && !self.append
    }

    /// Waits for calls at the cursor that are in flight off the loop, including those whose futures
    /// were dropped. Returns the cursor permit if it had to wait.
    ///
    /// # Errors
    /// The error of a write whose future was dropped.
    pub(crate) async fn wait_for_cursor_calls(&self) -> io::Result<Option<CursorGuard>> {
        let guard = if self.open.is_cursor_taken() { self.cursor_guard().await } else { None };
        self.open.take_error().map(|()| guard)
    }

    /// Returns the offset of the cursor, once no call at the cursor is in flight. Returns `None` if
    /// the file has no position, as some regular files of the kernel.
    ///
    /// # Errors
    /// The error of a write whose future was dropped.
    pub(crate) async fn position(&self) -> io::Result<Option<u64>> {
        drop(self.wait_for_cursor_calls().await?);
        match self.move_cursor(0) {
            Err(error) if error.kind() == io::ErrorKind::NotSeekable => Ok(None),
            position => position.map(Some),
        }
    }

    /// Moves the cursor by `by` bytes and returns its new offset. The call is made inline, because
    /// it does not touch the device.
    pub(crate) fn move_cursor(&self, by: i64) -> io::Result<u64> {
        self.seek_inline(by, 1)
    }

    /// Moves the cursor to the position of another file's cursor.
    pub(super) fn take_cursor_of(&self, other: &Self) -> io::Result<()> {
        self.seek_inline(other.move_cursor(0)? as i64, 0).map(drop)
    }

    fn seek_inline(&self, offset: i64, origin: u32) -> io::Result<u64> {
        let mut args = Seek { offset, origin, position: Box::default(), _guard: None };
        self.site(Class::Query, 0, false).system_call(&mut args)?;
        Ok(*args.position)
    }

    /// Lets other tasks run if this turn has used up its budget for inline calls.
    pub(crate) async fn wait_for_budget(&self) {
        self.site_of(None).wait_for_budget().await;
    }

    /// Makes a call that uses no memory and returns only success or an error.
    pub(super) async fn plain(
        &self,
        class: Option<Class>,
        call: impl Fn(RawFd) -> FileCall + Unpin + 'static,
    ) -> io::Result<()> {
        let kind = class.map(|class| CallKind { device: self.device, class, bytes: 0 });
        let (answer, _) = self.site_of(kind).make(Plain(call)).await;
        answer.map(drop)
    }
}

/// Checks an offset. The kernel treats offsets above `i64::MAX` as negative, and `u64::MAX` as the
/// cursor.
pub(super) fn check_offset(offset: u64) -> io::Result<u64> {
    if i64::try_from(offset).is_ok() {
        return Ok(offset);
    }
    let text = format!("offset {offset} is out of range (at most {})", i64::MAX);
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// The arguments of a call that moves the cursor.
struct Seek {
    offset: i64,
    origin: u32,
    position: Box<u64>,
    /// The cursor permit, if calls at the cursor were in flight.
    _guard: Option<CursorGuard>,
}

// SAFETY: the call writes only to the box's memory, which does not move with the box.
unsafe impl CallArgs for Seek {
    fn call(&mut self, fd: RawFd) -> FileCall {
        let Self { offset, origin, ref mut position, .. } = *self;
        FileCall::Seek { fd, offset, origin, position: &mut **position }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("fd", &self.open.fd).field("policy", &self.policy).finish()
    }
}

/// The kind of a lock: which other locks it allows.
///
/// ```
/// use annulus::fs::{File, Lock};
///
/// # annulus::run(async {
/// # let path = std::env::temp_dir().join(format!("annulus-lock-{}", std::process::id()));
/// let held = File::create(&path).await?;
/// held.lock(Lock::Exclusive).await?;
/// let other = File::open(&path).await?; // Opened separately, as by another process.
/// let refused = other.try_lock(Lock::Shared).await.unwrap_err();
/// assert_eq!(refused.kind(), std::io::ErrorKind::WouldBlock);
/// held.unlock().await?;
/// other.try_lock(Lock::Shared).await?;
/// # annulus::fs::remove_file(&path).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lock {
    /// Allows other shared locks.
    Shared,
    /// Allows no other locks.
    Exclusive,
}

const LOCK_SH: u32 = 1;
const LOCK_EX: u32 = 2;
const LOCK_NB: u32 = 4;
pub(super) const LOCK_UN: u32 = 8;

/// Pause between two attempts to lock. It doubles from the minimum to the maximum.
const MIN_RETRY_PAUSE: Duration = Duration::from_millis(1);
const MAX_RETRY_PAUSE: Duration = Duration::from_millis(64);

impl File {
    /// Waits for a lock on the file. [`unlock`](Self::unlock) or dropping the last handle releases
    /// it.
    ///
    /// The drop unlocks before it closes the descriptor. Otherwise, a child that another thread has
    /// just forked would keep the lock until it executes its program, because it also holds the
    /// descriptor. If the descriptor has been exposed (`AsFd`) or comes from other code
    /// ([`from_std`](Self::from_std)), the drop does not unlock, because a duplicate may keep the
    /// lock.
    ///
    /// No event reports that another process has released its lock, so this retries at intervals of
    /// at most 64 ms without blocking a thread. If the future is dropped while an attempt is in
    /// flight off the loop, the file may still become locked. [`unlock`](Self::unlock) and the drop
    /// release that lock too.
    ///
    /// If the file is locked through this handle or a clone, the new lock replaces the old one, but
    /// not in one step, as with `flock(2)`: while this waits, the file is not locked, and other
    /// processes may lock and change it. Otherwise, two holders of shared locks that both wait for
    /// the exclusive one would wait forever. If this fails or its future is dropped, the old lock
    /// may be lost.
    ///
    /// # Errors
    /// `Unsupported` if the file system has no locks, ….
    pub async fn lock(&self, lock: Lock) -> io::Result<()> {
        let mut pause = MIN_RETRY_PAUSE;
        while !self.attempt_lock(lock).await? {
            // The failed attempt has released any earlier lock.
            self.open.held_lock.set(None);
            sleep(pause).await;
            pause = (pause * 2).min(MAX_RETRY_PAUSE);
        }
        Ok(())
    }

    /// Locks the file if possible now.
    ///
    /// If the file is locked through this handle or a clone, the new lock replaces the old one.
    /// Linux releases the old lock before it tries the new one. If the new one is refused, this
    /// takes the old one again, so after `WouldBlock` the file is locked as before. But another
    /// process may have locked and changed the file in between. If its lock prevents this from
    /// taking the old one, the file is no longer locked. Locks that the program has taken through
    /// the descriptor (`AsFd`) are not known here, and are lost. So may be the old lock if the
    /// future is dropped.
    ///
    /// # Errors
    /// The errors of [`lock`](Self::lock); `WouldBlock` if another lock prevents this;
    /// `ResourceBusy` if the old lock has also been lost.
    pub async fn try_lock(&self, lock: Lock) -> io::Result<()> {
        let held = self.open.held_lock.get();
        if self.attempt_lock(lock).await? {
            return Ok(());
        }
        self.open.held_lock.set(None);
        if let Some(held) = held.filter(|held| *held != lock) {
            self.retake(held).await?;
        }
        let text = "the file is locked, by another process or by another handle of this one";
        Err(io::Error::new(io::ErrorKind::WouldBlock, text))
    }

    /// Takes a lock again that was released to try another one.
    async fn retake(&self, lock: Lock) -> io::Result<()> {
        if self.attempt_lock(lock).await? {
            return Ok(());
        }
        let text = "the file is no longer locked: another process locked it while this one tried a different lock";
        Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
    }

    /// Locks the file if possible now. After a refusal, a lock of the other kind is lost.
    async fn attempt_lock(&self, lock: Lock) -> io::Result<bool> {
        let operation = match lock {
            Lock::Shared => LOCK_SH | LOCK_NB,
            Lock::Exclusive => LOCK_EX | LOCK_NB,
        };
        match self.flock(operation).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            locked => locked.map(|()| {
                self.open.held_lock.set(Some(lock));
                true
            }),
        }
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// The errors of [`lock`](Self::lock).
    pub async fn unlock(&self) -> io::Result<()> {
        // Also if the future is dropped: a lock that is to be released is never taken again.
        self.open.held_lock.set(None);
        self.flock(LOCK_UN).await
    }

    async fn flock(&self, operation: u32) -> io::Result<()> {
        self.open.may_be_locked.set(operation != LOCK_UN || self.open.may_be_locked.get());
        self.plain(Some(Class::Modify), move |fd| FileCall::Lock { fd, operation }).await
    }
}
