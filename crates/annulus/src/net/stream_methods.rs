//! The methods that TCP streams, Unix streams and their halves have in common, each written once.
//!
//! The types stay apart, since what they connect to and their addresses differ. Each has a field `handle` that is or derefs to a
//! [`StreamHandle`](super::stream_handle::StreamHandle), and one that receives has a field `unread` of
//! [`RecvBuffer`](super::recv_buffer::RecvBuffer).

/// Methods of a type that receives.
/// `shared!(recv)` and so on: the methods that a part of a type has.
macro_rules! shared {
    (recv) => {
        pub(crate) fn source_handle(&self) -> &crate::net::StreamHandle {
            &self.handle
        }

        /// The next bytes, at least one; `None` at the end of the stream, from then on every time. Bytes that were shown by
        /// [`fill_buf`](Self::fill_buf) or [`peek`](Self::peek) and not consumed come first.
        ///
        /// Cancel-safe: the receive belongs to the stream, so dropping the future loses no byte. Leases that are held do not keep
        /// the stream from receiving.
        ///
        /// # Errors
        /// `ConnectionReset`, …, after all bytes that came before it; from then on every time.
        #[inline]
        pub fn recv(&mut self) -> impl Future<Output = io::Result<Option<Lease>>> {
            poll_fn(|cx| self.poll_recv(cx))
        }

        /// As [`recv`](Self::recv), by polling.
        ///
        /// # Errors
        /// As [`recv`](Self::recv).
        #[inline]
        pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Lease>>> {
            if self.unread.is_unused() {
                return self.handle.poll_recv(cx);
            }
            self.unread.poll_recv(&self.handle, cx)
        }

        /// As [`recv`](Self::recv), without waiting: bytes that earlier turns of the loop have received. The first call starts receiving,
        /// so it returns nothing yet. A task that polled before is still woken.
        ///
        /// # Errors
        /// `WouldBlock` if nothing has been received yet; as [`recv`](Self::recv).
        pub fn try_recv(&mut self) -> io::Result<Option<Lease>> {
            match self.unread.take() {
                Some(lease) => Ok(Some(lease)),
                None => self.handle.try_recv(),
            }
        }

        /// Waits until [`try_recv`](Self::try_recv) and [`try_read`](Self::try_read) find bytes, the end of the stream or its error. The
        /// bytes are in memory of the runtime then, and no longer in the kernel: system calls of your own would not find them.
        ///
        /// Cancel-safe. One task at a time may wait.
        ///
        /// # Errors
        /// After the runtime's end.
        pub async fn readable(&self) -> io::Result<()> {
            poll_fn(|cx| self.unread.poll_readable(&self.handle, cx)).await
        }

        /// As [`try_recv`](Self::try_recv), copied into memory of the caller: as many bytes as there are in one lease, and 0 at the end of
        /// the stream.
        ///
        /// # Errors
        /// As [`try_recv`](Self::try_recv).
        pub fn try_read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
            self.unread.try_read(&self.handle, memory)
        }

        /// Shows the next bytes, at least one, where the kernel has put them; none at the end of the stream. They stay until they
        /// are [consumed](Self::consume).
        ///
        /// Cancel-safe.
        ///
        /// # Errors
        /// As [`recv`](Self::recv).
        #[inline]
        pub async fn fill_buf(&mut self) -> io::Result<&[u8]> {
            self.peek(1).await
        }

        /// As [`fill_buf`](Self::fill_buf), by polling.
        ///
        /// # Errors
        /// As [`recv`](Self::recv).
        #[inline]
        pub fn poll_fill_buf(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
            self.poll_peek(cx, 1)
        }

        /// Drops the first `n` bytes of those that [`fill_buf`](Self::fill_buf) or [`peek`](Self::peek) showed last.
        ///
        /// # Panics
        /// If fewer were shown.
        #[inline]
        pub fn consume(&mut self, n: usize) {
            self.unread.consume(n);
        }

        /// Shows the next bytes as [`fill_buf`](Self::fill_buf) does, but waits for at least `n` of them; fewer only at the end of
        /// the stream. If they lie in several leases, they are copied into one piece of memory.
        ///
        /// Cancel-safe: bytes that have come stay.
        ///
        /// # Errors
        /// As [`recv`](Self::recv), also if fewer than `n` bytes came before the error: those stay, and [`recv`](Self::recv) returns
        /// them.
        pub async fn peek(&mut self, n: usize) -> io::Result<&[u8]> {
            poll_fn(|cx| self.poll_peek(cx, n).map_ok(drop)).await?;
            Ok(self.unread.shown())
        }

        /// As [`peek`](Self::peek), by polling.
        ///
        /// # Errors
        /// As [`peek`](Self::peek).
        #[inline]
        pub fn poll_peek(&mut self, cx: &mut Context<'_>, n: usize) -> Poll<io::Result<&[u8]>> {
            self.unread.poll_peek(&self.handle, cx, n)
        }

        /// The next `n` bytes as one lease: without a copy if they were received in one piece, else gathered in memory of the heap.
        ///
        /// Cancel-safe: bytes that have come stay.
        ///
        /// # Errors
        /// As [`recv`](Self::recv); `UnexpectedEof`, naming both numbers, if the stream ends before. The bytes that have come stay, and
        /// [`recv`](Self::recv) returns them.
        pub async fn recv_exact(&mut self, n: usize) -> io::Result<Lease> {
            poll_fn(|cx| self.poll_recv_exact(cx, n)).await
        }

        /// As [`recv_exact`](Self::recv_exact), by polling.
        ///
        /// # Errors
        /// As [`recv_exact`](Self::recv_exact).
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
        /// Queues a chunk, which is a [`Lease`](crate::Lease) or any owned bytes, and sends all of it. The chunks of a turn leave
        /// in one operation, without being copied.
        ///
        /// Resolves once the queue is within the runtime's [send bound](crate::Builder::send_bound). The first poll queues the chunk,
        /// which is then sent in order even if the future is dropped. The exception: if an earlier, dropped `send` still fills the
        /// queue, the chunk waits, and dropping the future sends nothing.
        ///
        /// # Errors
        /// The errors of earlier sends, since this one has not left yet: `BrokenPipe`, `ConnectionReset`, …; [`drain`](Self::drain)
        /// reports all. `BrokenPipe` after [`shutdown`](Self::shutdown).
        #[inline]
        pub fn send(&mut self, chunk: impl crate::IntoChunk) -> SendFuture<'_> {
            self.handle.send(chunk.into())
        }

        /// Queues a chunk once the queue is within the send bound; it is then empty. While this is pending, it stays with the caller.
        ///
        /// # Errors
        /// As [`send`](Self::send).
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

        /// Sends several chunks in order. If the future is dropped, those that it has queued are sent, and the others are not.
        ///
        /// # Errors
        /// As [`send`](Self::send).
        pub async fn send_vectored<C: crate::IntoChunk>(
            &mut self,
            chunks: impl IntoIterator<Item = C>,
        ) -> io::Result<()> {
            self.handle.send_all(chunks.into_iter().map(Into::into)).await
        }

        /// Waits until [`try_write`](Self::try_write) queues something: until less than the send bound is queued, also if the kernel has no
        /// space for more.
        ///
        /// Cancel-safe. One task at a time may wait.
        ///
        /// # Errors
        /// As [`send`](Self::send).
        pub async fn writable(&self) -> io::Result<()> {
            poll_fn(|cx| self.handle.poll_space(cx)).await
        }

        /// As [`write`](Self::write), without waiting.
        ///
        /// # Errors
        /// `WouldBlock` if the send bound is reached; as [`send`](Self::send).
        pub fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.handle.try_write(bytes)
        }

        /// Sends or queues as many bytes as the kernel takes now and the send bound allows, and returns how many; pending while that is none.
        /// Bytes that are many go to the kernel at once if nothing of the stream is in flight; others are copied, and leave with the
        /// turn, in order with those of [`send`](Self::send).
        ///
        /// # Errors
        /// As [`send`](Self::send).
        pub fn poll_write(
            &mut self,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.handle.poll_write(cx, &[IoSlice::new(bytes)])
        }

        /// As [`poll_write`](Self::poll_write), of several slices, one behind the other.
        ///
        /// # Errors
        /// As [`send`](Self::send).
        pub fn poll_write_vectored(
            &mut self,
            cx: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.handle.poll_write(cx, slices)
        }

        /// Sends borrowed bytes: as many as [`poll_write`](Self::poll_write) takes, and at least one unless there are none. Returns
        /// how many. Bytes that are owned go without a copy by [`send`](Self::send).
        ///
        /// Cancel-safe: if the future is dropped before it is ready, nothing was sent or queued.
        ///
        /// # Errors
        /// As [`send`](Self::send).
        pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            poll_fn(|cx| self.poll_write(cx, bytes)).await
        }

        /// As [`write`](Self::write), of several slices, one behind the other.
        ///
        /// # Errors
        /// As [`send`](Self::send).
        pub async fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            poll_fn(|cx| self.poll_write_vectored(cx, slices)).await
        }

        /// Sends all of these borrowed bytes, waiting as often as the send bound is reached.
        ///
        /// Not cancel-safe: if the future is dropped, some of the bytes may have been queued.
        ///
        /// # Errors
        /// As [`send`](Self::send).
        pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
            if bytes.is_empty() {
                crate::tasks::consume_budget().await;
            }
            while !bytes.is_empty() {
                bytes = &bytes[self.write(bytes).await?..];
            }
            Ok(())
        }

        /// Reports the error of an earlier send, if there was one. It never waits: queued bytes leave with the turn, without
        /// further calls. To wait until the kernel has taken it, use [`drain`](Self::drain).
        ///
        /// # Errors
        /// The error of a send; from then on every time.
        pub async fn flush(&mut self) -> io::Result<()> {
            poll_fn(|cx| self.poll_flush(cx)).await
        }

        /// As [`flush`](Self::flush), by polling. It is always ready.
        ///
        /// # Errors
        /// As [`flush`](Self::flush).
        pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.handle.poll_flush(cx)
        }

        /// Waits until the kernel has taken everything that was sent. Cancel-safe.
        ///
        /// # Errors
        /// The error of a send; from then on every time.
        pub async fn drain(&mut self) -> io::Result<()> {
            poll_fn(|cx| self.poll_drain(cx)).await
        }

        /// As [`drain`](Self::drain), by polling.
        ///
        /// # Errors
        /// As [`drain`](Self::drain).
        pub fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.handle.poll_drain(cx)
        }

        /// Closes the sending direction once everything has left: the peer sees the end of the stream. Receiving continues.
        /// Cancel-safe; once polled, it happens even if the future is dropped.
        ///
        /// # Errors
        /// The error of a send.
        pub async fn shutdown(&mut self) -> io::Result<()> {
            poll_fn(|cx| self.poll_shutdown(cx)).await
        }

        /// As [`shutdown`](Self::shutdown), by polling.
        ///
        /// # Errors
        /// As [`shutdown`](Self::shutdown).
        pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.handle.poll_shutdown(cx)
        }
    };

    // Methods of a type that owns both directions.
    (stream) => {
        shared!(recv);
        shared!(send);

        /// Closes the stream once the kernel has taken the queued bytes, and waits for that. Received bytes that were not taken are lost. If the
        /// future is dropped, the stream closes as a dropped one does.
        ///
        /// # Errors
        /// The error of a send, or of the connection; it is closed all the same.
        pub async fn close(self) -> io::Result<()> {
            let released = poll_fn(|cx| self.handle.poll_close(cx)).await?;
            self.handle.close(released)
        }

        /// Closes at once: discards queued bytes; a TCP connection is reset.
        pub fn abort(self) {
            self.handle.abort();
        }

        /// Splits the stream into its two directions, for two tasks. It closes when both halves are dropped; dropping the sending
        /// half alone closes the sending direction.
        pub fn split(self) -> (RecvHalf, SendHalf) {
            let handle = Rc::new(self.handle);
            (RecvHalf::new(handle.clone(), self.unread), SendHalf::new(handle))
        }

        /// Puts the two halves of a stream together again.
        ///
        /// # Errors
        /// If they are halves of different streams, or of a stream of another type; or after the runtime's end. The error has both
        /// halves.
        pub fn reunite(receiving: RecvHalf, sending: SendHalf) -> Result<Self, ReuniteError> {
            let (handle, unread) = reunite(receiving, sending, Self::FAMILY)?;
            Ok(Self { handle, unread })
        }
    };

    // `into_parts`, `into_std` and `from_parts` of a stream.
    (parts $std:ty) => {
        /// Takes the connection off this runtime as a stream of the standard library, which is non-blocking: as
        /// [`into_parts`](Self::into_parts), if nothing was received ahead.
        ///
        /// # Errors
        /// As [`into_parts`](Self::into_parts); `InvalidData` if bytes were received that no task has taken, which are lost: `into_parts` has them.
        pub async fn into_std(self) -> io::Result<$std> {
            let Parts { socket, received, .. } = self.into_parts().await?;
            if received.is_empty() {
                annulus_kernel::descriptor::set_nonblocking(&socket, true)?;
                return Ok(socket.into());
            }
            let text = format!("{} bytes received ahead: into_parts has them", received.len());
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }

        /// Takes the connection off this runtime, to move it to another thread, or to code that is not of this crate. Waits until the
        /// kernel has taken the sent bytes and no longer uses its memory, and ends the receive in flight; bytes that it brought are part of
        /// the result, and not in the socket any more. If the future is dropped, the connection closes as a dropped stream does.
        ///
        /// The socket is blocking, as a child process expects of its standard streams.
        ///
        /// # Errors
        /// The error of a send, or of the connection (`ConnectionReset`, …), even if bytes came before it: on the other runtime they would
        /// look complete. The connection is then closed. `Unsupported` under a simulated kernel.
        #[allow(unsafe_code)]
        pub async fn into_parts(self) -> io::Result<Parts> {
            let Self { handle, unread } = self;
            if !handle.core.kernel.real_descriptors() {
                let text = "a simulated connection cannot leave its simulation";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            let (fd, received, permit) = poll_fn(|cx| handle.poll_release(cx)).await?;
            handle.forget();
            // SAFETY: the slot was removed, with nothing in flight, and the handle forgotten: nothing else has the descriptor, which is
            // a real one, as checked above.
            let parts = unsafe { Parts::of_fd(fd, unread.in_front_of(received), permit) };
            annulus_kernel::descriptor::set_nonblocking(&parts.socket, false)?;
            Ok(parts)
        }

        /// Takes a connection over from another runtime, with the bytes received there.
        ///
        /// # Errors
        /// Outside a runtime, or under a simulated kernel; `InvalidInput` for 2 GiB of received bytes or more. The connection is then
        /// closed.
        pub fn from_parts(parts: Parts) -> io::Result<Self> {
            let core = current::get()?;
            if !core.kernel.real_descriptors() {
                let text = "a real connection cannot enter a simulation";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            if parts.received.len() > i32::MAX as usize {
                let text =
                    format!("{} bytes received ahead are above {}", parts.received.len(), i32::MAX);
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

    // `accept` and `poll_accept` of a listener with a field `handle`. `adopt` makes a stream and its peer's address of an accepted
    // connection; `None` if the peer has reset it.
    (accept $stream:ident, $adopt:ident) => {
        /// The next connection, and its peer's address.
        ///
        /// Cancel-safe: the accept belongs to the listener, so dropping the future loses no connection. Several tasks may wait at
        /// once. Running out of descriptors is no error: the listener pauses until one is closed.
        ///
        /// Connections that were reset before they were accepted are passed over, and counted in
        /// [`Counters::aborted_accepts`](crate::Counters::aborted_accepts).
        ///
        /// # Errors
        /// An error that makes the listener useless; or after the runtime's end.
        pub async fn accept(&self) -> io::Result<($stream, SocketAddr)> {
            loop {
                if let Some(accepted) = self.$adopt(self.handle.accept().await?)? {
                    return Ok(accepted);
                }
            }
        }

        /// As [`accept`](Self::accept), by polling. Every task that polled is woken.
        ///
        /// # Errors
        /// As [`accept`](Self::accept).
        pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<($stream, SocketAddr)>> {
            loop {
                if let Some(accepted) = self.$adopt(ready!(self.handle.poll_accept(cx))?)? {
                    return Poll::Ready(Ok(accepted));
                }
            }
        }
    };

    // Setters of options with a field `listen` of [`ListenSettings`](super::listener_handle::ListenSettings).
    (listen) => {
        /// Connections that the kernel completes and keeps until they are accepted; capped at `net.core.somaxconn`. 4096 by
        /// default.
        pub fn backlog(mut self, connections: u32) -> Self {
            self.listen.backlog = connections;
            self
        }

        /// Accepts only as many connections as the limit allows to be open; the rest waits in the kernel's backlog.
        ///
        /// Without a limit, the default, a listener accepts up to 64 connections ahead of `accept` (more for one burst), and pauses
        /// while the process is out of descriptors.
        pub fn limit(mut self, limit: &ConnectionLimit) -> Self {
            self.listen.limit = Some(limit.clone());
            self
        }
    };
}

pub(super) use shared;
