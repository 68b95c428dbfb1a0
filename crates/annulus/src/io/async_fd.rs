//! Readiness of descriptors that other code reads and writes.

use super::Interest;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::slots::polls::PollSide;
use crate::tasks::budget;
use crate::waiters::{Wait, WaiterId};
use annulus_kernel::descriptor;
use rustix::fs::FileType;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Waits for the readiness of a descriptor that other code reads and writes: inotify, an eventfd, a
/// timerfd, netlink, a TUN device, or the socket of `libpq` or X11.
///
/// This type reads and writes nothing, so dropping one of its futures loses nothing. The descriptor
/// should be non-blocking (`O_NONBLOCK`): readiness is a hint, and another process that shares the
/// descriptor may take the data first.
///
/// When a task waits, the runtime polls a duplicate of the descriptor for its readiness at that
/// moment, not for a change. A task may therefore leave data unread, and several `AsyncFd`s may
/// share one descriptor, which may belong to a socket of this crate. An `AsyncFd` keeps its
/// descriptor open until it is dropped.
///
/// Any number of tasks may wait for each direction, and all of them are woken. Waiting for a
/// descriptor that is always ready consumes the task's budget, so other tasks can run.
///
/// An [`Interest`] does not include *priority* events (`POLLPRI`), such as urgent data of a TCP
/// connection, a changed GPIO value in `/sys`, or a trigger of pressure stall information in
/// `/proc/pressure`. To wait for one of these, [put the descriptor into an epoll
/// instance](#priority-events), which is itself readable while it has an event.
///
/// ```
/// use annulus::io::AsyncFd;
/// use rustix::event::{EventfdFlags, eventfd};
/// use rustix::io::{read, write};
///
/// # annulus::run(async {
/// let counter = AsyncFd::new(eventfd(0, EventfdFlags::NONBLOCK)?)?;
/// write(&counter, &7_u64.to_ne_bytes())?; // As another thread or the kernel would do.
/// let mut value = [0; 8];
/// loop {
///     let mut guard = counter.readable().await?;
///     // Clears the readiness if the read would block, so that the next `readable` waits.
///     if let Ok(outcome) = guard.try_io(|fd| Ok(read(fd, &mut value)?)) {
///         outcome?;
///         break;
///     }
/// }
/// assert_eq!(u64::from_ne_bytes(value), 7);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # Priority events
/// The following program waits for a byte that is sent out of band:
///
/// ```
/// use annulus::io::AsyncFd;
/// use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
/// use rustix::net::{RecvFlags, SendFlags, recv, send};
/// use std::net::{TcpListener, TcpStream};
///
/// # annulus::run(async {
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let client = TcpStream::connect(listener.local_addr()?)?;
/// let (server, _) = listener.accept()?;
///
/// let urgent = epoll::create(CreateFlags::CLOEXEC)?;
/// epoll::add(&urgent, &server, EventData::new_u64(0), EventFlags::PRI)?;
/// let urgent = AsyncFd::new(urgent)?;
/// send(&client, b"ordinary", SendFlags::empty())?;
/// send(&client, b"!", SendFlags::OOB)?;
/// urgent.readable().await?.clear_ready();
/// let mut byte = [0];
/// recv(&server, &mut byte, RecvFlags::OOB)?;
/// assert_eq!(byte, *b"!");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct AsyncFd<T: AsFd> {
    /// Dropped first, so that the poll ends before its descriptor can be closed.
    polled: Polled,
    inner: T,
}

/// Ends the poll when it is dropped.
struct Polled {
    core: Rc<Core>,
    slot: u32,
    /// Keeps the duplicate open until the poll has ended. `None` if the original descriptor is
    /// polled.
    _duplicate: Option<OwnedFd>,
}

impl Drop for Polled {
    fn drop(&mut self) {
        self.core.if_alive(|inner| inner.polls.drop_poll(&mut inner.state, self.slot));
    }
}

impl Polled {
    /// Returns `Ready` with the directions that are ready, once one is.
    fn poll(
        &self,
        interest: Interest,
        cx: &Context<'_>,
        mut wait: FdWait<'_>,
    ) -> Poll<io::Result<Interest>> {
        budget::poll_with(cx, || {
            let inner = &mut *self.core.borrow_running()?;
            interest.poll_sides(|side| {
                inner.polls.poll(&mut inner.state, self.slot, side, wait.of(side), cx)
            })
        })
    }
}

/// How a task waits for both directions: see [`Wait`].
enum FdWait<'a> {
    InLine(&'a mut Ids),
    Polling,
    Alone,
}

impl FdWait<'_> {
    fn of(&mut self, side: PollSide) -> Wait<'_> {
        match self {
            Self::InLine(ids) => Wait::InLine(&mut ids[side as usize]),
            Self::Polling => Wait::Polling,
            Self::Alone => Wait::Alone,
        }
    }
}

/// The places of a future in the lines of both directions, by [`PollSide`].
type Ids = [Option<WaiterId>; 2];

