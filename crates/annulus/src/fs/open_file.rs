//! An open file: its descriptor, its cursor, the calls on it that are off the loop, and writes that
//! continue after their future has been dropped.
#![allow(unsafe_code)]

use super::call::CallArgs;
use super::file::{File, LOCK_UN, Lock};
use super::metadata::Metadata;
use super::path::CWD;
use super::transfer::Write;
use crate::bytes::buf::Parked;
use crate::bytes::chunk::Chunk;
use crate::file_policy::PageCache;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::runtime::shutdown::QueuedWrite;
use crate::runtime::spawn::spawn;
use crate::slots::loop_state::{self, Recheck, RecheckQueue};
use crate::unwind::{dispose_each, wake_each};
use crate::waiters::{PermitQueue, WaiterId};
use annulus_driver::{FileStart, NO_THREAD};
use annulus_kernel::file::{CURSOR_OFFSET, FileCall, FileStat, PathAt};
use annulus_kernel::{Fd, Linux, descriptor};
use rustix::io::Errno;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

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
    /// The group of the calls on this file, if they may hang.
    pub(super) group: Option<u64>,
    /// The metadata, as of the first time that it was needed. Boxed because it is large and rarely
    /// used.
    metadata: OnceCell<Option<Box<Metadata>>>,
    pub(super) page_cache: PageCache,
    /// The queue of calls at the cursor, created by the first call that queues.
    cursor: OnceCell<Cursor>,
    /// The error of a write whose future was dropped.
    unreported: RefCell<Option<io::Error>>,
    /// Whether a lock has been requested, which the last drop must release.
    pub(super) may_be_locked: Cell<bool>,
    /// The lock that was taken last, unless it has been released or lost since.
    pub(super) held_lock: Cell<Option<Lock>>,
    /// Whether other code has had the descriptor, and may have duplicated it.
    pub(super) was_exposed: Cell<bool>,
}

impl OpenFile {
    pub(super) fn new(core: Rc<Core>, fd: Fd, group: Option<u64>) -> Rc<Self> {
        let serial = core.inline_policy.next_serial();
        let (metadata, cursor, unreported) = <(OnceCell<_>, OnceCell<_>, RefCell<_>)>::default();
        let (may_be_locked, was_exposed) = <(Cell<_>, Cell<_>)>::default();
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
            held_lock: Cell::new(None),
            was_exposed,
        })
    }

    /// Returns true if a call at the cursor is in flight off the loop or waits for the permit, even
    /// if its future was dropped. The next call at the cursor must then queue.
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

    /// Returns the number of the file's device, or zero if it is not known.
    pub(super) fn device_number(&self) -> u64 {
        self.metadata().map_or(0, Metadata::dev)
    }

    /// Returns true if the file has a cursor and calls on it wait only for devices. Calls on a pipe
    /// or a terminal wait for the other end.
    pub(super) fn is_ordinary(&self) -> bool {
        if self.group.is_some() {
            return descriptor::has_position(Linux::borrow(self.fd));
        }
        self.metadata().is_some_and(|metadata| metadata.is_file() || metadata.is_block_device())
    }

    /// Returns the length that a regular file had when its metadata was first needed. Returns
    /// `None` for other files, or if the file system may hang.
    pub(super) fn len(&self) -> Option<u64> {
        self.metadata().filter(|metadata| metadata.is_file()).map(Metadata::len)
    }

    /// Returns the current length of a regular file. Returns `None` for other files, or if the file
    /// system may hang. Does not ask a file server, so the length of a remote file may be out of
    /// date.
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
        // SAFETY: the path and the memory for the answer outlive the call, and the descriptor is
        // open.
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
            if self.may_be_locked.get() && !self.was_exposed.get() {
                let unlock = FileCall::Lock { fd: self.fd(), operation: LOCK_UN };
                // SAFETY: the call uses no memory, and the descriptor is open.
                // If the call fails, the close that follows releases the lock.
                _ = unsafe { self.core.kernel.file(&unlock) };
            }
            self.core.kernel.close(self.fd);
            self.core.inline_policy.note_close();
        }
    }
}

/// A cursor with one permit, which calls receive in the order of their requests. A clone refers to
/// the same cursor.
#[derive(Clone)]
pub(super) struct Cursor(Rc<CursorState>);

struct CursorState {
    core: Rc<Core>,
    line: RefCell<PermitQueue>,
}

impl Cursor {
    pub(super) fn new(core: Rc<Core>) -> Self {
        Self(Rc::new(CursorState { core, line: RefCell::default() }))
    }

    /// Returns true if a call holds the permit or waits for it.
    pub(super) fn is_taken(&self) -> bool {
        self.0.line.borrow().is_taken()
    }

    /// Returns a future that queues for the permit at its first poll.
    pub(super) fn take(&self) -> TakeCursor {
        TakeCursor { cursor: self.clone(), id: None }
    }

