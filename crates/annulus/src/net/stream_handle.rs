//! The handle on a stream's slot, and everything that one does to a stream through it.
#![allow(unsafe_code)]

use crate::chunk::Chunk;
use crate::lease::Lease;
use crate::runtime::core::Core;
use crate::runtime::io::Io;
use crate::slots::listeners::Accepted;
use crate::slots::streams::{Shared, Stream};
use annulus_kernel::{Address, Domain, Fd, Kernel, SocketOption, SocketType};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Owns a stream's slot. Dropping it lets what was accepted go out, then closes.
pub(crate) struct Socket {
    pub(super) core: Rc<Core>,
    pub(super) slot: u32,
    /// The slot is another's, or free.
    gone: bool,
}

/// A stream, of whatever family.
pub(crate) trait AsSocket {
    fn socket(&self) -> &Socket;
}

impl Socket {
    pub(super) fn new(core: Rc<Core>, fd: Fd) -> io::Result<Self> {
        let slot = core.enter()?.streams.add(fd, None);
        Ok(Self::of_slot(core, slot))
    }

    pub(super) fn accepted(core: Rc<Core>, accepted: Accepted) -> io::Result<Self> {
        let slot = core.enter()?.streams.add(accepted.fd, accepted.permit);
        Ok(Self::of_slot(core, slot))
    }

    pub(super) fn of_slot(core: Rc<Core>, slot: u32) -> Self {
        Self { core, slot, gone: false }
    }

    /// Polls the stream, which may have to wait.
    #[inline]
    pub(super) fn poll_with<R>(
        &self,
        poll: impl FnOnce(&mut Stream, &mut Shared, &mut Io) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        let inner = &mut *self.core.enter_running()?;
        let (stream, shared) = inner.streams.get(self.slot);
        poll(stream, shared, &mut inner.io)
    }

    #[inline]
    pub(crate) fn poll_recv(&self, cx: &Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        self.poll_with(|stream, shared, io| stream.poll_recv(shared, io, cx))
    }

    #[inline]
    pub(crate) fn send(&self, chunk: Chunk) -> SendFuture<'_> {
        SendFuture { socket: self, chunk: Some(chunk) }
    }

    /// Accepts a chunk for sending once there is room.
    pub(crate) fn poll_accept(
        &self,
        chunk: &mut Option<Chunk>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_with(|stream, shared, io| stream.poll_accept_chunk(shared, io, chunk, cx))
    }

    /// Ready once what is queued fits the bound: a chunk is accepted at once then.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.poll_with(|stream, shared, io| stream.poll_room(shared, io, cx))
    }

    pub(super) async fn send_all(&self, chunks: impl Iterator<Item = Chunk>) -> io::Result<()> {
        for chunk in chunks {
            self.send(chunk).await?;
        }
        Ok(())
    }

    pub(super) fn poll_write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_with(|stream, shared, io| stream.poll_copy(shared, io, bytes, cx))
    }

    pub(crate) fn poll_flush(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.poll_with(|stream, _, io| stream.poll_flush(io, cx))
    }

    pub(super) fn poll_shutdown(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.poll_with(|stream, _, io| stream.poll_end(io, cx))
    }

    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.with_fd(|kernel, fd| kernel.peer_address(fd)?.to_inet())
    }

    /// Counts a connection that was reset before it was accepted.
    pub(super) fn count_abort(&self) {
        if let Ok(mut inner) = self.core.enter() {
            inner.io.driver.counters().aborted_accepts += 1;
        }
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.with_fd(|kernel, fd| kernel.local_address(fd)?.to_inet())
    }

    pub(super) fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.with_fd(|kernel, fd| kernel.set_option(fd, SocketOption::NoDelay(on)))
    }

    /// The slot is gone or on its way: nothing is left to be done on drop.
    pub(super) fn forget(mut self) {
        self.gone = true;
    }

    /// Discards what is still to be sent and resets the connection.
    pub(super) fn abort(self) {
        if let Ok(mut inner) = self.core.enter() {
            let inner = &mut *inner;
            inner.streams.abort(&mut inner.io, self.slot);
        }
        self.forget();
    }

    pub(crate) fn with_fd<R>(
        &self,
        f: impl FnOnce(&dyn Kernel, Fd) -> io::Result<R>,
    ) -> io::Result<R> {
        let fd = self.core.enter()?.streams.get(self.slot).0.fd;
        f(&*self.core.kernel, fd)
    }
}

