//! Messages: datagrams, and what travels beside bytes. Received several at once, into buffers laid out as io_uring lays
//! them out.
#![allow(unsafe_code)]

use super::Epoll;
use super::calls::{self, again};
use crate::event::Event;
use crate::pool::Pool;
use crate::token::{Kind, Token};
use annulus_kernel::{Fd, IoVec, Layout, Message, MsgHeader};
use rustix::io::Errno;
use std::ptr;
use std::rc::Rc;

/// Most messages that one call receives.
const MANY: usize = 32;
/// As many are asked for where the last call did not bring all it had room for. More than one, so that a single message
/// is seen to be the only one.
const FEW: usize = 4;

/// What a receive of several messages needs. The parts point into one another once they are in place.
pub(super) struct Batch {
    headers: [libc::mmsghdr; MANY],
    vectors: [IoVec; MANY],
    ids: [u16; MANY],
}

impl Batch {
    pub(super) fn new() -> Box<Self> {
        // SAFETY: all of it is numbers and pointers, for which zero is a value.
        unsafe { Box::new(std::mem::zeroed()) }
    }

    /// Points the next header at a buffer.
    fn aim(&mut self, at: usize, id: u16, buffer: *mut u8, size: usize, layout: Layout) {
        // SAFETY: the caller's layout ends within the buffer.
        let (name, control, payload) = unsafe {
            let name = buffer.add(Layout::HEAD);
            (name, buffer.add(layout.control_at()), buffer.add(layout.payload_at()))
        };
        self.ids[at] = id;
        self.vectors[at] = IoVec { base: payload, len: size - layout.payload_at() };
        let header = &mut self.headers[at].msg_hdr;
        header.msg_name = name.cast();
        header.msg_namelen = layout.name as libc::socklen_t;
        header.msg_iov = (&raw mut self.vectors[at]).cast();
        header.msg_iovlen = 1;
        header.msg_control = control.cast();
        header.msg_controllen = layout.control;
        header.msg_flags = 0;
    }

    /// # Safety
    /// The first `count` headers must have been aimed at memory of the caller's.
    unsafe fn receive(&mut self, fd: Fd, count: usize) -> Result<usize, Errno> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC;
        again(|| {
            let (headers, timeout) = (self.headers.as_mut_ptr(), ptr::null_mut());
            // SAFETY: the caller's promise.
            answer(
                unsafe { libc::recvmmsg(fd.raw(), headers, count as u32, flags, timeout) } as isize
            )
        })
    }

    /// The head that belongs before the message received at a place.
    fn head(&self, at: usize) -> Message {
        let received = &self.headers[at];
        Message {
            name_len: received.msg_hdr.msg_namelen,
            control_len: received.msg_hdr.msg_controllen as u32,
            payload_len: received.msg_len,
            flags: received.msg_hdr.msg_flags as u32,
        }
    }
}

/// What a call answered, or why not.
fn answer(value: isize) -> Result<usize, Errno> {
    usize::try_from(value).map_err(|_| {
        let errno = std::io::Error::last_os_error().raw_os_error();
        Errno::from_raw_os_error(errno.unwrap_or_default())
    })
}

/// # Safety
/// The header and all that it names must be readable.
pub(super) unsafe fn send(fd: Fd, header: *const u8) -> Result<usize, Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the caller's promise.
    again(|| answer(unsafe { libc::sendmsg(fd.raw(), header.cast(), flags) }))
}

/// Sends the parts that a header names, and what goes beside them.
///
/// # Safety
/// As for [`send`].
pub(super) unsafe fn send_vector(
    fd: Fd,
    header: *const u8,
    parts: &[IoVec],
) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let passes = unsafe { (*header.cast::<MsgHeader>()).control_len > 0 };
    // SAFETY: the caller's promise, passed on.
    unsafe { if passes { send(fd, header) } else { calls::send_all(fd, parts) } }
}

/// # Safety
/// The header and all that it names must be the caller's, to write where it receives.
unsafe fn receive(fd: Fd, header: *mut u8) -> Result<u32, Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC;
    // SAFETY: the caller's promise.
    let count = again(|| answer(unsafe { libc::recvmsg(fd.raw(), header.cast(), flags) }))?;
    Ok(count as u32)
}

