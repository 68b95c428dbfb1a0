//! The handle on a datagram socket's slot, and the futures that wait on it, for all families.

use super::new_fd::NewFd;
use crate::base::budget;
use crate::bytes::chunk::Chunk;
use crate::bytes::lease::Lease;
use crate::runtime::core::Core;
use crate::slots::datagrams::{Format, ReceivedMessage, SendMeta, Settings};
use crate::waiters::{Wait, WaiterId};
use annulus_kernel::{Fd, Kernel};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Owns a datagram socket's slot. When it is dropped, accepted datagrams are still sent, then the socket closes.
pub(super) struct DatagramHandle {
    pub(super) core: Rc<Core>,
    slot: u32,
}

impl DatagramHandle {
    pub(super) fn new(
        core: &Rc<Core>,
        socket: NewFd,
        format: &'static Format,
        settings: Settings,
    ) -> io::Result<Self> {
        settings.check(format.domain)?;
        let inner = &mut *core.enter()?;
        let slot = inner.datagrams.add(&mut inner.io, socket.fd(), format, settings)?;
        // The slot closes it from now on.
        socket.into_fd();
        Ok(Self { core: core.clone(), slot })
    }

    /// Waits for what `poll` receives.
    #[inline]
    pub(super) fn recv<T>(
        &self,
        poll: impl Fn(&Self, Wait<'_>, &Context<'_>) -> Poll<io::Result<T>> + Unpin,
    ) -> impl Future<Output = io::Result<T>> {
        RecvDatagram { handle: self, poll, id: None }
    }

    /// The next message; with `split`, one datagram of those that the kernel coalesced.
    #[inline]
    pub(super) fn poll_recv(
        &self,
        split: bool,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<ReceivedMessage>> {
        let inner = &mut *self.core.enter_running()?;
        let (slot, shared) = inner.datagrams.get(self.slot);
        slot.poll_recv(shared, &mut inner.io, split, wait, cx)
    }

    /// The next datagram and its sender, on an internet socket.
    #[inline]
    pub(super) fn poll_recv_from(
        &self,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<(Lease, SocketAddr)>> {
        let inner = &mut *self.core.enter_running()?;
        let (slot, shared) = inner.datagrams.get(self.slot);
        slot.poll_recv_from(shared, &mut inner.io, wait, cx)
    }

    pub(super) fn poll_readable(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        budget::poll_with(cx, || {
            let inner = &mut *self.core.enter_running()?;
            let (slot, shared) = inner.datagrams.get(self.slot);
            slot.poll_readable(shared, &mut inner.io, cx)
        })
    }

    pub(super) fn try_recv(&self) -> io::Result<ReceivedMessage> {
        let inner = &mut *self.core.enter_running()?;
        let (slot, shared) = inner.datagrams.get(self.slot);
        slot.try_recv(shared, &mut inner.io)
    }

    #[inline]
    pub(super) fn send(&self, chunk: Chunk, meta: SendMeta) -> SendDatagram<'_> {
        SendDatagram { handle: self, datagram: Some((chunk, meta)), id: None }
    }

    /// Sends a datagram at once, or copies it, to leave with the turn.
    pub(super) fn try_send(&self, bytes: &[u8], meta: SendMeta) -> io::Result<()> {
        let inner = &mut *self.core.enter_running()?;
        let (slot, shared) = inner.datagrams.get(self.slot);
        slot.try_send_borrowed(shared, &mut inner.io, bytes, meta)
    }

    pub(super) fn poll_send_ready(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        budget::poll_with(cx, || {
            let inner = &mut *self.core.enter_running()?;
            let (slot, shared) = inner.datagrams.get(self.slot);
            slot.poll_send_ready(shared, &mut inner.io, Wait::Polling, cx).map(Ok)
        })
    }

    pub(super) fn drain(&self) -> Drain<'_> {
        Drain { handle: self, id: None }
    }

