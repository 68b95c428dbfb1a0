//! Readiness of descriptors that code of other crates reads and writes.

use crate::base::budget;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::slots::polls::Interest;
use annulus_kernel::descriptor;
use rustix::fs::FileType;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Waits until a descriptor is ready, so that code that is not of this crate can use it without blocking: inotify, an eventfd, a timerfd,
/// netlink, a TUN device, the socket of `libpq` or of X11.
///
/// Nothing is read or written by this. So none of its futures loses anything when dropped: bytes to be read still are there. The
/// descriptor should be non-blocking (`O_NONBLOCK`): readiness is a hint, and another process that shares it may be quicker.
///
/// The runtime polls a duplicate of the descriptor, when a task waits, for what is so at that moment. So it need not be read until it
/// is empty, several of these may have the same descriptor, and that may be one of a socket of this crate. It stays open until this is
/// dropped.
///
/// Any number of tasks may wait for each direction; all of them are woken. A descriptor that is always ready takes of the task's budget,
/// so that the other tasks run.
///
/// ```
/// use annulus::io::AsyncFd;
/// use rustix::event::{EventfdFlags, eventfd};
/// use rustix::io::{read, write};
///
/// # annulus::run(async {
/// let counter = AsyncFd::new(eventfd(0, EventfdFlags::NONBLOCK)?)?;
/// write(&counter, &7_u64.to_ne_bytes())?; // As another thread would, or the kernel.
/// let mut value = [0; 8];
/// loop {
///     let mut guard = counter.readable().await?;
///     // Clears the readiness if the read would block: then the next `readable` waits.
///     if let Ok(outcome) = guard.try_io(|fd| Ok(read(fd, &mut value)?)) {
///         outcome?;
///         break;
///     }
/// }
/// assert_eq!(u64::from_ne_bytes(value), 7);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct AsyncFd<T: AsFd> {
    /// Dropped first.
    polled: Polled,
    inner: T,
}

/// The poll of a descriptor, which ends when this is dropped.
struct Polled {
    core: Rc<Core>,
    slot: u32,
    /// The duplicate, closed behind the poll; `None` if the owner's descriptor is polled.
    _duplicate: Option<OwnedFd>,
}

impl Drop for Polled {
    fn drop(&mut self) {
        if let Ok(mut inner) = self.core.enter() {
            let inner = &mut *inner;
            inner.polls.drop_poll(&mut inner.io, self.slot);
        }
    }
}

impl<T: AsFd> AsyncFd<T> {
    /// Waits for this descriptor.
    ///
    /// # Errors
    /// `InvalidInput` for a regular file or a directory, which are always ready, however long a read takes: [`File`](crate::fs::File)
    /// reads those. Out of descriptors; outside a runtime; `Unsupported` under a simulated kernel.
    pub fn new(inner: T) -> io::Result<Self> {
        let core = current::get()?;
        if !core.kernel.real_descriptors() {
            let text = "a real descriptor cannot be awaited in a simulation";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let fd = inner.as_fd();
        check(fd)?;
        let duplicate = descriptor::duplicate(fd)?;
        let slot = core.enter()?.polls.add(duplicate.as_fd(), "for a descriptor");
        Ok(Self { polled: Polled { core, slot, _duplicate: Some(duplicate) }, inner })
    }

    /// Waits for a descriptor of this crate, which stays the same and is used for nothing else, so that it needs no duplicate.
    pub(crate) fn of_own(core: Rc<Core>, inner: T, what: &'static str) -> io::Result<Self> {
        let slot = core.enter()?.polls.add(inner.as_fd(), what);
        Ok(Self { polled: Polled { core, slot, _duplicate: None }, inner })
    }

    /// Waits until something can be read, or the end or an error is there. Ready at once if it was before, and the readiness was not
    /// [cleared](ReadyGuard::clear_ready).
    ///
    /// Cancel-safe.
    ///
    /// # Errors
    /// Why the descriptor cannot be polled; or after the runtime's end.
    pub async fn readable(&self) -> io::Result<ReadyGuard<'_, T>> {
        poll_fn(|cx| self.poll_read_ready(cx)).await
    }

