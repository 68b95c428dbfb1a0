//! An open descriptor, shared by the handles and the calls that use it.
#![allow(unsafe_code)]

use super::cursor::{Cursor, TakeCursor};
use super::lock::LOCK_UN;
use super::metadata::Metadata;
use crate::file_policy::PageCache;
use crate::runtime::core::Core;
use annulus_kernel::Fd;
use annulus_kernel::file::{FileCall, FileStat, PathAt};
use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

/// `statx(2)`: query the descriptor itself.
pub(super) const AT_EMPTY_PATH: u32 = 0x1000;
/// `statx(2)`: do not ask another machine.
const AT_STATX_DONT_SYNC: u32 = 0x4000;

/// A descriptor, closed once neither a handle nor a call in flight holds it.
pub(crate) struct OpenFile {
    pub(super) core: Rc<Core>,
    pub(super) fd: Fd,
    /// A number that no other open file of the runtime has.
    pub(super) serial: u64,
    /// The group of the calls on it, if they may hang.
    pub(super) group: Option<u64>,
    /// The metadata at its first use. Boxed because it is large and rarely used.
    metadata: OnceCell<Option<Box<Metadata>>>,
    pub(super) page_cache: PageCache,
    /// The queue of calls at the cursor. The first call off the loop that uses the cursor creates
    /// the queue and holds the permit.
    cursor: OnceCell<Cursor>,
    /// The error of a write whose future was dropped.
    unreported: RefCell<Option<io::Error>>,
    /// Whether a lock has been requested, which the last drop must release.
    pub(super) may_be_locked: Cell<bool>,
    /// Whether the descriptor has been exposed to the program, which may have duplicated it.
    pub(super) was_lent: Cell<bool>,
}

impl OpenFile {
    pub(super) fn new(core: Rc<Core>, fd: Fd, group: Option<u64>) -> Rc<Self> {
        let serial = core.inline_policy.next_serial();
        let (metadata, cursor, unreported) = <(OnceCell<_>, OnceCell<_>, RefCell<_>)>::default();
        let (may_be_locked, was_lent) = <(Cell<_>, Cell<_>)>::default();
        let page_cache = PageCache::new();
        Rc::new(Self {
            core,
            fd,
            serial,
            group,
            metadata,
            page_cache,
            cursor,
            unreported,
            may_be_locked,
            was_lent,
        })
    }

    /// Returns true if a call at the cursor is in flight off the loop or waits for the permit. Its
    /// future may have been dropped. The next call at the cursor comes after it.
    #[inline]
    pub(super) fn is_cursor_taken(&self) -> bool {
        self.cursor.get().is_some_and(Cursor::is_taken)
    }

    /// Returns a future that queues for the cursor at its first poll, or `None` if the file has no
    /// cursor.
    pub(super) fn queue_for_cursor(&self) -> Option<TakeCursor> {
        let new = || Cursor::new(self.core.clone());
        self.is_ordinary().then(|| self.cursor.get_or_init(new).take())
    }

    /// Stores the error of a write for the next call.
    pub(super) fn keep_error(&self, error: io::Error) {
        self.unreported.replace(Some(error));
    }

    /// Returns the error of a write whose future was dropped, once.
    #[inline]
    pub(super) fn take_error(&self) -> io::Result<()> {
        self.unreported.take().map_or(Ok(()), Err)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.raw()
    }

    /// Returns the number of its device, or zero if it has none.
    pub(super) fn device_number(&self) -> u64 {
        self.metadata().map_or(0, Metadata::dev)
    }

    /// Returns true if it has a cursor and its calls wait only for devices. Calls on a pipe or a
    /// terminal wait for the other end.
    pub(super) fn is_ordinary(&self) -> bool {
        if self.group.is_some() {
            return self.can_seek();
        }
        self.metadata().is_some_and(|metadata| metadata.is_file() || metadata.is_block_device())
    }

    /// Returns true if it has a position. Finding out does not involve the file system.
    fn can_seek(&self) -> bool {
        let mut position = 0;
        let call = FileCall::Seek { fd: self.fd(), offset: 0, origin: 1, position: &mut position };
        // SAFETY: the position outlives the call, and the descriptor is open.
        unsafe { self.core.kernel.file(&call) }.is_ok()
    }

    /// Returns the length of an ordinary file at the first use, or `None` for other files or if the
    /// file system may hang.
    pub(super) fn len(&self) -> Option<u64> {
        self.metadata().filter(|metadata| metadata.is_file()).map(Metadata::len)
    }

    /// Returns the current length of an ordinary file. A file system on another machine is not
    /// asked, so its length may be out of date.
    pub(super) fn len_now(&self) -> Option<u64> {
        if self.group.is_some() {
            return None;
        }
        let metadata = self.stat(AT_EMPTY_PATH | AT_STATX_DONT_SYNC);
        metadata.filter(Metadata::is_file).map(|metadata| metadata.len())
    }

    fn metadata(&self) -> Option<&Metadata> {
        if self.group.is_some() {
            return None;
        }
        self.metadata.get_or_init(|| self.stat(AT_EMPTY_PATH).map(Box::new)).as_deref()
    }

    fn stat(&self, flags: u32) -> Option<Metadata> {
        let mut stat = FileStat::default();
        let at = PathAt { dir: self.fd(), path: c"".as_ptr() };
        let call = FileCall::Stat { at, flags, stat: &mut stat };
        // SAFETY: path and answer outlive the call, and the descriptor is open.
        let answer = unsafe { self.core.kernel.file(&call) };
        answer.ok().map(|_| Metadata::new(stat))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.core.in_owner_process() {
            if let Some(group) = self.group {
                // The close releases a lock as well.
                self.core.close_isolated(group, self.fd);
                return self.core.inline_policy.note_close();
            }
            if self.may_be_locked.get() && !self.was_lent.get() {
                let unlock = FileCall::Lock { fd: self.fd(), operation: LOCK_UN };
                // SAFETY: the call uses no memory, and the descriptor is open.
                // If it fails, the close that follows releases the lock.
                _ = unsafe { self.core.kernel.file(&unlock) };
            }
            self.core.kernel.close(self.fd);
            self.core.inline_policy.note_close();
        }
    }
}
