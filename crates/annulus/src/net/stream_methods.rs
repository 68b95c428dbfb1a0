//! The methods that TCP streams, Unix streams and their halves have in common, each written once.
//!
//! The types are separate because their addresses and the ways to connect them differ. Each has a
//! field `handle` that is, or derefs to, a [`StreamHandle`](super::stream_handle::StreamHandle). A
//! type that receives also has a field `unread`, a [`RecvBuffer`](super::recv_buffer::RecvBuffer).

/// Defines shared methods: `shared!(recv)` for a type that receives, and so on.
macro_rules! shared {
    (recv) => {
        pub(crate) fn source_handle(&self) -> &crate::net::StreamHandle {
            &self.handle
        }

        /// Returns the next bytes, at least one, or `None` at the end of the stream and on every
        /// later call. Bytes that [`fill_buf`](Self::fill_buf) or [`peek`](Self::peek) showed and
        /// that were not consumed come first.
        ///
        /// Cancel-safe: the receive belongs to the stream, so dropping the future loses no byte.
        /// Leases that are still held do not stop the stream from receiving.
        ///
        /// # Errors
        /// `ConnectionReset` and others, after all bytes received before it, and on every later
        /// call.
        #[inline]
        pub fn recv(&mut self) -> impl Future<Output = io::Result<Option<Lease>>> {
            poll_fn(|cx| self.poll_recv(cx))
        }

        /// Polls like [`recv`](Self::recv).
        ///
        /// # Errors
        /// The errors of [`recv`](Self::recv).
        #[inline]
        pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
            if self.unread.is_unused() {
                return self.handle.poll_recv(cx);
            }
            self.unread.poll_recv(&self.handle, cx)
        }

        /// Like [`recv`](Self::recv), but returns only bytes that earlier turns of the loop have
        /// received. The first call starts receiving, so it finds nothing yet. A task that polled
        /// before is still woken.
        ///
        /// # Errors
        /// `WouldBlock` if nothing has been received yet, and the errors of [`recv`](Self::recv).
        pub fn try_recv(&mut self) -> io::Result<Option<Lease>> {
            match self.unread.take() {
                Some(lease) => Ok(Some(lease)),
                None => self.handle.try_recv(),
            }
        }

        /// Waits until [`try_recv`](Self::try_recv) and [`try_read`](Self::try_read) find bytes,
        /// the end of the stream or its error. The bytes are then in the runtime's memory and no
        /// longer in the kernel, so your own system calls would not find them.
        ///
        /// Cancel-safe. Only one task at a time may wait.
        ///
        /// # Errors
        /// If the runtime has ended.
        pub async fn readable(&self) -> io::Result<()> {
            poll_fn(|cx| self.unread.poll_readable(&self.handle, cx)).await
        }

        /// Like [`try_recv`](Self::try_recv), but copies the bytes of one lease into the caller's
        /// memory. Returns 0 at the end of the stream.
        ///
        /// # Errors
        /// The errors of [`try_recv`](Self::try_recv).
        pub fn try_read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
            self.unread.try_read(&self.handle, memory)
        }

        /// Shows the next bytes, at least one, where the kernel has put them, or none at the end of
        /// the stream. They stay until they are [consumed](Self::consume).
        ///
        /// Cancel-safe.
        ///
        /// # Errors
        /// The errors of [`recv`](Self::recv).
        #[inline]
        pub async fn fill_buf(&mut self) -> io::Result<&[u8]> {
            self.peek(1).await
        }

        /// Polls like [`fill_buf`](Self::fill_buf).
        ///
        /// # Errors
        /// The errors of [`recv`](Self::recv).
        #[inline]
        pub fn poll_fill_buf(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            self.poll_peek(cx, 1)
        }

        /// Drops the first `n` of the bytes that [`fill_buf`](Self::fill_buf) or
        /// [`peek`](Self::peek) showed last.
        ///
        /// # Panics
        /// If fewer than `n` bytes were shown.
        #[inline]
        pub fn consume(&mut self, n: usize) {
            self.unread.consume(n);
        }

        /// Like [`fill_buf`](Self::fill_buf), but waits for at least `n` bytes. It shows fewer only
        /// at the end of the stream. Bytes that span several leases are copied into one piece of
        /// memory.
        ///
        /// Cancel-safe: received bytes stay in the stream.
        ///
        /// # Errors
        /// The errors of [`recv`](Self::recv), even if fewer than `n` bytes arrived before the
        /// error. Those bytes stay, and [`recv`](Self::recv) returns them.
        pub async fn peek(&mut self, n: usize) -> io::Result<&[u8]> {
            poll_fn(|cx| self.poll_peek(cx, n).map_ok(drop)).await?;
            Ok(self.unread.shown())
        }

        /// Polls like [`peek`](Self::peek).
        ///
        /// # Errors
        /// The errors of [`peek`](Self::peek).
        #[inline]
        pub fn poll_peek(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
            self.unread.poll_peek(&self.handle, cx, n)
        }

        /// Returns the next `n` bytes as one lease, without a copy if they were received in one
        /// piece, and otherwise gathered in heap memory.
        ///
        /// Cancel-safe: received bytes stay in the stream.
        ///
        /// # Errors
        /// The errors of [`recv`](Self::recv), and `UnexpectedEof`, with both numbers, if the
        /// stream ends first. The received bytes stay, and [`recv`](Self::recv) returns them.
        pub async fn recv_exact(&mut self, n: usize) -> io::Result<Lease> {
            poll_fn(|cx| self.poll_recv_exact(cx, n)).await
        }

        /// Polls like [`recv_exact`](Self::recv_exact).
        ///
        /// # Errors
        /// The errors of [`recv_exact`](Self::recv_exact).
        pub fn poll_recv_exact(
            &mut self,
            cx: &mut Context<'_>,
            n: usize,
        ) -> Poll<io::Result<Lease>> {
            self.unread.poll_exact(&self.handle, cx, n)
        }
    };

    // Methods of a type that sends.
    (send) => {
        /// Queues a chunk, which is a [`Lease`](crate::Lease) or any owned bytes, and sends all of
        /// it. The chunks of a turn are sent in one operation, without being copied.
        ///
        /// Resolves once the queue is within the runtime's [send
        /// bound](crate::Builder::send_bound). The first poll queues the chunk, which is then sent
        /// in order even if the future is dropped. There is one exception: if an earlier, dropped
        /// `send` still fills the queue, the chunk waits, and dropping the future sends nothing.
        ///
        /// # Errors
        /// The errors of earlier sends, because this chunk has not been sent yet: `BrokenPipe`,
        /// `ConnectionReset` and others. [`drain`](Self::drain) reports all of them. `BrokenPipe`
        /// after [`shutdown`](Self::shutdown).
        #[inline]
        pub fn send(&mut self, chunk: impl crate::IntoChunk) -> SendFuture<'_> {
            self.handle.send(chunk.into())
        }

        /// Queues a chunk once the queue is within the send bound, and leaves `chunk` empty. While
        /// this is pending, the chunk stays with the caller.
        ///
        /// # Errors
        /// The errors of [`send`](Self::send).
        pub fn poll_send(
            &mut self,
            cx: &mut Context<'_>,
            chunk: &mut Chunk,
        ) -> Poll<io::Result<()>> {
            let mut given = Some(std::mem::replace(chunk, Chunk::EMPTY));
            let polled = self.handle.poll_enqueue(&mut given, cx);
            *chunk = given.unwrap_or(Chunk::EMPTY);
            polled
        }

        /// Sends several chunks in order. If the future is dropped, the chunks that it has queued
        /// are sent, and the rest are not.
        ///
        /// # Errors
        /// The errors of [`send`](Self::send).
        pub async fn send_vectored<C: crate::IntoChunk>(
            &mut self,
            chunks: impl IntoIterator<Item = C>,
        ) -> io::Result<()> {
            self.handle.send_all(chunks.into_iter().map(Into::into)).await
        }

        /// Waits until [`try_write`](Self::try_write) would accept bytes, which means until the
        /// queue is below the send bound, even if the kernel has no space.
        ///
        /// Cancel-safe. Only one task at a time may wait.
        ///
        /// # Errors
        /// The errors of [`send`](Self::send).
        pub async fn writable(&self) -> io::Result<()> {
            poll_fn(|cx| self.handle.poll_space(cx)).await
        }

        /// Like [`write`](Self::write), but never waits.
        ///
        /// # Errors
        /// `WouldBlock` if the send bound has been reached, and the errors of [`send`](Self::send).
        pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.handle.try_write(bytes)
        }

        /// Sends or queues as many bytes as the kernel takes now and the send bound allows, and
        /// returns their number. Pending while that is zero. Large writes go to the kernel at once
        /// if nothing of the stream is in flight. Smaller ones are copied and sent at the end of
        /// the turn, in order with the chunks of [`send`](Self::send).
        ///
        /// # Errors
        /// The errors of [`send`](Self::send).
        pub fn poll_write(
            &mut self,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.handle.poll_write(cx, &[IoSlice::new(bytes)])
        }

        /// Like [`poll_write`](Self::poll_write), but for several slices in order.
        ///
        /// # Errors
        /// The errors of [`send`](Self::send).
        pub fn poll_write_vectored(
            &mut self,
            cx: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.handle.poll_write(cx, slices)
        }

        /// Sends as many of the borrowed bytes as [`poll_write`](Self::poll_write) accepts, and
        /// returns their number: at least one, unless `bytes` is empty. [`send`](Self::send) sends
        /// owned bytes without a copy.
        ///
        /// Cancel-safe: if the future is dropped before it is ready, nothing has been sent or
        /// queued.
        ///
        /// # Errors
        /// The errors of [`send`](Self::send).
        pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            poll_fn(|cx| self.poll_write(cx, bytes)).await
        }

        /// Like [`write`](Self::write), but for several slices in order.
        ///
        /// # Errors
        /// The errors of [`send`](Self::send).
        pub async fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            poll_fn(|cx| self.poll_write_vectored(cx, slices)).await
        }

        /// Sends all of the borrowed bytes, and waits whenever the send bound has been reached.
        ///
        /// Not cancel-safe: if the future is dropped, some of the bytes may have been queued.
        ///
        /// # Errors
        /// The errors of [`send`](Self::send).
        pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
            if bytes.is_empty() {
                crate::tasks::consume_budget().await;
            }
            while !bytes.is_empty() {
                bytes = &bytes[self.write(bytes).await?..];
            }
            Ok(())
        }

        /// Reports the error of an earlier send, if there was one. It never waits: queued bytes are
        /// sent at the end of the turn without further calls. To wait until the kernel has taken
        /// them, use [`drain`](Self::drain).
        ///
        /// # Errors
        /// The error of a send, which every later call also returns.
        pub async fn flush(&mut self) -> io::Result<()> {
            poll_fn(|cx| self.poll_flush(cx)).await
        }

        /// Polls like [`flush`](Self::flush). It is always ready.
        ///
        /// # Errors
        /// The errors of [`flush`](Self::flush).
        pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.handle.poll_flush(cx)
        }

        /// Waits until the kernel has taken all queued bytes. Cancel-safe.
        ///
        /// # Errors
        /// The error of a send, which every later call also returns.
        pub async fn drain(&mut self) -> io::Result<()> {
            poll_fn(|cx| self.poll_drain(cx)).await
        }

        /// Polls like [`drain`](Self::drain).
        ///
        /// # Errors
        /// The errors of [`drain`](Self::drain).
        pub fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.handle.poll_drain(cx)
        }

        /// Returns the number of sent bytes that the peer's system has not received: those that are
        /// still queued, and those in the kernel's send buffer. While the peer reads slowly, only
        /// this number shows that sending makes progress.
        ///
        /// Returns 0 after the runtime has ended.
        pub fn unacknowledged(&self) -> usize {
            self.handle.unacknowledged()
        }

        /// Closes the sending direction once everything has been sent: the peer sees the end of the
        /// stream. Receiving continues. Cancel-safe: once polled, it happens even if the future is
        /// dropped.
        ///
        /// # Errors
        /// The error of a send.
        pub async fn shutdown(&mut self) -> io::Result<()> {
            poll_fn(|cx| self.poll_shutdown(cx)).await
        }

        /// Polls like [`shutdown`](Self::shutdown).
        ///
        /// # Errors
        /// The errors of [`shutdown`](Self::shutdown).
        pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.handle.poll_shutdown(cx)
        }
    };

    // Methods of a type that owns both directions.
    (stream) => {
        shared!(recv);
        shared!(send);

        /// Waits until the kernel has taken the queued bytes, and closes the stream. Received bytes
        /// that have not been read are lost. If the future is dropped, the stream closes like a
        /// dropped stream.
        ///
        /// # Errors
        /// The error of a send or of the connection. The stream is closed even then.
        pub async fn close(self) -> io::Result<()> {
            let released = poll_fn(|cx| self.handle.poll_close(cx)).await?;
            self.handle.close(released)
        }

        /// Closes the stream at once and discards queued bytes. A TCP connection is reset.
        pub fn abort(self) {
            self.handle.abort();
        }

        /// Splits the stream into its two directions, for two tasks. It closes when both halves are
        /// dropped; dropping the sending half alone closes the sending direction.
        pub fn split(self) -> (RecvHalf, SendHalf) {
            let handle = Rc::new(self.handle);
            (RecvHalf::new(handle.clone(), self.unread), SendHalf::new(handle))
        }

        /// Rejoins the two halves of a stream.
        ///
        /// # Errors
        /// If they are halves of different streams or of a stream of another type, or if the
        /// runtime has ended. The error contains both halves.
        pub fn reunite(receiving: RecvHalf, sending: SendHalf) -> Result<Self, ReuniteError> {
            let (handle, unread) = reunite(receiving, sending, Self::FAMILY)?;
            Ok(Self { handle, unread })
        }
    };

    // `into_parts`, `into_std` and `from_parts` of a stream.
    (parts $std:ty) => {
        /// Detaches the connection from this runtime as a non-blocking stream of the standard
        /// library, like [`into_parts`](Self::into_parts) if no bytes have been received ahead.
        ///
        /// # Errors
        /// The errors of [`into_parts`](Self::into_parts), and `InvalidData` if bytes have been
        /// received that no task has read. Those bytes are lost; `into_parts` would return them.
        pub async fn into_std(self) -> io::Result<$std> {
            let Parts { socket, received, .. } = self.into_parts().await?;
            if received.is_empty() {
                annulus_kernel::descriptor::set_nonblocking(&socket, true)?;
                return Ok(socket.into());
            }
            let text = format!(
                "{} bytes were received ahead; use into_parts, which returns them",
                received.len()
            );
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }

        /// Detaches the connection from this runtime, to move it to another thread or to code
        /// outside this crate. Waits until the kernel has taken the sent bytes and no longer uses
        /// the stream's memory, and ends the receive in flight. Bytes that it received are part of
        /// the result, and no longer in the socket. If the future is dropped, the connection closes
        /// like a dropped stream.
        ///
        /// The socket is blocking, as a child process expects of its standard streams.
        ///
        /// # Errors
        /// The error of a send or of the connection (such as `ConnectionReset`), even if bytes
        /// arrived before it: on the other runtime they would look complete. The connection is then
        /// closed. `Unsupported` on a simulated kernel.
        #[allow(unsafe_code)]
        pub async fn into_parts(self) -> io::Result<Parts> {
            let Self { handle, unread } = self;
            if !handle.core.kernel.real_descriptors() {
                let text = "a simulated connection cannot leave its simulation";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            let (fd, received, permit) = poll_fn(|cx| handle.poll_release(cx)).await?;
            handle.forget();
            // SAFETY: the slot was removed with nothing in flight, and the handle was forgotten, so
            // nothing else owns the descriptor. It is a real one, as checked above.
            let parts = unsafe { Parts::of_fd(fd, unread.in_front_of(received), permit) };
            annulus_kernel::descriptor::set_nonblocking(&parts.socket, false)?;
            Ok(parts)
        }

        /// Takes over a connection from another runtime, with the bytes received there.
        ///
        /// # Errors
        /// Outside a runtime, or on a simulated kernel; `InvalidInput` for 2 GiB of received bytes
        /// or more. The connection is then closed.
        pub fn from_parts(parts: Parts) -> io::Result<Self> {
            let core = current::get()?;
            if !core.kernel.real_descriptors() {
                let text = "a real connection cannot enter a simulation";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            if parts.received.len() > i32::MAX as usize {
                let text = format!(
                    "{} bytes received ahead are too many; at most {} are allowed",
                    parts.received.len(),
                    i32::MAX
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            annulus_kernel::descriptor::set_nonblocking(&parts.socket, true)?;
            Ok(Self::new(StreamHandle::adopt(core, parts.take())?))
        }
    };

    // `AsStream`, and `Debug` with both addresses.
    (traits $stream:ident) => {
        impl AsStream for $stream {
            fn handle(&self) -> &StreamHandle {
                &self.handle
            }
        }

        impl fmt::Debug for $stream {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($stream))
                    .field("local", &self.local_addr().ok())
                    .field("peer", &self.peer_addr().ok())
                    .finish()
            }
        }
    };

    // `accept` and `poll_accept` of a listener with a field `handle`. `adopt` turns an accepted
    // connection into a stream and its peer's address, or `None` if the peer has reset it.
    (accept $stream:ident, $adopt:ident) => {
        /// Returns the next connection and its peer's address.
        ///
        /// Cancel-safe: the accept belongs to the listener, so dropping the future loses no
        /// connection. Several tasks may wait at the same time. Running out of descriptors is not
        /// an error: the listener pauses until one is closed.
        ///
        /// Connections that were reset before they were accepted are skipped, and counted in
        /// [`Counters::aborted_accepts`](crate::Counters::aborted_accepts).
        ///
        /// # Errors
        /// An error that makes the listener unusable, or if the runtime has ended.
        pub async fn accept(&self) -> io::Result<($stream, SocketAddr)> {
            loop {
                if let Some(accepted) = self.$adopt(self.handle.accept().await?)? {
                    return Ok(accepted);
                }
            }
        }

        /// Polls like [`accept`](Self::accept). Every task that polled is woken.
        ///
        /// # Errors
        /// The errors of [`accept`](Self::accept).
        pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<($stream, SocketAddr)>> {
            loop {
                if let Some(accepted) = self.$adopt(ready!(self.handle.poll_accept(cx))?)? {
                    return Poll::Ready(Ok(accepted));
                }
            }
        }
    };

    // Setters of options with a field `listen` of
    // [`ListenSettings`](super::listener_handle::ListenSettings).
    (listen) => {
        /// Sets how many completed connections the kernel keeps until they are accepted. It is
        /// capped at `net.core.somaxconn`. The default is 4,096.
        pub fn backlog(mut self, connections: u32) -> Self {
            self.listen.backlog = connections;
            self
        }

        /// Accepts only as many connections as the limit allows to be open. The rest wait in the
        /// kernel's backlog.
        ///
        /// Without a limit, which is the default, a listener accepts up to 64 connections ahead of
        /// `accept` (more in a burst), and pauses while the process is out of descriptors.
        pub fn limit(mut self, limit: &ConnectionLimit) -> Self {
            self.listen.limit = Some(limit.clone());
            self
        }
    };
}

pub(super) use shared;