    /// Changes the queue, then notifies the next call.
    fn update<R>(&self, change: impl FnOnce(&mut PermitQueue) -> R) -> R {
        let mut line = self.0.line.borrow_mut();
        let answer = change(&mut line);
        let next = line.notify_next();
        let recheck = line.needs_recheck();
        drop(line);
        if recheck && let Ok(mut inner) = self.0.core.borrow() {
            let weak: Weak<CursorState> = Rc::downgrade(&self.0);
            inner.state.rechecks.push(Recheck::Queue(weak));
        }
        wake_each(next);
        answer
    }
}

impl RecheckQueue for CursorState {
    fn recheck(&self, wakes: &mut Vec<Waker>) -> bool {
        let mut line = self.line.borrow_mut();
        line.recheck();
        wakes.extend(line.notify_next());
        line.needs_recheck()
    }
}

/// A future that waits for a cursor. Dropping it leaves the queue.
pub(super) struct TakeCursor {
    cursor: Cursor,
    id: Option<WaiterId>,
}

impl Future for TakeCursor {
    type Output = CursorGuard;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CursorGuard> {
        let Self { cursor, id } = &mut *self;
        // Clone and drop the waker while nothing is borrowed, because both may run foreign code.
        let mut waker = Some(cx.waker().clone());
        let taken = cursor.update(|line| line.poll(id, &mut waker));
        dispose_each(waker);
        if taken { Poll::Ready(CursorGuard(cursor.clone())) } else { Poll::Pending }
    }
}

impl Drop for TakeCursor {
    fn drop(&mut self) {
        if self.id.is_some() {
            let id = &mut self.id;
            dispose_each(self.cursor.update(|line| line.leave(id)));
        }
    }
}

/// The permit of a cursor. Dropping it lets the next call use the cursor.
pub(crate) struct CursorGuard(Cursor);

impl Drop for CursorGuard {
    fn drop(&mut self) {
        self.0.update(PermitQueue::give_back);
    }
}

/// Waits for a call, then returns its result and its arguments.
///
/// If this future is dropped early, the call's slot keeps the arguments until the terminal event,
/// because the kernel may still write to their memory. If it outlives its runtime, it returns an
/// error and the arguments once no call is in flight.
pub(super) struct PendingCall<A: 'static> {
    core: Rc<Core>,
    slot: u32,
    /// `None` once the call is done.
    held: Option<Held<A>>,
}

/// The values that the call uses: its arguments and its descriptor.
struct Held<A> {
    args: Parked<A>,
    _open: Option<Rc<OpenFile>>,
}

impl<A: CallArgs + 'static> PendingCall<A> {
    pub(super) fn start(
        core: &Rc<Core>,
        args: A,
        open: Option<Rc<OpenFile>>,
        start: FileStart,
    ) -> Result<Self, (io::Error, A)> {
        // From here on the arguments may move: with this future, and into the slot if the future is
        // dropped.
        let mut args = Parked::new(args);
        // Build the call before the borrow, because this calls methods of the caller's buffers.
        let call = args.call(open.as_ref().map_or(CWD, |open| open.fd()));
        match core.borrow_running() {
            Ok(mut inner) => {
                let inner = &mut *inner;
                let held = Some(Held { args, _open: open });
                // SAFETY: by `CallArgs`, the memory and descriptors of the call stay valid as long
                // as `args` and `open` exist, even if they move. They are kept until the terminal
                // event: here, and in the slot once this is dropped.
                let slot = unsafe { inner.file_ops.start(&mut inner.state, call, start) };
                Ok(Self { core: core.clone(), slot, held })
            }
            Err(error) => Err((error, args.into_inner())),
        }
    }
}

fn call_error(errno: Errno) -> io::Error {
    if errno != NO_THREAD {
        return errno.into();
    }
    io::Error::other(
        "cannot start a worker thread for this call; raise the limit on threads (`ulimit -u`, or pids.max of the control group), or \
         make the call on the loop (Policy::Inline)",
    )
}

impl<A: Unpin + 'static> Future for PendingCall<A> {
    type Output = (io::Result<u32>, A);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let slot = self.slot;
        let polled = match self.core.borrow() {
            Ok(mut inner) => {
                let inner = &mut *inner;
                let polled = inner.file_ops.poll(&mut inner.state, slot, cx);
                polled.map(|outcome| outcome.map_err(call_error))
            }
            Err(error) if self.core.is_over() => Poll::Ready(Err(error)),
            // The kernel may still use the memory, and no event will arrive, so the arguments are
            // never returned.
            Err(_) => return Poll::Pending,
        };
        polled.map(|outcome| {
            let held = self.held.take().expect("polled after completion");
            (outcome, held.args.into_inner())
        })
    }
}