/// The places of a future, which leaves the lines when it is dropped.
struct InLine<'a> {
    polled: &'a Polled,
    ids: Ids,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let Self { polled: Polled { core, slot, .. }, ids } = self;
        if ids.iter().any(Option::is_some) {
            let lines = [PollSide::Readable, PollSide::Writable].into_iter().zip(ids);
            core.if_alive(|inner| {
                lines.for_each(|(side, id)| {
                    inner.polls.leave(&mut inner.state, *slot, side, Wait::InLine(id));
                });
            });
        }
    }
}

impl<T: AsFd> AsyncFd<T> {
    /// Prepares to wait for this descriptor.
    ///
    /// # Errors
    /// `InvalidInput` for a regular file or a directory that is always ready: use
    /// [`File`](crate::fs::File) for a file. Some files of the system, such as `/proc/kmsg` and
    /// `trace_pipe`, can be waited for. `Unsupported` on a simulated kernel. Creating one also fails
    /// outside a runtime, and if the process has no free descriptor.
    pub fn new(inner: T) -> io::Result<Self> {
        let core = current::get()?;
        core.require_real("a simulation cannot wait for a real descriptor")?;
        let fd = inner.as_fd();
        check(fd)?;
        let duplicate = descriptor::duplicate(fd)?;
        let slot = core.borrow()?.polls.add(duplicate.as_fd(), "for a descriptor");
        Ok(Self { polled: Polled { core, slot, _duplicate: Some(duplicate) }, inner })
    }

    /// Like [`new`](Self::new), but polls the descriptor itself instead of a duplicate. The caller
    /// guarantees that `inner` keeps this descriptor and that no other code polls or closes it.
    pub(crate) fn of_own(core: Rc<Core>, inner: T, what: &'static str) -> io::Result<Self> {
        let slot = core.borrow()?.polls.add(inner.as_fd(), what);
        Ok(Self { polled: Polled { core, slot, _duplicate: None }, inner })
    }

