//! The handle on a mailbox, and everything that one does to datagrams through it, whatever their family.

use super::stream_handle::NewFd;
use crate::chunk::Chunk;
use crate::runtime::core::Core;
use crate::slots::datagrams::{Envelope, Format, Mail, Settings};
use crate::waiters::{Wait, WaiterId};
use annulus_kernel::{Fd, Kernel, SocketOption};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Owns a mailbox. Dropping it lets what was accepted go out, then closes.
pub(super) struct Postbox {
    pub(super) core: Rc<Core>,
    slot: u32,
}

impl Postbox {
    pub(super) fn new(
        core: &Rc<Core>,
        socket: NewFd,
        format: &'static Format,
        settings: Settings,
    ) -> io::Result<Self> {
        settings.check(format.domain)?;
        let slot = core.enter()?.add_mailbox(socket.fd(), format, settings)?;
        // The slot closes it from here on.
        socket.into_fd();
        Ok(Self { core: core.clone(), slot })
    }

    /// The next datagram; with `singly`, one of those that came together.
    #[inline]
    pub(super) fn recv(&self, singly: bool) -> RecvMail<'_> {
        RecvMail { postbox: self, singly, id: None }
    }

    pub(super) fn poll_recv(&self, singly: bool, cx: &Context<'_>) -> Poll<io::Result<Mail>> {
        self.core.enter_running()?.poll_mail(self.slot, singly, Wait::Polling, cx)
    }

    #[inline]
    pub(super) fn send(&self, chunk: Chunk, envelope: Envelope) -> SendMail<'_> {
        SendMail { postbox: self, letter: Some((chunk, envelope)), id: None }
    }

    /// Copies a datagram into a buffer of the runtime's own, to leave with the turn.
    pub(super) fn try_send(&self, bytes: &[u8], envelope: Envelope) -> io::Result<()> {
        let mut inner = self.core.enter_running()?;
        let mut buffer = inner.io.spares.take();
        buffer.extend_from_slice(bytes);
        inner.accept_post(self.slot, Chunk::copied(buffer), envelope)
    }

    pub(super) fn poll_send_ready(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.core.enter_running()?.poll_post_room(self.slot, Wait::Polling, cx).map(Ok)
    }

    pub(super) fn flush(&self) -> Flush<'_> {
        Flush { postbox: self, id: None }
    }

    pub(super) fn poll_flush(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.core.enter_running()?.poll_post_flush(self.slot, Wait::Polling, cx)
    }

    /// The socket has a peer from here on.
    pub(super) fn set_connected(&self) -> io::Result<()> {
        self.core.enter()?.post.boxes.get(self.slot).tx.connected = true;
        Ok(())
    }

    pub(super) fn dropped(&self) -> io::Result<u64> {
        self.core.enter()?.count_drops(self.slot)
    }

    pub(super) fn set(&self, option: SocketOption) -> io::Result<()> {
        self.with_fd(|kernel, fd| kernel.set_option(fd, option))
    }

    pub(super) fn with_fd<R>(
        &self,
        f: impl FnOnce(&dyn Kernel, Fd) -> io::Result<R>,
    ) -> io::Result<R> {
        let fd = self.core.enter()?.post.boxes.get(self.slot).fd;
        f(&*self.core.kernel, fd)
    }

    /// A future that waited for room or a flush is gone.
    #[inline]
    fn leave_post(&self, id: &mut Option<WaiterId>) {
        if id.is_some()
            && let Ok(mut inner) = self.core.enter()
        {
            inner.leave_post(self.slot, id);
        }
    }
}

impl Drop for Postbox {
    fn drop(&mut self) {
        // After the runtime's end the slot is gone already; in a forked child it is the parent's.
        if let Ok(mut inner) = self.core.enter() {
            inner.drop_mailbox(self.slot);
        }
    }
}

/// A receive that may wait. Dropped, it loses nothing: what it was woken for wakes the next one.
#[must_use = "futures do nothing unless they are awaited"]
pub(super) struct RecvMail<'a> {
    postbox: &'a Postbox,
    singly: bool,
    id: Option<WaiterId>,
}

impl Future for RecvMail<'_> {
    type Output = io::Result<Mail>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Mail>> {
        let Self { postbox, singly, id } = &mut *self;
        postbox.core.enter_running()?.poll_mail(postbox.slot, *singly, Wait::InLine(id), cx)
    }
}

impl Drop for RecvMail<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.id.is_some()
            && let Ok(mut inner) = self.postbox.core.enter()
        {
            inner.leave_mail(self.postbox.slot, &mut self.id);
        }
    }
}

/// Sends a datagram: ready once it is queued, to leave with the turn. Dropped before that, it sends nothing.
#[must_use = "a send does nothing unless awaited"]
pub struct SendMail<'a> {
    postbox: &'a Postbox,
    /// Not accepted yet.
    letter: Option<(Chunk, Envelope)>,
    id: Option<WaiterId>,
}

impl Future for SendMail<'_> {
    type Output = io::Result<()>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { postbox, letter, id } = &mut *self;
        let mut inner = postbox.core.enter_running()?;
        ready!(inner.poll_post_room(postbox.slot, Wait::InLine(id), cx));
        let (chunk, envelope) = letter.take().expect("polled after it was ready");
        Poll::Ready(inner.accept_post(postbox.slot, chunk, envelope))
    }
}

impl Drop for SendMail<'_> {
    #[inline]
    fn drop(&mut self) {
        self.postbox.leave_post(&mut self.id);
    }
}

/// Waits until everything is out.
#[must_use = "futures do nothing unless they are awaited"]
pub(super) struct Flush<'a> {
    postbox: &'a Postbox,
    id: Option<WaiterId>,
}

impl Future for Flush<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { postbox, id } = &mut *self;
        postbox.core.enter_running()?.poll_post_flush(postbox.slot, Wait::InLine(id), cx)
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        self.postbox.leave_post(&mut self.id);
    }
}

impl fmt::Debug for SendMail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendMail(accepted: {})", self.letter.is_none())
    }
}
