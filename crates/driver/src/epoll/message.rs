//! Messages: datagrams, and bytes with control messages. One call receives several datagrams, into
//! buffers with the same layout as on io_uring.
#![allow(unsafe_code)]

use super::Epoll;
use crate::event::Event;
use crate::pool::Pool;
use crate::slots::{OpKind, Token};
use annulus_kernel::{Fd, IoVec, Kernel, MessageHead, MessageLayout, MessageSlot, MsgHeader};
use rustix::io::Errno;
use std::ptr;
use std::rc::Rc;

/// Maximum number of messages that one call receives.
const MAX_BATCH_MESSAGES: usize = 32;
/// Number of messages requested if the last call did not fill every buffer. It is more than one, so
/// that a single message leaves a buffer empty, which shows that the socket is empty.
const SMALL_BATCH_MESSAGES: usize = 4;

/// The arguments of a call that receives several messages. `receive` points the slots at this
/// batch's vectors.
///
/// From `take_buffers` until `receive` returns, the first `len` slots point into buffers that the
/// pool has lent.
pub(super) struct MessageBatch {
    len: usize,
    slots: [MessageSlot; MAX_BATCH_MESSAGES],
    vectors: [IoVec; MAX_BATCH_MESSAGES],
    ids: [u16; MAX_BATCH_MESSAGES],
}

impl MessageBatch {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            len: 0,
            slots: [MessageSlot { header: MsgHeader::EMPTY, len: 0 }; MAX_BATCH_MESSAGES],
            vectors: [IoVec { base: ptr::null(), len: 0 }; MAX_BATCH_MESSAGES],
            ids: [0; MAX_BATCH_MESSAGES],
        })
    }

    /// Takes up to `wanted` buffers of a pool, and points the slots at them.
    fn take_buffers(&mut self, pool: &Pool, wanted: usize, layout: MessageLayout) {
        self.len = 0;
        while self.len < wanted
            && let Some((id, buffer)) = pool.lend()
        {
            self.point(self.len, id, buffer, pool.buffer_size() as usize, layout);
            self.len += 1;
        }
    }

    /// Points a slot at a buffer.
    fn point(&mut self, at: usize, id: u16, buffer: *mut u8, size: usize, layout: MessageLayout) {
        assert!(layout.payload_at() <= size, "a buffer is too small for the head of a message");
        let part = |offset| buffer.wrapping_add(offset).cast_const();
        let (name, control) = (part(MessageLayout::HEAD_BYTES), part(layout.control_at()));
        let payload = part(layout.payload_at());
        self.ids[at] = id;
        self.vectors[at] = IoVec { base: payload, len: size - layout.payload_at() };
        self.slots[at].header = MsgHeader {
            name,
            name_len: layout.name as u32,
            // `receive` sets the vectors.
            vectors: ptr::null(),
            vector_count: 1,
            control,
            control_len: layout.control,
            flags: 0,
        };
    }

    /// Receives into these buffers, and returns the number of messages.
    fn receive(&mut self, kernel: &dyn Kernel, fd: Fd) -> Result<usize, Errno> {
        let (slots, vectors) = (&mut self.slots[..self.len], self.vectors.as_ptr());
        for (at, slot) in slots.iter_mut().enumerate() {
            // Set only here: a later use of the whole batch would invalidate the pointer.
            slot.header.vectors = vectors.wrapping_add(at);
        }
        // SAFETY: the slots point into buffers that are lent to this driver, and to vectors of this
        // batch.
        unsafe { kernel.receive_messages(fd, slots) }
    }

    /// Returns the head of a received message, which belongs at the start of its buffer.
    fn head(&self, at: usize) -> MessageHead {
        let MessageSlot { header, len } = &self.slots[at];
        MessageHead {
            name_len: header.name_len,
            control_len: header.control_len as u32,
            payload_len: *len,
            flags: header.flags as u32,
        }
    }
}

