//! The handle to a stream's slot, for all kinds of streams.

use super::recv_buffer::RecvBuffer;
use super::socket::NewFd;
use crate::bytes::chunk::Chunk;
use crate::bytes::lease::Lease;
use crate::runtime::core::{Core, Inner};
use crate::slots::connection_limit::Permit;
use crate::slots::interest::Interest;
use crate::slots::loop_state::LoopState;
use crate::slots::polls::PollSide;
use crate::slots::streams::carriers::PageSink;
use crate::slots::streams::{ReleasedStream, Stream, StreamResources};
use crate::tasks::budget;
use crate::tasks::consume_budget;
#[cfg(feature = "tracing")]
use crate::trace;
use annulus_driver::SlotId;
use annulus_kernel::pipe::SigPipe;
use annulus_kernel::{Fd, Kernel};
use std::cell::RefMut;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::mem;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Owns a stream's slot. When the handle is dropped, the stream sends its queued bytes and closes.
pub(crate) struct StreamHandle {
    pub(crate) core: Rc<Core>,
    pub(crate) slot: u32,
    /// Whether the slot is free or already closing, so that a drop must not close it.
    is_released: bool,
}

/// A stream, or the half of a stream, that chunks can be sent to.
pub(crate) trait AsStream {
    fn handle(&self) -> &StreamHandle;
}

impl StreamHandle {
    pub(crate) fn new(core: Rc<Core>, socket: NewFd, permit: Option<Permit>) -> io::Result<Self> {
        Self::adopt(core, (socket.into_fd(), Vec::new(), permit))
    }

    /// Adds a stream to this runtime: a new one, or one that another runtime has released.
    pub(crate) fn adopt(core: Rc<Core>, stream: ReleasedStream) -> io::Result<Self> {
        let slot = {
            let inner = &mut *core.borrow()?;
            inner.streams.add(&inner.state, stream)
        };
        Ok(Self { core, slot, is_released: false })
    }

    /// Calls `poll` with the stream while the runtime is borrowed. With the feature `tracing`, an
    /// error is also traced.
    #[inline]
    pub(crate) fn poll_with<R>(
        &self,
        poll: impl FnOnce(&mut Stream, &mut StreamResources, &mut LoopState) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        #[cfg(feature = "tracing")]
        return self.poll_borrowed(poll).map_err(|error| {
            trace::failure("a stream has failed", &error);
            error
        });
        #[cfg(not(feature = "tracing"))]
        self.poll_borrowed(poll)
    }

    #[inline]
    fn poll_borrowed<R>(
        &self,
        poll: impl FnOnce(&mut Stream, &mut StreamResources, &mut LoopState) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        let inner = &mut *self.core.borrow_running()?;
        let (stream, shared) = inner.streams.get(self.slot);
        poll(stream, shared, &mut inner.state)
    }

    #[inline]
    pub(crate) fn poll_recv(&self, cx: &Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        self.poll_with(|stream, shared, state| stream.poll_recv(shared, state, cx))
    }

    /// Like [`poll_recv`](Self::poll_recv), but appends the descriptors that arrived with the bytes
    /// to `descriptors`.
    #[inline]
    pub(crate) fn poll_message(
        &self,
        cx: &Context<'_>,
        descriptors: &mut Vec<OwnedFd>,
    ) -> Poll<io::Result<Option<Lease>>> {
        self.poll_with(|stream, shared, state| {
            stream.check_descriptors()?;
            let lease = ready!(stream.poll_recv(shared, state, cx))?;
            stream.take_descriptors(descriptors);
            Poll::Ready(Ok(lease))
        })
    }

    /// Like [`poll_recv`](Self::poll_recv), but closes the descriptors that arrived with the bytes.
    pub(crate) fn poll_bytes(&self, cx: &Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        self.poll_with(|stream, shared, state| {
            let lease = ready!(stream.poll_recv(shared, state, cx))?;
            stream.close_descriptors();
            Poll::Ready(Ok(lease))
        })
    }

    /// Forwards to `to` the next `left` bytes that this stream receives, without waking a task. The
    /// next poll of a receive on this stream ends the forwarding. Does nothing if received bytes
    /// are waiting or one of the streams cannot be linked. `link` must be `None`, or the link of an
    /// earlier call for the same two streams.
    pub(crate) fn link(&self, to: &StreamHandle, left: u64, link: &mut Option<Link>) {
        let Ok(mut inner) = self.core.borrow() else { return };
        if Rc::ptr_eq(&self.core, &to.core)
            && let Some(from) = inner.streams.link(self.slot, to.slot, left)
        {
            drop(inner);
            link.get_or_insert_with(|| Link { core: self.core.clone(), from });
        }
    }