/// The room that a header tells.
///
/// # Safety
/// It must point to a `struct msghdr`.
pub(super) unsafe fn layout(header: *const u8) -> Layout {
    // SAFETY: the caller's promise.
    let header = unsafe { &*header.cast::<MsgHeader>() };
    Layout { name: header.name_len as usize, control: header.control_len }
}

impl Epoll {
    /// The pool that operations of this kind borrow from.
    #[inline]
    pub(super) fn pool_of(&self, token: Token) -> &Rc<Pool> {
        let packets = self.packets.as_ref().filter(|_| token.kind() == Kind::Packet);
        packets.unwrap_or(&self.pool)
    }

    /// Receives messages into lent buffers: several datagrams at once, but of a stream one piece.
    pub(super) fn receive_messages(
        &mut self,
        fd: Fd,
        token: Token,
        layout: Layout,
    ) -> Option<Event> {
        let several = if self.watches.known(fd).bulk { MANY } else { FEW };
        let wanted = if token.kind() == Kind::Packet { several } else { 1 };
        let mut batch = self.batch.take().unwrap_or_else(Batch::new);
        let room = self.aim(&mut batch, token, wanted, layout);
        if room == 0 {
            self.batch = Some(batch);
            return self.starve(fd, token);
        }
        // SAFETY: so many headers were aimed at buffers lent just now.
        let received = unsafe { batch.receive(fd, room) };
        let count = received.unwrap_or(0);
        let pool = self.pool_of(token);
        // The warmest one last, to be the first again.
        batch.ids[count..room].iter().rev().for_each(|id| pool.give_back(*id));
        let event = match received {
            Ok(_) => self.hand_out(&batch, count, fd, token, layout),
            Err(errno) => self.end_input(fd, token, Err(errno)),
        };
        let watch = self.watches.known(fd);
        watch.bulk = count == room;
        if (1..room).contains(&count) {
            watch.drained();
        }
        self.batch = Some(batch);
        event
    }

    /// Borrows buffers and points the batch at them; tells how many.
    fn aim(&self, batch: &mut Batch, token: Token, wanted: usize, layout: Layout) -> usize {
        let pool = self.pool_of(token);
        for at in 0..wanted {
            let Some(id) = pool.lend() else { return at };
            // SAFETY: the pool lent the buffer just now.
            let address = unsafe { pool.address(id) };
            batch.aim(at, id, address, pool.buffer_size() as usize, layout);
        }
        wanted
    }

    /// Events for the messages received; the first of them. An empty piece of a stream is its end.
    fn hand_out(
        &mut self,
        batch: &Batch,
        count: usize,
        fd: Fd,
        token: Token,
        layout: Layout,
    ) -> Option<Event> {
        let more = token.kind() == Kind::Packet || batch.head(0).payload_len > 0;
        if !more {
            self.watches.known(fd).input = None;
        }
        for at in 0..count {
            let (id, head) = (batch.ids[at], batch.head(at));
            let room = batch.vectors[at].len.min(head.payload_len as usize);
            // SAFETY: the buffer is lent to this driver, and begins with room for the head.
            unsafe {
                self.pool_of(token).address(id).cast::<[u8; Layout::HEAD]>().write(head.bytes())
            };
            let filled = (layout.payload_at() + room) as u32;
            self.pool_of(token).filled(id, filled);
            self.budget = self.budget.saturating_sub(head.payload_len);
            self.done.push_back(Event { token, result: Ok(filled), more, buffer: Some(id) });
        }
        self.rounds = self.rounds.saturating_sub(count as u32 - 1).max(1);
        self.done.pop_front()
    }

    /// A send that must not wait. Where it finds no room, the next one waits for an edge.
    ///
    /// # Safety
    /// See [`Driver::submit_memory`](crate::Driver::submit_memory).
    pub(super) unsafe fn send_message_now(&mut self, token: Token, fd: Fd, header: *const u8) {
        // SAFETY: the caller's promise, passed on.
        let Err(errno) = (unsafe { send(fd, header) }) else { return };
        if errno == Errno::AGAIN
            && let Some(watch) = self.watches.find(fd)
        {
            watch.writable = false;
        }
        self.end(token, Err(errno));
    }

    pub(super) fn receive_message(
        &mut self,
        fd: Fd,
        token: Token,
        header: *mut u8,
    ) -> Option<Event> {
        // SAFETY: the submitter lends all of it until the terminal event, which is still to come.
        let result = unsafe { receive(fd, header) };
        self.end_input(fd, token, result)
    }
}