impl<A: 'static> Drop for PendingCall<A> {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        match self.core.borrow() {
            Ok(mut inner) => {
                let inner = &mut *inner;
                inner.file_ops.abandon(&mut inner.state, self.slot, Box::new(held));
            }
            Err(_) if self.core.is_over() => drop(held),
            // A forked child, or a runtime with calls still in flight: the kernel may still use the
            // memory.
            Err(_) => std::mem::forget(held),
        }
    }
}

impl File {
    /// Reports the error of a write whose future was dropped, once. Call it before taking bytes
    /// from a source for [`write_detached`](Self::write_detached). If that call reported the error,
    /// the bytes would be lost.
    ///
    /// # Errors
    /// The error of the write.
    pub(crate) fn check_dropped_writes(&self) -> io::Result<()> {
        self.open.take_error()
    }

    /// Writes a whole chunk at the cursor and moves the cursor past it, even if the future is
    /// dropped after its first poll. In that case, the next call that writes, syncs or seeks
    /// returns the error, if any. If this file uses direct I/O, `cached` is the same file opened
    /// without it. Counts the written bytes in `done`, unless the future is dropped.
    ///
    /// # Errors
    /// The errors of [`write_all`](Self::write_all).
    pub(crate) async fn write_detached(
        &self,
        chunk: Chunk,
        cached: Option<&Self>,
        done: &mut usize,
    ) -> io::Result<()> {
        if let Some(cached) = cached {
            return self.write_in_task(chunk, Some(cached.try_clone()?), done).await;
        }
        let mut args = Write { buf: chunk, done: 0, offset: CURSOR_OFFSET, guard: None };
        let written = self.try_write(&mut args);
        let mut chunk = args.buf;
        if let Some(Ok(count)) = written {
            drop(chunk.split_to(count));
            *done += count;
        }
        if chunk.is_empty() { Ok(()) } else { self.write_in_task(chunk, None, done).await }
    }

    /// Writes a chunk in a task. First queues for the cursor, so that the next call at the cursor
    /// comes after these bytes. A file without a cursor, such as a pipe, is written in order only
    /// if each write is awaited.
    async fn write_in_task(
        &self,
        chunk: Chunk,
        cached: Option<Self>,
        done: &mut usize,
    ) -> io::Result<()> {
        let mut queued = self.open.queue_for_cursor();
        let taken =
            poll_fn(|cx| Poll::Ready(queued.as_mut().map(|queued| Pin::new(queued).poll(cx))))
                .await;
        let file = self.try_clone()?;
        let core = file.open.core.clone();
        let write = async move {
            let permit = match (taken, queued) {
                (Some(Poll::Ready(permit)), _) => Some(permit),
                (_, Some(queued)) => Some(queued.await),
                (_, None) => None,
            };
            let mut count = 0;
            let written = match &cached {
                Some(cached) => {
                    let _guard = permit;
                    file.write_through(cached, chunk, &mut count).await
                }
                None => file.write_whole(chunk, |_| CURSOR_OFFSET, permit, &mut count).await.0,
            };
            if let Err(error) = written {
                file.open.keep_error(error);
            }
            count
        };
        let task = spawn(QueuedWrite::new(core, write));
        *done += task.await.map_err(|error| io::Error::other(error.to_string()))?;
        self.open.take_error()
    }
}

/// Exposes the descriptor for calls that this crate lacks. It stays open while it is borrowed. Do
/// not change `O_APPEND` or `O_DIRECT` with `fcntl(2)`: the file relies on the flags with which it
/// was opened or taken over, so later writes and copies could fail or put bytes in the wrong place.
///
/// Under a simulated kernel, it is a number that no descriptor has, so every call fails with
/// `EBADF`.
impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.open.was_exposed.set(true);
        let fd = self.open.fd;
        loop_state::borrowed_fd(self.open.core.kernel.real_descriptors().then_some(fd))
    }
}

/// Returns the number of the descriptor: see `AsFd`.
impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Takes over an open file, which need not be a regular file.
///
/// # Errors
/// Outside a runtime; `Unsupported` under a simulated kernel. The file is closed if the call fails.
impl TryFrom<OwnedFd> for File {
    type Error = io::Error;

    fn try_from(file: OwnedFd) -> io::Result<Self> {
        let core = current::get()?;
        core.require_real("a real file cannot be used in a simulation")?;
        let flags = descriptor::flags(&file)?;
        // SAFETY: `into_raw_fd` gives up the only owner of an open descriptor.
        let fd = unsafe { Fd::from_raw(file.into_raw_fd()) };
        let place = core.inline_policy.place_of_file(fd);
        let policy = core.inline_policy.default;
        let open = OpenFile::new(core, fd, place.group());
        // Other code may have duplicates, and share a lock through them.
        open.was_exposed.set(true);
        Ok(Self::new(open, place.device(), flags, policy))
    }
}