    /// Returns bytes that earlier turns have received, or `WouldBlock` if nothing has been
    /// received. Closes the descriptors that arrived with the bytes.
    pub(crate) fn try_recv(&self) -> io::Result<Option<Lease>> {
        self.with_stream(|stream, shared, state| {
            let lease = stream.try_recv(shared, state)?;
            stream.close_descriptors();
            Ok(lease)
        })
    }

    /// Like [`try_recv`](Self::try_recv), but appends the descriptors that arrived with the bytes to
    /// `descriptors`.
    pub(crate) fn try_message(&self, descriptors: &mut Vec<OwnedFd>) -> io::Result<Option<Lease>> {
        self.with_stream(|stream, shared, state| {
            stream.check_descriptors()?;
            let lease = stream.try_recv(shared, state)?;
            stream.take_descriptors(descriptors);
            Ok(lease)
        })
    }

    #[inline]
    pub(crate) fn send(&self, chunk: Chunk) -> SendFuture<'_> {
        SendFuture { handle: self, chunk: Some(chunk) }
    }

    /// Calls `change`.
    ///
    /// # Errors
    /// The errors of `change`, and if the loop is not running.
    fn with_stream<R>(
        &self,
        change: impl FnOnce(&mut Stream, &mut StreamResources, &mut LoopState) -> io::Result<R>,
    ) -> io::Result<R> {
        self.with_inner(self.core.borrow_running()?, change)
    }

    /// Like [`with_stream`](Self::with_stream), but also works while the loop is not running.
    pub(super) fn with_idle_stream<R>(
        &self,
        change: impl FnOnce(&mut Stream, &mut StreamResources, &mut LoopState) -> io::Result<R>,
    ) -> io::Result<R> {
        self.with_inner(self.core.borrow()?, change)
    }

    fn with_inner<R>(
        &self,
        mut inner: RefMut<'_, Inner>,
        change: impl FnOnce(&mut Stream, &mut StreamResources, &mut LoopState) -> io::Result<R>,
    ) -> io::Result<R> {
        let inner = &mut *inner;
        let (stream, shared) = inner.streams.get(self.slot);
        change(stream, shared, &mut inner.state)
    }

    /// Takes `chunk` and queues it, once the queue is within the unsent limit.
    pub(crate) fn poll_enqueue(
        &self,
        chunk: &mut Option<Chunk>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(budget::poll_left(cx));
        self.poll_with(|stream, shared, state| stream.poll_enqueue(shared, state, chunk, cx))
    }

    /// Like [`poll_enqueue`](Self::poll_enqueue), but leaves `chunk` empty once it is queued.
    pub(crate) fn poll_send(&self, cx: &Context<'_>, chunk: &mut Chunk) -> Poll<io::Result<()>> {
        let mut given = Some(mem::replace(chunk, Chunk::EMPTY));
        let polled = self.poll_enqueue(&mut given, cx);
        *chunk = given.unwrap_or(Chunk::EMPTY);
        polled
    }

    /// Sends all of the borrowed bytes, and waits whenever the unsent limit has been reached.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            consume_budget().await;
        }
        while !bytes.is_empty() {
            let written = poll_fn(|cx| self.poll_write(cx, &[IoSlice::new(bytes)])).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    pub(crate) async fn send_all(&self, chunks: impl Iterator<Item = Chunk>) -> io::Result<()> {
        for chunk in chunks {
            self.send(chunk).await?;
        }
        Ok(())
    }

    pub(crate) fn poll_write(
        &self,
        cx: &Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        budget::poll_with(cx, || {
            self.poll_with(|stream, shared, state| stream.poll_copy(shared, state, slices, cx))
        })
    }

    /// Returns `Ready` once [`try_write`](Self::try_write) can queue something.
    pub(crate) fn poll_space(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        budget::poll_with(cx, || {
            self.poll_with(|stream, shared, state| stream.poll_space(shared, state, cx))
        })
    }

    /// Waits until one of these directions is ready, and returns those that are.
    pub(super) async fn ready(
        &self,
        interest: Interest,
        unread: &RecvBuffer,
    ) -> io::Result<Interest> {
        let poll = |side, cx: &Context<'_>| match side {
            PollSide::Readable => unread.poll_readable(self, cx),
            PollSide::Writable => self.poll_space(cx),
        };
        poll_fn(|cx| interest.poll_sides(|side| poll(side, cx))).await
    }

    pub(crate) fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let queued =
            self.with_stream(|stream, shared, state| stream.try_copy(shared, state, slices))?;
        queued.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    pub(crate) fn poll_flush(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        budget::poll_with(cx, || {
            self.poll_with(|stream, _, state| Poll::Ready(stream.check_sent(state)))
        })
    }

    /// Returns true if a shutdown of the sending direction was requested and no send has failed.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.core.borrow().is_ok_and(|mut inner| inner.streams.get(self.slot).0.is_shut_down())
    }

    /// Returns the number of queued bytes, including those in flight.
    pub(crate) fn unsent(&self) -> usize {
        self.core.borrow().map_or(0, |mut inner| inner.streams.get(self.slot).0.unsent())
    }

    /// Returns the number of bytes that are queued, or that are in the kernel's send buffer because
    /// the peer has not acknowledged them.
    pub(super) fn unacknowledged(&self) -> usize {
        self.core.borrow().map_or(0, |mut inner| {
            let inner = &mut *inner;
            let stream = inner.streams.get(self.slot).0;
            stream.unsent() + inner.state.driver.kernel().unacknowledged(stream.fd)
        })
    }

    pub(crate) fn poll_drain(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        budget::poll_with(cx, || self.poll_with(|stream, _, state| stream.poll_drain(state, cx)))
    }

    pub(crate) fn poll_shutdown(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        budget::poll_with(cx, || self.poll_with(|stream, _, state| stream.poll_end(state, cx)))
    }

    /// Sends the queued bytes at once. The kernel may hold them back until pages of a file follow.
    /// Returns false if nothing is queued or the bytes cannot be sent directly.
    pub(crate) fn send_queued(&self) -> io::Result<bool> {
        self.with_stream(|stream, shared, state| stream.send_queued(shared, state, true))
    }

    /// Sends as many of the queued bytes as the socket has space for. The others stay queued.
    pub(super) fn push(&self) -> io::Result<()> {
        self.with_stream(|stream, shared, state| {
            stream.check_sent(state)?;
            stream.send_queued(shared, state, false).map(drop)
        })
    }

    /// Returns an empty buffer of the runtime. Send it by [`Chunk::copied`], so that the runtime
    /// can use the buffer again.
    pub(crate) fn take_spare(&self) -> io::Result<Vec<u8>> {
        Ok(self.core.borrow_running()?.state.spares.take())
    }

    /// Returns the socket as a sink for pages of files, or `None` under a simulated kernel.
    pub(crate) fn page_sink(&self) -> io::Result<Option<PageSink>> {
        self.with_stream(|stream, _, state| stream.page_sink(state))
    }

    /// Returns `Ready` once the socket has space. The caller sets `has_started_poll` to false
    /// before the first call and does not change it afterwards. The stream's queue must be empty.
    pub(crate) fn poll_writable(
        &self,
        has_started_poll: &mut bool,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_with(|stream, _, state| stream.poll_writable(state, has_started_poll, cx))
    }

    /// Makes the kernel send the bytes that it holds back for pages of a file. Called when no pages
    /// follow.
    pub(crate) fn push_sent(&self) {
        self.core.if_alive(|inner| inner.streams.get(self.slot).0.push_sent(&inner.state));
    }

    /// Counts a connection that was reset before it was accepted.
    pub(crate) fn count_abort(&self) {
        self.core.if_alive(|inner| inner.state.driver.counters().aborted_accepts += 1);
    }

    /// Takes the stream off the runtime and frees its slot, once no operation on it is in flight.
    pub(crate) fn poll_release(&self, cx: &Context<'_>) -> Poll<io::Result<ReleasedStream>> {
        let inner = &mut *self.core.borrow_running()?;
        inner.streams.poll_release(&mut inner.state, self.slot, cx)
    }

    /// Like [`poll_release`](Self::poll_release), but waits until the descriptor can be closed
    /// without loss.
    pub(crate) fn poll_close(&self, cx: &Context<'_>) -> Poll<io::Result<ReleasedStream>> {
        let inner = &mut *self.core.borrow_running()?;
        inner.streams.poll_close(&mut inner.state, self.slot, cx)
    }

    /// Drops the handle of a slot that is free or already closing.
    pub(crate) fn forget(mut self) {
        self.is_released = true;
    }

    /// Closes a stream that has been released from the runtime.
    pub(crate) fn close(self, (fd, _received, permit): ReleasedStream) -> io::Result<()> {
        let core = self.core.clone();
        self.forget();
        let state = &mut core.borrow()?.state;
        state.close_now(fd);
        permit.into_iter().for_each(|permit| state.release_permit(permit));
        Ok(())
    }

    /// Discards the queued bytes and closes; a TCP connection is reset.
    pub(crate) fn abort(self) {
        self.core.if_alive(|inner| inner.streams.abort(&mut inner.state, self.slot));
        self.forget();
    }

    /// Enables sending and receiving descriptors with the bytes.
    pub(crate) fn pass_descriptors(&self) -> io::Result<()> {
        self.core.borrow()?.streams.get(self.slot).0.pass_descriptors();
        Ok(())
    }

    /// Sets the peer that appears in the stream's errors.
    pub(crate) fn set_peer(&self, peer: SocketAddr) {
        self.core.if_alive(|inner| inner.streams.get(self.slot).0.peer = Some(peer));
    }

    /// Makes the slot read and write a pipe instead of a socket.
    pub(crate) fn be_pipe(&self, signal: SigPipe) -> io::Result<()> {
        self.core.borrow()?.streams.get(self.slot).0.be_pipe(signal);
        Ok(())
    }

    pub(crate) fn with_fd<R>(
        &self,
        f: impl FnOnce(&dyn Kernel, Fd) -> io::Result<R>,
    ) -> io::Result<R> {
        let fd = self.core.borrow()?.streams.get(self.slot).0.fd;
        f(&*self.core.kernel, fd)
    }
}