    /// Waits until something can be written, or an error is there; otherwise as [`readable`](Self::readable).
    ///
    /// # Errors
    /// As [`readable`](Self::readable).
    pub async fn writable(&self) -> io::Result<ReadyGuard<'_, T>> {
        poll_fn(|cx| self.poll_write_ready(cx)).await
    }

    /// As [`readable`](Self::readable), by polling. Every task that polled is woken.
    ///
    /// # Errors
    /// As [`readable`](Self::readable).
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<ReadyGuard<'_, T>>> {
        self.poll_ready(Interest::Readable, cx)
    }

    /// As [`writable`](Self::writable), by polling. Every task that polled is woken.
    ///
    /// # Errors
    /// As [`writable`](Self::writable).
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<ReadyGuard<'_, T>>> {
        self.poll_ready(Interest::Writable, cx)
    }

    pub(crate) fn poll_ready(
        &self,
        interest: Interest,
        cx: &Context<'_>,
    ) -> Poll<io::Result<ReadyGuard<'_, T>>> {
        let Polled { core, slot, .. } = &self.polled;
        ready!(budget::poll_with(cx, || {
            let inner = &mut *core.enter_running()?;
            inner.polls.poll(&mut inner.io, *slot, interest, cx)
        }))?;
        Poll::Ready(Ok(ReadyGuard { fd: self, interest }))
    }

    /// Calls `io`, at once. If that would block, the direction is not ready.
    ///
    /// # Errors
    /// The errors of `io`, `WouldBlock` among them.
    pub fn try_io<R>(
        &self,
        interest: Interest,
        io: impl FnOnce(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        let outcome = io(&self.inner);
        self.note(interest, &outcome);
        outcome
    }

    /// As [`try_io`](Self::try_io), for code that changes the object that has the descriptor.
    ///
    /// # Errors
    /// As [`try_io`](Self::try_io).
    pub fn try_io_mut<R>(
        &mut self,
        interest: Interest,
        io: impl FnOnce(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        let outcome = io(&mut self.inner);
        self.note(interest, &outcome);
        outcome
    }

    /// Waits until the descriptor is ready and calls `io`, again and again until that does not fail with `WouldBlock`.
    ///
    /// As cancel-safe as `io`: it is not called without its result being returned, but for one that would block.
    ///
    /// # Errors
    /// The errors of `io`, but `WouldBlock`; and as [`readable`](Self::readable).
    pub async fn async_io<R>(
        &self,
        interest: Interest,
        mut io: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            let mut guard = poll_fn(|cx| self.poll_ready(interest, cx)).await?;
            if let Ok(outcome) = guard.try_io(|fd| io(&fd.inner)) {
                return outcome;
            }
        }
    }

    /// As [`async_io`](Self::async_io), for code that changes the object that has the descriptor.
    ///
    /// # Errors
    /// As [`async_io`](Self::async_io).
    pub async fn async_io_mut<R>(
        &mut self,
        interest: Interest,
        mut io: impl FnMut(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            poll_fn(|cx| self.poll_ready(interest, cx).map_ok(drop)).await?;
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
        if let Ok(mut inner) = self.polled.core.enter() {
            inner.polls.clear(self.polled.slot, interest);
        }
    }

    /// The object that has the descriptor.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// The object that has the descriptor. If another is put in its place, the first one is waited for all the same.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// The object that has the descriptor, which is no longer waited for.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

/// # Errors
/// `InvalidInput` for a descriptor that epoll refuses since it is always ready.
fn check(fd: BorrowedFd<'_>) -> io::Result<()> {
    let (what, instead) = match descriptor::file_type(fd)? {
        FileType::RegularFile => ("a regular file", "fs::File"),
        FileType::Directory => ("a directory", "fs::Dir"),
        _ => return Ok(()),
    };
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

/// A direction of an [`AsyncFd`] that is ready, until that is cleared.
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
    /// Calls `io`. If that would block, the direction is not ready.
    ///
    /// # Errors
    /// [`TryIoError`] if `io` has failed with `WouldBlock`; else its outcome is in the `Ok`.
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

    /// The direction is not ready: the next wait polls the descriptor again. Nothing is lost if it is.
    pub fn clear_ready(&mut self) {
        self.fd.clear(self.interest);
    }
}

impl<T: AsFd> fmt::Debug for ReadyGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadyGuard({:?})", self.interest)
    }
}

/// The call would have blocked: the descriptor was not ready after all.
#[derive(Debug)]
pub struct TryIoError(());

impl fmt::Display for TryIoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call would block: wait until the descriptor is ready again")
    }
}

impl Error for TryIoError {}