    /// Waits until a read would return bytes, the end or an error. Returns at once if the
    /// descriptor was ready before and the readiness has not been
    /// [cleared](ReadyGuard::clear_ready).
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    /// If the descriptor cannot be polled, or if the loop of its runtime is not running.
    pub async fn readable(&self) -> io::Result<ReadyGuard<'_, T>> {
        self.ready(Interest::READABLE).await
    }

    /// Like [`readable`](Self::readable), but waits until bytes can be written or an error is
    /// pending.
    ///
    /// # Errors
    /// The errors of [`readable`](Self::readable).
    pub async fn writable(&self) -> io::Result<ReadyGuard<'_, T>> {
        self.ready(Interest::WRITABLE).await
    }

    /// Like [`readable`](Self::readable), but waits for any direction of `interest`. The guard has
    /// the directions that are ready.
    ///
    /// ```
    /// use annulus::io::{AsyncFd, Interest};
    /// use std::os::unix::net::UnixStream;
    ///
    /// # annulus::run(async {
    /// let (one, _other) = UnixStream::pair()?;
    /// let one = AsyncFd::new(one)?;
    /// let guard = one.ready(Interest::READABLE | Interest::WRITABLE).await?;
    /// assert_eq!(guard.interest(), Interest::WRITABLE); // No bytes have arrived.
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The errors of [`readable`](Self::readable).
    pub async fn ready(&self, interest: Interest) -> io::Result<ReadyGuard<'_, T>> {
        let mut line = InLine { polled: &self.polled, ids: [None; 2] };
        let ready = poll_fn(|cx| self.polled.poll(interest, cx, FdWait::InLine(&mut line.ids)));
        Ok(ReadyGuard { fd: self, interest: ready.await? })
    }

    /// Polls like [`readable`](Self::readable). Every task that has polled is woken.
    ///
    /// # Errors
    /// The errors of [`readable`](Self::readable).
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<ReadyGuard<'_, T>>> {
        self.poll_ready(Interest::READABLE, cx)
    }

    /// Polls like [`writable`](Self::writable). Every task that has polled is woken.
    ///
    /// # Errors
    /// The errors of [`writable`](Self::writable).
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<ReadyGuard<'_, T>>> {
        self.poll_ready(Interest::WRITABLE, cx)
    }

    fn poll_ready(
        &self,
        interest: Interest,
        cx: &Context<'_>,
    ) -> Poll<io::Result<ReadyGuard<'_, T>>> {
        let interest = ready!(self.polled.poll(interest, cx, FdWait::Polling))?;
        Poll::Ready(Ok(ReadyGuard { fd: self, interest }))
    }

    /// Polls until a read would return bytes, the end or an error, and then clears the readiness.
    /// Only the task that has polled last is woken.
    pub(crate) fn poll_read_edge(&mut self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let interest = ready!(self.polled.poll(Interest::READABLE, cx, FdWait::Alone))?;
        self.clear(interest);
        Poll::Ready(Ok(()))
    }

    /// Calls `io` without waiting. If it fails with `WouldBlock`, marks the directions of
    /// `interest` as not ready.
    ///
    /// # Errors
    /// The errors of `io`, including `WouldBlock`.
    pub fn try_io<R>(
        &self,
        interest: Interest,
        io: impl FnOnce(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        let outcome = io(&self.inner);
        self.note(interest, &outcome);
        outcome
    }

    /// Like [`try_io`](Self::try_io), but for code that changes the object that owns the
    /// descriptor.
    ///
    /// # Errors
    /// The errors of [`try_io`](Self::try_io).
    pub fn try_io_mut<R>(
        &mut self,
        interest: Interest,
        io: impl FnOnce(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        let outcome = io(&mut self.inner);
        self.note(interest, &outcome);
        outcome
    }

    /// Waits until the descriptor is ready and calls `io`, and repeats this until `io` does not
    /// fail with `WouldBlock`.
    ///
    /// Cancel-safe if `io` is: its result is returned without another wait.
    ///
    /// # Errors
    /// The errors of `io`, except `WouldBlock`, and the errors of [`readable`](Self::readable).
    pub async fn async_io<R>(
        &self,
        interest: Interest,
        mut io: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            let mut guard = self.ready(interest).await?;
            if let Ok(outcome) = guard.try_io(|fd| io(&fd.inner)) {
                return outcome;
            }
        }
    }

    /// Like [`async_io`](Self::async_io), but for code that changes the object that owns the
    /// descriptor.
    ///
    /// # Errors
    /// The errors of [`async_io`](Self::async_io).
    pub async fn async_io_mut<R>(
        &mut self,
        interest: Interest,
        mut io: impl FnMut(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            drop(self.ready(interest).await?);
            match self.try_io_mut(interest, &mut io) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
        }
    }

    fn note<R>(&self, interest: Interest, outcome: &io::Result<R>) {
        if matches!(outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.clear(interest);
        }
    }

    fn clear(&self, interest: Interest) {
        let Polled { core, slot, .. } = &self.polled;
        core.if_alive(|inner| interest.sides().for_each(|side| inner.polls.clear(*slot, side)));
    }

    /// Returns the object that owns the descriptor.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns the object that owns the descriptor. If it is replaced, waits still refer to the
    /// original descriptor.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Stops waiting, and returns the object that owns the descriptor.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

/// Refuses regular files and directories that are always ready, because epoll cannot wait for them.
fn check(fd: BorrowedFd<'_>) -> io::Result<()> {
    let (what, instead) = match descriptor::file_type(fd)? {
        FileType::RegularFile => ("a regular file", "fs::File"),
        FileType::Directory => ("a directory", "fs::Dir"),
        _ => return Ok(()),
    };
    if descriptor::can_wait(fd) {
        return Ok(());
    }
    let number = fd.as_raw_fd();
    let text = format!("descriptor {number} is {what}, which is always ready: use {instead}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

impl<T: AsFd> AsFd for AsyncFd<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl<T: AsFd> AsRawFd for AsyncFd<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for AsyncFd<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncFd").field(&self.inner).finish()
    }
}

/// Directions in which an [`AsyncFd`] is ready. They stay ready until they are cleared.
///
/// ```
/// use annulus::io::AsyncFd;
/// use std::io::Write;
/// use std::os::unix::net::UnixStream;
///
/// # annulus::run(async {
/// let (one, other) = UnixStream::pair()?;
/// one.set_nonblocking(true)?;
/// let one = AsyncFd::new(one)?;
/// let sent = loop {
///     match one.writable().await?.try_io(|fd| fd.get_ref().write(b"hello")) {
///         Ok(outcome) => break outcome?,
///         Err(_would_block) => {} // Waits again.
///     }
/// };
/// assert_eq!(sent, 5);
/// # drop(other);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[must_use = "the direction stays ready until this clears it"]
pub struct ReadyGuard<'a, T: AsFd> {
    fd: &'a AsyncFd<T>,
    interest: Interest,
}

impl<'a, T: AsFd> ReadyGuard<'a, T> {
    /// Calls `io`. If it fails with `WouldBlock`, marks these directions as not ready.
    ///
    /// # Errors
    /// [`TryIoError`] if `io` failed with `WouldBlock`. Any other result of `io` is inside the
    /// `Ok`.
    pub fn try_io<R>(
        &mut self,
        io: impl FnOnce(&'a AsyncFd<T>) -> io::Result<R>,
    ) -> Result<io::Result<R>, TryIoError> {
        match io(self.fd) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.clear_ready();
                Err(TryIoError(()))
            }
            outcome => Ok(outcome),
        }
    }

    /// Returns the directions that are ready.
    pub fn interest(&self) -> Interest {
        self.interest
    }

    /// Marks these directions as not ready, so that the next wait polls the descriptor again. If
    /// the descriptor is still ready, that wait ends at once.
    pub fn clear_ready(&mut self) {
        self.fd.clear(self.interest);
    }
}

impl<T: AsFd> fmt::Debug for ReadyGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadyGuard({:?})", self.interest)
    }
}

/// The error of a call that would have blocked: the descriptor was not ready after all.
#[derive(Debug)]
pub struct TryIoError(());

impl fmt::Display for TryIoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call would block: wait until the descriptor is ready again")
    }
}

impl Error for TryIoError {}
