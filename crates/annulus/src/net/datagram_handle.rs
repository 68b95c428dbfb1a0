//! The handle to a datagram socket's slot and the futures that wait on it, for all address
//! families.

use super::socket::NewFd;
use crate::bytes::chunk::Chunk;
use crate::bytes::lease::Lease;
use crate::runtime::core::Core;
use crate::slots::datagrams::{
    DatagramResources, DatagramSettings, DatagramSocket, MessageFormat, ReceivedMessage, SendMeta,
};
use crate::slots::interest::Interest;
use crate::slots::loop_state::LoopState;
use crate::slots::polls::PollSide;
use crate::tasks::{budget, consume_budget};
use crate::waiters::{Wait, WaiterId};
use annulus_kernel::{Address, Fd, Kernel};
use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Owns a datagram socket's slot. When the handle is dropped, queued datagrams are still sent, then
/// the socket closes.
pub(super) struct DatagramHandle {
    pub(super) core: Rc<Core>,
    slot: u32,
}

impl DatagramHandle {
    pub(super) fn new(
        core: &Rc<Core>,
        socket: NewFd,
        format: &'static MessageFormat,
        settings: DatagramSettings,
    ) -> io::Result<Self> {
        settings.check(format.domain)?;
        let inner = &mut *core.borrow()?;
        let slot = inner.datagrams.add(&mut inner.state, socket.fd(), format, settings)?;
        // From now on the slot owns the descriptor and closes it.
        socket.into_fd();
        Ok(Self { core: core.clone(), slot })
    }

    /// Calls `f` with the slot and the state that all datagram sockets share.
    #[inline]
    fn with<R>(
        &self,
        f: impl FnOnce(&mut DatagramSocket, &mut DatagramResources, &mut LoopState) -> R,
    ) -> io::Result<R> {
        let inner = &mut *self.core.borrow_running()?;
        let (socket, shared) = inner.datagrams.get(self.slot);
        Ok(f(socket, shared, &mut inner.state))
    }

    /// Returns a future that completes with the result of `poll`. If it is dropped while it waits,
    /// it leaves the queue of waiting receives.
    #[inline]
    pub(super) fn recv<T>(
        &self,
        poll: impl Fn(&Self, Wait<'_>, &Context<'_>) -> Poll<io::Result<T>> + Unpin,
    ) -> impl Future<Output = io::Result<T>> {
        Waiting { place: self.in_recv_line(), poll }
    }

