//! The handle on a listener's slot, whatever its family.

use super::ConnectionLimit;
use super::stream_handle::{NewFd, Socket};
use crate::runtime::core::Core;
use crate::slots::listeners::Accepted;
use crate::waiters::{Wait, WaiterId};
use annulus_kernel::{Fd, Kernel};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Owns a listener's slot. Dropping it stops listening; connections it had accepted and nobody claimed are closed.
pub(super) struct Acceptor {
    core: Rc<Core>,
    slot: u32,
}

/// An accept that may wait, and leaves the line when it is dropped.
struct Waiting<'a> {
    acceptor: &'a Acceptor,
    id: Option<WaiterId>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.id.is_some()
            && let Ok(mut inner) = self.acceptor.core.enter()
        {
            let inner = &mut *inner;
            inner.listeners.leave_accept(&mut inner.io, self.acceptor.slot, &mut self.id);
        }
    }
}

impl Acceptor {
    /// Takes a listening socket in.
    pub(super) fn new(
        core: &Rc<Core>,
        socket: NewFd,
        limit: Option<ConnectionLimit>,
    ) -> io::Result<Self> {
        let slot = core.enter()?.listeners.add(socket.into_fd(), limit);
        Ok(Self { core: core.clone(), slot })
    }

    /// The next connection. Cancel-safe.
    pub(super) async fn accept(&self) -> io::Result<Socket> {
        self.adopt(self.accept_one().await?)
    }

    /// As [`accept`](Self::accept), but leaves the connection to whichever runtime.
    pub(super) async fn accept_one(&self) -> io::Result<Accepted> {
        let mut waiting = Waiting { acceptor: self, id: None };
        poll_fn(|cx| self.poll_one(Wait::InLine(&mut waiting.id), cx)).await
    }

    /// As [`accept`](Self::accept), by polling. Every task that polled is woken.
    pub(super) fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<Socket>> {
        self.poll_one(Wait::Polling, cx)?.map(|accepted| self.adopt(accepted))
    }

    fn poll_one(&self, wait: Wait<'_>, cx: &Context<'_>) -> Poll<io::Result<Accepted>> {
        let inner = &mut *self.core.enter_running()?;
        inner.listeners.poll_accept(&mut inner.io, self.slot, wait, cx)
    }

    fn adopt(&self, accepted: Accepted) -> io::Result<Socket> {
        Socket::accepted(self.core.clone(), accepted)
    }

    pub(super) fn with_fd<R>(
        &self,
        f: impl FnOnce(&dyn Kernel, Fd) -> io::Result<R>,
    ) -> io::Result<R> {
        let fd = self.core.enter()?.listeners.fd(self.slot);
        f(&*self.core.kernel, fd)
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        if let Ok(mut inner) = self.core.enter() {
            let inner = &mut *inner;
            inner.listeners.drop_listener(&mut inner.io, self.slot);
        }
    }
}
