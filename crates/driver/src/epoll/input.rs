//! Operations that wait for a descriptor to become readable: receives, accepts, polls.
#![allow(unsafe_code)]

use super::{Epoll, calls};
use crate::event::Event;
use crate::slots::Token;
use annulus_kernel::{Fd, MessageLayout, MsgHeader};
use rustix::event::PollFlags;
use rustix::io::Errno;

/// An operation that waits for input.
#[derive(Clone, Copy, Debug)]
pub(super) enum InputOp {
    /// Receives into the pool's buffers until `left` bytes have arrived; without `multi`, once. No
    /// receive exceeds `left`.
    Pooled { left: u64, multi: bool },
    /// Receives into the submitter's memory, once.
    Submitter { buffer: *mut u8, len: u32 },
    /// Accepts; without `multi`, once.
    Accept { multi: bool },
    /// Reports each edge. Without `multi`, reports once that the descriptor is readable now, and
    /// does not clear its readiness.
    Readable { multi: bool },
    /// Receives messages into the pool's buffers.
    Messages { layout: MessageLayout },
    /// Receives one message into the memory that the submitter's header refers to.
    Message { header: *mut MsgHeader },
}

impl InputOp {
    /// Creates a receive into the pool's buffers that ends after `limit` bytes; zero means no
    /// limit.
    pub(super) fn pooled(limit: u32) -> Self {
        let left = if limit == 0 { u64::MAX } else { u64::from(limit) };
        Self::Pooled { left, multi: true }
    }
}

impl Epoll {
    /// # Safety
    /// Memory that the input refers to must stay valid and unused by other code until the terminal
    /// event has been taken.
    pub(super) unsafe fn start_input(&mut self, token: Token, fd: Fd, input: InputOp) {
        let watch = self.watches.get_or_insert(fd);
        if watch.input.is_some() {
            return self.end(token, Err(Errno::BUSY));
        }
        watch.input = Some((token, input));
        if let Err(errno) = self.await_edge(token, fd) {
            self.watches.get(fd).input = None;
            self.end(token, Err(errno));
        }
    }

    /// Tries the input operation of a descriptor, if it has one.
    #[inline]
    pub(super) fn attempt_input(&mut self, fd: Fd) -> Option<Event> {
        let watch = self.watches.get(fd);
        let (token, input) = watch.input?;
        match input {
            InputOp::Pooled { left, multi } => self.receive_pooled(fd, token, left, multi),
            // SAFETY: the caller of `start_input` guarantees that the memory belongs to the
            // operation until its terminal event, which has not been reported yet.
            InputOp::Submitter { buffer, len } => unsafe { self.receive(fd, token, buffer, len) },
            InputOp::Accept { multi } => self.accept(fd, token, multi),
            InputOp::Messages { layout } => self.receive_messages(fd, token, layout),
            // SAFETY: the caller of `start_input` guarantees that the memory belongs to the
            // operation until its terminal event, which has not been reported yet.
            InputOp::Message { header } => unsafe { self.receive_message(fd, token, header) },
            InputOp::Readable { multi: true } => {
                watch.readable = false;
                Some(Event { token, result: Ok(1), more: true, buffer: None })
            }
            InputOp::Readable { multi: false } => {
                let result = calls::check_ready(&*self.common.kernel, fd, PollFlags::IN);
                self.end_input(fd, token, result)
            }
        }
    }

    #[inline]
    fn receive_pooled(&mut self, fd: Fd, token: Token, left: u64, multi: bool) -> Option<Event> {
        let Some((id, buffer)) = self.common.pool.lend() else {
            return self.end_without_buffer(fd, token);
        };
        let most = u32::try_from(left).unwrap_or(u32::MAX);
        let len = self.common.pool.receive_len().min(most);
        // SAFETY: the buffer belongs to this driver until it is given back, and is at least `len`
        // bytes long.
        let result = unsafe { self.common.kernel.receive(fd, buffer, len) };
        let Ok(count @ 1..) = result else {
            self.common.pool.give_back(id);
            return self.end_input(fd, token, result);
        };
        self.common.pool.record_written(id, count);
        self.record_receive(fd, count, len);
        let left = left.saturating_sub(u64::from(count));
        let more = multi && left > 0;
        self.watches.get(fd).input = more.then_some((token, InputOp::Pooled { left, multi }));
        Some(Event { token, result: Ok(count), more, buffer: Some(id) })
    }

    /// Updates the readiness of a descriptor and the byte budget after a receive.
    #[inline]
    fn record_receive(&mut self, fd: Fd, count: u32, len: u32) {
        let watch = self.watches.get(fd);
        let short_receive_is_ambiguous = || !calls::is_tcp(&*self.common.kernel, fd);
        if count < len
            && !*watch.short_receive_is_ambiguous.get_or_insert_with(short_receive_is_ambiguous)
        {
            watch.record_short_receive();
        }
        self.bytes_left = self.bytes_left.saturating_sub(count);
    }

    #[cold]
    pub(super) fn end_without_buffer(&mut self, fd: Fd, token: Token) -> Option<Event> {
        self.common.counters.enobufs += 1;
        self.end_input(fd, token, Err(Errno::NOBUFS))
    }

    /// # Safety
    /// The memory must be writable, and no other code may use it.
    unsafe fn receive(&mut self, fd: Fd, token: Token, buffer: *mut u8, len: u32) -> Option<Event> {
        // SAFETY: the caller guarantees that the memory is writable and unused by other code.
        let result = unsafe { self.common.kernel.receive(fd, buffer, len) };
        if let Ok(count @ 1..) = result {
            self.record_receive(fd, count, len);
        }
        self.end_input(fd, token, result)
    }

    fn accept(&mut self, fd: Fd, token: Token, multi: bool) -> Option<Event> {
        match self.common.kernel.accept(fd).map(|socket| socket as u32) {
            Ok(socket) if multi => {
                Some(Event { token, result: Ok(socket), more: true, buffer: None })
            }
            result => self.end_input(fd, token, result),
        }
    }

    /// Ends an operation and returns its last event, or `None` if it must wait for the next edge.
    #[inline]
    pub(super) fn end_input(
        &mut self,
        fd: Fd,
        token: Token,
        result: Result<u32, Errno>,
    ) -> Option<Event> {
        let watch = self.watches.get(fd);
        if result == Err(Errno::AGAIN) {
            watch.record_empty();
            return None;
        }
        watch.input = None;
        Some(Event { token, result, more: false, buffer: None })
    }
}