    /// Returns the place of a future that waits for a datagram.
    #[inline]
    fn in_recv_line(&self) -> InLine<'_> {
        InLine { handle: self, leave: DatagramSocket::leave_recv, id: None }
    }

    /// Returns the place of a future that waits for space or for a drain.
    #[inline]
    fn in_send_line(&self) -> InLine<'_> {
        InLine { handle: self, leave: DatagramSocket::leave_send, id: None }
    }

    /// Receives the next message. With `split`, datagrams that the kernel coalesced are returned
    /// one by one.
    #[inline]
    pub(super) fn poll_recv(
        &self,
        split: bool,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<ReceivedMessage>> {
        self.with(|socket, shared, state| socket.poll_recv(shared, state, split, wait, cx))?
    }

    /// Receives the next datagram and its sender. The socket must be an internet socket.
    #[inline]
    pub(super) fn poll_recv_from(
        &self,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<(Lease, SocketAddr)>> {
        // Does not use `with`, which would move the result an additional time.
        let inner = &mut *self.core.borrow_running()?;
        let (socket, shared) = inner.datagrams.get(self.slot);
        socket.poll_recv_from(shared, &mut inner.state, wait, cx)
    }

    fn poll_readable(&self, wait: Wait<'_>, cx: &Context<'_>) -> Poll<io::Result<()>> {
        budget::poll_with(cx, || {
            self.with(|socket, shared, state| socket.poll_readable(shared, state, wait, cx))?
        })
    }

    /// Waits for datagrams on an internet socket, and appends up to `limit` of those that have been
    /// received.
    pub(super) async fn recv_many(
        &self,
        datagrams: &mut Vec<(Lease, SocketAddr)>,
        limit: usize,
    ) -> io::Result<usize> {
        if limit == 0 {
            consume_budget().await;
            return Ok(0);
        }
        let list = RefCell::new(datagrams);
        self.recv(|handle, wait, cx| {
            let mut list = list.borrow_mut();
            handle.with(|socket, shared, state| {
                socket.poll_recv_many(shared, state, (&mut **list, limit), wait, cx)
            })?
        })
        .await
    }

    /// Waits for a datagram on an internet socket, and copies its beginning.
    pub(super) async fn peek(&self, memory: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let mut place = self.in_recv_line();
        poll_fn(|cx| {
            let wait = place.wait();
            budget::poll_with(cx, || {
                self.with(|socket, shared, state| {
                    socket.poll_peek(shared, state, memory, wait, cx)
                })?
            })
        })
        .await
    }

    pub(super) fn try_peek(&self, memory: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let peeked = self.with(|socket, shared, state| socket.peek(shared, state, memory))?;
        peeked.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
    }

    /// Waits until one of these directions is ready, and returns those that are.
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<Interest> {
        let (mut receiving, mut sending) = (self.in_recv_line(), self.in_send_line());
        let mut poll = |side, cx: &Context<'_>| match side {
            PollSide::Readable => self.poll_readable(receiving.wait(), cx),
            PollSide::Writable => self.poll_send_ready(sending.wait(), cx),
        };
        poll_fn(|cx| interest.poll_sides(|side| poll(side, cx))).await
    }

    pub(super) fn try_recv(&self) -> io::Result<ReceivedMessage> {
        self.with(|socket, shared, state| socket.try_recv(shared, state))?
    }

    #[inline]
    pub(super) fn send(&self, chunk: Chunk, meta: SendMeta) -> SendDatagram<'_> {
        SendDatagram { handle: self, datagram: Some((chunk, meta)), id: None }
    }

    /// Sends a datagram at once, or copies it to be sent at the end of the turn.
    pub(super) fn try_send(&self, bytes: &[u8], meta: SendMeta) -> io::Result<()> {
        self.with(|socket, shared, state| socket.try_send_borrowed(shared, state, bytes, meta))?
    }

    pub(super) fn poll_send_ready(&self, wait: Wait<'_>, cx: &Context<'_>) -> Poll<io::Result<()>> {
        budget::poll_with(cx, || {
            let ready =
                self.with(|socket, shared, state| socket.poll_send_ready(shared, state, wait, cx));
            ready?.map(Ok)
        })
    }

    /// Waits until the kernel has accepted or refused every queued datagram.
    pub(super) fn drain(&self) -> impl Future<Output = io::Result<()>> {
        Waiting { place: self.in_send_line(), poll: Self::poll_drain }
    }

    pub(super) fn poll_drain(&self, wait: Wait<'_>, cx: &Context<'_>) -> Poll<io::Result<()>> {
        budget::poll_with(cx, || {
            self.with(|socket, _, state| socket.poll_drain(state, wait, cx))?
        })
    }

    /// Sends the queued datagrams now, as far as there is space, if the loop is running.
    pub(super) fn send_queued(&self) {
        _ = self.with(|socket, shared, state| socket.send_queued(shared, state));
    }

    /// Connects the socket. Datagrams that are still queued for its former peer are sent there.
    ///
    /// # Errors
    /// The errors of connect(2).
    pub(super) fn connect(&self, peer: &Address) -> io::Result<()> {
        let inner = &mut *self.core.borrow()?;
        let (socket, shared) = inner.datagrams.get(self.slot);
        socket.connect(shared, &mut inner.state, peer)
    }

    /// Records that the socket has a peer from now on.
    pub(super) fn set_connected(&self) -> io::Result<()> {
        self.core.borrow()?.datagrams.get(self.slot).0.set_connected();
        Ok(())
    }

    /// Makes receives large enough for datagrams that the kernel has coalesced.
    pub(super) fn expect_coalesced(&self) -> io::Result<()> {
        let inner = &mut *self.core.borrow()?;
        let (socket, shared) = inner.datagrams.get(self.slot);
        socket.expect_coalesced(shared, &mut inner.state);
        Ok(())
    }

    pub(super) fn dropped(&self) -> io::Result<u64> {
        let inner = &mut *self.core.borrow()?;
        inner.datagrams.get(self.slot).0.count_drops(&mut inner.state)
    }

    pub(super) fn with_fd<R>(
        &self,
        f: impl FnOnce(&dyn Kernel, Fd) -> io::Result<R>,
    ) -> io::Result<R> {
        let fd = self.core.borrow()?.datagrams.get(self.slot).0.fd;
        f(&*self.core.kernel, fd)
    }

    /// Calls `leave` for a dropped future, if the future is in a wait queue.
    #[inline]
    fn leave(&self, leave: Leave, id: &mut Option<WaiterId>) {
        if id.is_some() {
            self.core
                .if_alive(|inner| leave(inner.datagrams.get(self.slot).0, &mut inner.state, id));
        }
    }
}