impl Epoll {
    /// Returns the pool whose buffers an operation fills.
    #[inline]
    pub(super) fn pool_of(&self, token: Token) -> &Rc<Pool> {
        let datagrams =
            self.common.datagrams.as_ref().filter(|_| token.kind() == OpKind::RecvDatagram);
        datagrams.unwrap_or(&self.common.pool)
    }

    /// Receives messages into lent buffers: several datagrams at once, or one part of a stream.
    pub(super) fn receive_messages(
        &mut self,
        fd: Fd,
        token: Token,
        layout: MessageLayout,
    ) -> Option<Event> {
        let several = if self.watches.get(fd).filled_batch {
            MAX_BATCH_MESSAGES
        } else {
            SMALL_BATCH_MESSAGES
        };
        let wanted = if token.kind() == OpKind::RecvDatagram { several } else { 1 };
        let mut batch = self.batch.take().unwrap_or_else(MessageBatch::new);
        batch.take_buffers(self.pool_of(token), wanted, layout);
        let taken = batch.len;
        if taken == 0 {
            self.batch = Some(batch);
            return self.end_without_buffer(fd, token);
        }
        let received = batch.receive(&*self.common.kernel, fd);
        let count = received.unwrap_or(0);
        let pool = self.pool_of(token);
        // The buffer that was lent first is given back last, so that it is lent next.
        batch.ids[count..taken].iter().rev().for_each(|id| pool.give_back(*id));
        let event = match received {
            Ok(_) => self.queue_messages(&batch, count, fd, token, layout),
            Err(errno) => self.end_input(fd, token, Err(errno)),
        };
        let watch = self.watches.get(fd);
        watch.filled_batch = count == taken;
        if (1..taken).contains(&count) {
            watch.record_short_receive();
        }
        self.batch = Some(batch);
        event
    }

    /// Queues an event for each received message, and returns the first. An empty part of a stream
    /// means that the stream has ended.
    fn queue_messages(
        &mut self,
        batch: &MessageBatch,
        count: usize,
        fd: Fd,
        token: Token,
        layout: MessageLayout,
    ) -> Option<Event> {
        let more = token.kind() == OpKind::RecvDatagram || batch.head(0).payload_len > 0;
        if !more {
            self.watches.get(fd).input = None;
        }
        for at in 0..count {
            let (id, head) = (batch.ids[at], batch.head(at));
            let payload = batch.vectors[at].len.min(head.payload_len as usize);
            // SAFETY: the buffer is lent to this driver until its event has been taken, and `point`
            // has checked that the head fits.
            unsafe {
                self.pool_of(token)
                    .address(id)
                    .cast::<[u8; MessageLayout::HEAD_BYTES]>()
                    .write(head.bytes())
            };
            let filled = (layout.payload_at() + payload) as u32;
            self.pool_of(token).record_written(id, filled);
            self.bytes_left = self.bytes_left.saturating_sub(head.payload_len);
            self.ready_events.push_back(Event {
                token,
                result: Ok(filled),
                more,
                buffer: Some(id),
            });
        }
        self.events_left = self.events_left.saturating_sub(count as u32 - 1).max(1);
        self.ready_events.pop_front()
    }

    /// Ends a non-blocking send, which has an event only if it failed. If the socket had no space,
    /// it is not writable until the next edge.
    pub(super) fn finish_message_now(&mut self, token: Token, fd: Fd, sent: Result<usize, Errno>) {
        let Err(errno) = sent else { return };
        if errno == Errno::AGAIN
            && let Some(watch) = self.watches.find(fd)
        {
            watch.writable = false;
        }
        self.end(token, Err(errno));
    }

    /// # Safety
    /// The header and everything that it refers to must be writable, and no other code may use it.
    pub(super) unsafe fn receive_message(
        &mut self,
        fd: Fd,
        token: Token,
        header: *mut MsgHeader,
    ) -> Option<Event> {
        // SAFETY: the caller guarantees that this memory is writable and unused by other code.
        let result = unsafe { self.common.kernel.receive_message(fd, header) };
        self.end_input(fd, token, result)
    }
}
