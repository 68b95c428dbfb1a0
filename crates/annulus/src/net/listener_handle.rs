//! The handle to the slot of a TCP or Unix listener, and a bind that retries while its address is
//! in use.

use super::socket::NewFd;
use super::stream_handle::StreamHandle;
use crate::runtime::core::Core;
use crate::slots::connection_limit::ConnectionLimit;
use crate::slots::listeners::Accepted;
use crate::tasks::budget;
use crate::trace;
use crate::waiters::{Wait, WaiterId};
use annulus_kernel::{Fd, Kernel};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::thread::sleep;
use std::time::Duration;

/// Settings that `ListenOptions` and `UnixOptions` share.
#[derive(Clone, Debug)]
pub(super) struct ListenSettings {
    pub(super) backlog: u32,
    pub(super) limit: Option<ConnectionLimit>,
}

impl Default for ListenSettings {
    fn default() -> Self {
        Self { backlog: 4096, limit: None }
    }
}

/// Owns a listener's slot. Dropping the handle stops listening and closes connections that `accept`
/// has not returned.
pub(super) struct ListenerHandle {
    pub(super) core: Rc<Core>,
    slot: u32,
}

/// A waiting accept, which leaves the wait queue when it is dropped.
struct Waiting<'a> {
    handle: &'a ListenerHandle,
    id: Option<WaiterId>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.id.is_some() {
            let Self { handle: ListenerHandle { core, slot }, id } = self;
            core.if_alive(|inner| inner.listeners.leave_accept(&mut inner.state, *slot, id));
        }
    }
}

impl ListenerHandle {
    pub(super) fn new(
        core: &Rc<Core>,
        socket: NewFd,
        limit: Option<ConnectionLimit>,
    ) -> io::Result<Self> {
        let slot = core.borrow()?.listeners.add(socket.into_fd(), limit);
        Ok(Self { core: core.clone(), slot })
    }

    /// Returns the next connection. Cancel-safe.
    pub(super) async fn accept(&self) -> io::Result<StreamHandle> {
        let mut waiting = Waiting { handle: self, id: None };
        self.adopt(poll_fn(|cx| self.poll_one(Wait::InLine(&mut waiting.id), cx)).await?)
    }

    /// Polls like [`accept`](Self::accept). A connection wakes every task that polled.
    pub(super) fn poll_accept(&self, cx: &Context<'_>) -> Poll<io::Result<StreamHandle>> {
        self.poll_one(Wait::Polling, cx)?.map(|accepted| self.adopt(accepted))
    }

    /// Like a poll of [`accept`](Self::accept), but the connection gets no slot, so it may move to
    /// another runtime.
    pub(super) fn poll_one(&self, wait: Wait<'_>, cx: &Context<'_>) -> Poll<io::Result<Accepted>> {
        let polled = budget::poll_with(cx, || {
            let inner = &mut *self.core.borrow_running()?;
            inner.listeners.poll_accept(&mut inner.state, self.slot, wait, cx)
        });
        match &polled {
            Poll::Ready(Ok(accepted)) => trace::event("accepted a connection", &accepted.fd),
            Poll::Ready(Err(error)) => trace::failure("an accept has failed", error),
            Poll::Pending => {}
        }
        polled
    }

    fn adopt(&self, accepted: Accepted) -> io::Result<StreamHandle> {
        let socket = NewFd::own(&self.core.kernel, accepted.fd);
        StreamHandle::new(self.core.clone(), socket, accepted.permit)
    }

    pub(super) fn with_fd<R>(
        &self,
        f: impl FnOnce(&dyn Kernel, Fd) -> io::Result<R>,
    ) -> io::Result<R> {
        let fd = self.core.borrow()?.listeners.fd(self.slot);
        f(&*self.core.kernel, fd)
    }
}

impl Drop for ListenerHandle {
    fn drop(&mut self) {
        self.core.if_alive(|inner| inner.listeners.drop_listener(&mut inner.state, self.slot));
    }
}

/// Number of turns after which a socket that was dropped in this turn is closed: one for the
/// cancel, one for its event, one for the close.
const TURNS_TO_CLOSE: u32 = 3;
/// Maximum number of pauses between attempts to bind. The sockets of a killed process stay open
/// until the kernel has torn down its ring, which took 5 to 84 ms on Linux 6.18.
const MAX_PAUSES: u32 = 50;
const PAUSE_TIME: Duration = Duration::from_millis(2);

/// Calls `bind`, and again while the address is in use. The first retries give this runtime the
/// turns to close its dropped sockets. Later retries, for a tenth of a second, give the kernel time
/// to close the sockets of a killed process; the thread sleeps between them. A simulated network
/// has no processes, so it needs no later retries.
pub(super) fn retry_while_in_use<T>(
    core: Option<&Core>,
    bind: impl Fn() -> io::Result<T>,
) -> io::Result<T> {
    let has_processes = core.is_none_or(|core| core.kernel.real_descriptors());
    retry_bind(core, if has_processes { TURNS_TO_CLOSE + MAX_PAUSES } else { TURNS_TO_CLOSE }, bind)
}

/// Like [`retry_while_in_use`], but retries only while this runtime closes its dropped sockets, so
/// the thread does not sleep.
pub(super) fn retry_while_closing<T>(
    core: &Core,
    bind: impl Fn() -> io::Result<T>,
) -> io::Result<T> {
    retry_bind(Some(core), TURNS_TO_CLOSE, bind)
}

fn retry_bind<T>(
    core: Option<&Core>,
    retries: u32,
    bind: impl Fn() -> io::Result<T>,
) -> io::Result<T> {
    let mut bound = bind();
    for pass in 0..retries {
        if !is_in_use(&bound) {
            break;
        }
        if pass >= TURNS_TO_CLOSE {
            sleep(PAUSE_TIME);
        }
        if let Some(core) = core {
            core.turn(true, None)?;
        }
        bound = bind();
    }
    bound
}

fn is_in_use<T>(bound: &io::Result<T>) -> bool {
    matches!(bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse)
}