impl Drop for DatagramHandle {
    fn drop(&mut self) {
        self.core.if_alive(|inner| inner.datagrams.drop_socket(&mut inner.state, self.slot));
    }
}

/// Removes a dropped future from the queue of waiting receives or of waiting sends.
type Leave = fn(&mut DatagramSocket, &mut LoopState, &mut Option<WaiterId>);

/// The place of a future in a wait queue, which the future leaves when it is dropped.
struct InLine<'a> {
    handle: &'a DatagramHandle,
    leave: Leave,
    id: Option<WaiterId>,
}

impl InLine<'_> {
    #[inline]
    fn wait(&mut self) -> Wait<'_> {
        Wait::InLine(&mut self.id)
    }
}

impl Drop for InLine<'_> {
    #[inline]
    fn drop(&mut self) {
        self.handle.leave(self.leave, &mut self.id);
    }
}

/// Waits until `poll` is ready. Dropping a receive loses no datagram: if one has arrived, the next
/// waiter is notified.
struct Waiting<'a, P> {
    place: InLine<'a>,
    poll: P,
}

impl<P, T> Future for Waiting<'_, P>
where
    P: Fn(&DatagramHandle, Wait<'_>, &Context<'_>) -> Poll<io::Result<T>> + Unpin,
{
    type Output = io::Result<T>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let Self { place, poll } = &mut *self;
        poll(place.handle, place.wait(), cx)
    }
}

/// The future of a datagram send. It is ready once the datagram is queued, and the datagram leaves
/// at the end of the turn. If the future is dropped before it is ready, nothing is sent.
#[must_use = "a send does nothing unless awaited"]
pub struct SendDatagram<'a> {
    handle: &'a DatagramHandle,
    /// The datagram, until it has been queued.
    datagram: Option<(Chunk, SendMeta)>,
    id: Option<WaiterId>,
}

impl Future for SendDatagram<'_> {
    type Output = io::Result<()>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { handle, datagram, id } = &mut *self;
        let wait = Wait::InLine(id);
        budget::poll_with(cx, || {
            handle
                .with(|socket, shared, state| socket.poll_send(shared, state, datagram, wait, cx))?
        })
    }
}

impl Drop for SendDatagram<'_> {
    #[inline]
    fn drop(&mut self) {
        self.handle.leave(DatagramSocket::leave_send, &mut self.id);
    }
}

impl fmt::Debug for SendDatagram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendDatagram(queued: {})", self.datagram.is_none())
    }
}