    pub(super) fn poll_drain(&self, wait: Wait<'_>, cx: &Context<'_>) -> Poll<io::Result<()>> {
        budget::poll_with(cx, || {
            let inner = &mut *self.core.enter_running()?;
            let (slot, _) = inner.datagrams.get(self.slot);
            slot.poll_drain(&mut inner.io, wait, cx)
        })
    }

    /// The socket has a peer from now on.
    pub(super) fn set_connected(&self) -> io::Result<()> {
        self.core.enter()?.datagrams.get(self.slot).0.set_connected();
        Ok(())
    }

    pub(super) fn dropped(&self) -> io::Result<u64> {
        let inner = &mut *self.core.enter()?;
        inner.datagrams.get(self.slot).0.count_drops(&mut inner.io)
    }

    pub(super) fn with_fd<R>(
        &self,
        f: impl FnOnce(&dyn Kernel, Fd) -> io::Result<R>,
    ) -> io::Result<R> {
        let fd = self.core.enter()?.datagrams.get(self.slot).0.fd;
        f(&*self.core.kernel, fd)
    }

    /// A future that waited for space or a drain is gone.
    #[inline]
    fn leave_send(&self, id: &mut Option<WaiterId>) {
        if id.is_some()
            && let Ok(mut inner) = self.core.enter()
        {
            let inner = &mut *inner;
            inner.datagrams.get(self.slot).0.leave_send(&mut inner.io, id);
        }
    }
}

impl Drop for DatagramHandle {
    fn drop(&mut self) {
        // After the runtime's end the slot is gone already; in a forked child it belongs to the parent.
        if let Ok(mut inner) = self.core.enter() {
            let inner = &mut *inner;
            inner.datagrams.drop_socket(&mut inner.io, self.slot);
        }
    }
}

/// A receive that may wait. When it is dropped, no datagram is lost: the next waiter is notified of the one that is there.
struct RecvDatagram<'a, P> {
    handle: &'a DatagramHandle,
    poll: P,
    id: Option<WaiterId>,
}

impl<P, T> Future for RecvDatagram<'_, P>
where
    P: Fn(&DatagramHandle, Wait<'_>, &Context<'_>) -> Poll<io::Result<T>> + Unpin,
{
    type Output = io::Result<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let Self { handle, poll, id } = &mut *self;
        poll(handle, Wait::InLine(id), cx)
    }
}

impl<P> Drop for RecvDatagram<'_, P> {
    #[inline]
    fn drop(&mut self) {
        if self.id.is_some()
            && let Ok(mut inner) = self.handle.core.enter()
        {
            let inner = &mut *inner;
            let (slot, _) = inner.datagrams.get(self.handle.slot);
            slot.leave_recv(&mut inner.io, &mut self.id);
        }
    }
}

/// Sends a datagram: ready once it is queued, to leave with the turn. If it is dropped before that, nothing is sent.
#[must_use = "a send does nothing unless awaited"]
pub struct SendDatagram<'a> {
    handle: &'a DatagramHandle,
    /// Not accepted yet.
    datagram: Option<(Chunk, SendMeta)>,
    id: Option<WaiterId>,
}

impl Future for SendDatagram<'_> {
    type Output = io::Result<()>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { handle, datagram, id } = &mut *self;
        budget::poll_with(cx, || {
            let inner = &mut *handle.core.enter_running()?;
            let (slot, shared) = inner.datagrams.get(handle.slot);
            slot.poll_send(shared, &mut inner.io, datagram, Wait::InLine(id), cx)
        })
    }
}

impl Drop for SendDatagram<'_> {
    #[inline]
    fn drop(&mut self) {
        self.handle.leave_send(&mut self.id);
    }
}

/// Waits until everything has left.
#[must_use = "futures do nothing unless they are awaited"]
pub(super) struct Drain<'a> {
    handle: &'a DatagramHandle,
    id: Option<WaiterId>,
}

impl Future for Drain<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { handle, id } = &mut *self;
        handle.poll_drain(Wait::InLine(id), cx)
    }
}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        self.handle.leave_send(&mut self.id);
    }
}

impl fmt::Debug for SendDatagram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendDatagram(accepted: {})", self.datagram.is_none())
    }
}