/// A send: see [`TcpStream::send`](super::TcpStream::send). Dropped after its first poll, it is finished all the same.
#[must_use = "a send does nothing unless awaited"]
pub struct SendFuture<'a> {
    socket: &'a Socket,
    /// Not accepted yet.
    chunk: Option<Chunk>,
}

impl Future for SendFuture<'_> {
    type Output = io::Result<()>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.socket.poll_with(|stream, shared, io| {
            if this.chunk.is_some() {
                ready!(stream.poll_accept_chunk(shared, io, &mut this.chunk, cx))?;
            }
            stream.poll_room(shared, io, cx)
        })
    }
}

impl fmt::Debug for SendFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendFuture(accepted: {})", self.chunk.is_none())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // After the runtime's end the slot is gone already; in a forked child it is the parent's.
        if !self.gone
            && let Ok(mut inner) = self.core.enter()
        {
            let inner = &mut *inner;
            inner.streams.drop_stream(&mut inner.io, self.slot);
        }
    }
}

/// A descriptor that is closed again unless it is handed over.
pub(super) struct NewFd {
    kernel: Rc<dyn Kernel>,
    fd: Fd,
    handed_over: bool,
}

impl NewFd {
    /// A socket.
    pub(super) fn new(
        kernel: &Rc<dyn Kernel>,
        domain: Domain,
        kind: SocketType,
    ) -> io::Result<Self> {
        let number = kernel.socket(domain, kind, true)?;
        // SAFETY: made just now, for this owner.
        Ok(Self::own(kernel, unsafe { Fd::from_raw(number) }))
    }

    /// Two Unix sockets that are connected.
    pub(super) fn pair(kernel: &Rc<dyn Kernel>, kind: SocketType) -> io::Result<(Self, Self)> {
        let (one, other) = kernel.socket_pair(kind, true)?;
        // SAFETY: made just now, for these owners.
        let own = |number| Self::own(kernel, unsafe { Fd::from_raw(number) });
        Ok((own(one), own(other)))
    }

    /// A descriptor that has no owner yet.
    pub(super) fn own(kernel: &Rc<dyn Kernel>, fd: Fd) -> Self {
        Self { kernel: kernel.clone(), fd, handed_over: false }
    }

    /// A TCP socket for an address.
    pub(super) fn tcp_for(kernel: &Rc<dyn Kernel>, address: SocketAddr) -> io::Result<Self> {
        let domain = if address.is_ipv4() { Domain::Inet } else { Domain::Inet6 };
        Self::new(kernel, domain, SocketType::Stream)
    }

    pub(super) fn fd(&self) -> Fd {
        self.fd
    }

    pub(super) fn set(&self, option: SocketOption) -> io::Result<()> {
        self.kernel.set_option(self.fd, option)
    }

    pub(super) fn set_all(
        &self,
        options: impl IntoIterator<Item = Option<SocketOption>>,
    ) -> io::Result<()> {
        options.into_iter().flatten().try_for_each(|option| self.set(option))
    }

    pub(super) fn bind(&self, address: &Address) -> io::Result<()> {
        self.kernel.bind(self.fd, address)
    }

    pub(super) fn listen(&self, backlog: u32) -> io::Result<()> {
        self.kernel.listen(self.fd, backlog)
    }

    /// Hands the descriptor over.
    pub(super) fn into_fd(mut self) -> Fd {
        self.handed_over = true;
        self.fd
    }
}

impl Drop for NewFd {
    fn drop(&mut self) {
        if !self.handed_over {
            self.kernel.close(self.fd);
        }
    }
}

/// Bytes the kernel may hold for a socket; where none are given, the system's defaults.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Buffers {
    pub(super) recv: Option<usize>,
    pub(super) send: Option<usize>,
}

impl Buffers {
    pub(super) fn options(self) -> [Option<SocketOption>; 2] {
        [self.recv.map(SocketOption::RecvBuffer), self.send.map(SocketOption::SendBuffer)]
    }
}