/// The future of a [`send`](super::TcpStream::send). Its first poll usually queues the chunk. A
/// queued chunk is sent even if the future is dropped.
#[must_use = "a send does nothing unless awaited"]
pub struct SendFuture<'a> {
    handle: &'a StreamHandle,
    /// `None` once queued.
    chunk: Option<Chunk>,
}

impl Future for SendFuture<'_> {
    type Output = io::Result<()>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.chunk.is_some() {
            ready!(budget::poll_left(cx));
        }
        this.handle.poll_with(|stream, shared, state| {
            if this.chunk.is_some() {
                ready!(stream.poll_enqueue(shared, state, &mut this.chunk, cx))?;
            }
            stream.poll_room(shared, state, cx)
        })
    }
}

/// A link that forwards the bytes received by one stream to another; see
/// `slots/streams/carriers/link.rs`. Dropping it ends the forwarding. Bytes that were already
/// forwarded are still sent.
pub(crate) struct Link {
    core: Rc<Core>,
    from: SlotId,
}

impl Link {
    /// Returns true if the next bytes go through a kernel pipe. The pipe is filled only while the
    /// target has no unsent bytes.
    pub(crate) fn is_splicing(&self) -> bool {
        self.core.borrow().is_ok_and(|mut inner| inner.streams.is_splicing(self.from))
    }

    /// Returns the number of bytes forwarded since the previous call.
    pub(crate) fn take_forwarded(&self) -> u64 {
        self.core.borrow().map_or(0, |mut inner| inner.streams.take_forwarded(self.from))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // If the runtime has ended, the slot no longer exists.
        self.core.if_alive(|inner| inner.streams.unlink(self.from));
    }
}

impl fmt::Debug for SendFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendFuture(queued: {})", self.chunk.is_none())
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        // The borrow fails if the runtime has ended, when the slot is gone, and in a forked child,
        // where the slot belongs to the parent.
        if !self.is_released
            && let Ok(mut inner) = self.core.borrow()
        {
            #[cfg(feature = "tracing")]
            let fd = inner.streams.get(self.slot).0.fd;
            let borrowed = &mut *inner;
            borrowed.streams.drop_stream(&mut borrowed.state, self.slot);
            drop(inner);
            #[cfg(feature = "tracing")]
            trace::event("a stream is closed", &fd);
        }
    }
}
