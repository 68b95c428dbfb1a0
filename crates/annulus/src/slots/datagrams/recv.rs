//! Receiving datagrams: at most one receive armed a mailbox, which brings many; letters queue until they are taken.
//!
//! *Idle* → *wanted* (on the list of those to arm) → *armed* (multishot into lent buffers) or *single* (once, into heap
//! memory) → idle again at the terminal event. What is not taken is bounded by count: at the bound the receive is
//! cancelled, and armed again once half was taken. Meanwhile the kernel queues, and when its own queue is full it drops
//! and counts. An empty datagram ends a multishot receive; so does an error, which is told once: neither ends the socket.
#![allow(unsafe_code)]

use super::{Format, Mail};
use crate::lease::Lease;
use crate::runtime::after::After;
use crate::runtime::inner::Inner;
use crate::runtime::memory::{HeapMemory, Meter};
use crate::runtime::recheck::Recheck;
use crate::waiters::{Wait, WaiterId, Waiters};
use annulus_driver::{Event, Kind, MemoryOp, Token};
use annulus_kernel::{Domain, IoVec, Layout, Message, MsgHeader, SocketQuery};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, Waker};

/// Letters that a mailbox holds before it leaves the rest to the kernel. One run of a multishot receive brings up to 33,
/// so there can be as many more, once.
const MOST_LETTERS: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Wanted,
    Armed,
    Single,
    Cancelling,
}

/// A received datagram, not looked at: its buffer, and how much of that is filled.
enum Letter {
    Lent { id: u16, len: u32 },
    Heap(Lease),
}

/// Memory of a receive that is not lent: a buffer of the usual layout, and the header that points into it.
pub(crate) struct Desk {
    header: MsgHeader,
    vector: IoVec,
    memory: Box<HeapMemory>,
}

/// The receiving half of a mailbox.
pub(crate) struct Inbox {
    state: State,
    letters: VecDeque<Letter>,
    /// What is left of datagrams that came together, of which one was taken.
    rest: Option<Box<Mail>>,
    /// Told once, to whoever asks next.
    error: Option<Errno>,
    /// In flight, while single.
    desk: Option<Box<Desk>>,
    max_datagram: Option<usize>,
    /// Datagrams for which there was no room, as the kernel counted them last, modulo 2^32.
    drops: u32,
    /// All of them.
    dropped: u64,
    pub(super) waiters: Waiters,
}

impl Inbox {
    pub(super) fn new(max_datagram: Option<usize>) -> Self {
        Self {
            state: State::Idle,
            letters: VecDeque::new(),
            rest: None,
            error: None,
            desk: None,
            max_datagram,
            drops: 0,
            dropped: 0,
            waiters: Waiters::default(),
        }
    }

    /// Nothing in flight.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle | State::Wanted)
    }

    /// An error that the kernel told of elsewhere is whose turn it is to receive; false where nobody waits for that.
    pub(super) fn hear(&mut self, errno: Errno) -> bool {
        let heard = !self.waiters.is_empty();
        if heard {
            self.error = Some(errno);
        }
        heard
    }

    pub(crate) fn is_awaited_by(&self, task: &Waker) -> bool {
        self.waiters.include(task)
    }

    /// What the next receives would take, at least.
    fn available(&self) -> usize {
        self.letters.len() + usize::from(self.rest.is_some()) + usize::from(self.error.is_some())
    }

    fn wants_more(&self) -> bool {
        self.state == State::Idle && self.error.is_none() && self.letters.len() <= MOST_LETTERS / 2
    }
}

/// Errors that say nothing about the socket or its peers: the receive is armed again.
fn ends_the_operation_only(errno: Errno) -> bool {
    matches!(errno, Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN | Errno::NOMEM)
}

impl Inner {
    /// The next datagram; with `singly`, one of those that came together, else all of them.
    ///
    /// # Errors
    /// What the kernel has told of an earlier datagram, once.
    pub(crate) fn poll_mail(
        &mut self,
        slot: u32,
        singly: bool,
        wait: Wait<'_>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<Mail>> {
        let outcome = self.take_mail(slot, singly);
        let rx = &mut self.post.boxes.get(slot).rx;
        let After { wakes, drops, .. } = &mut self.io.after;
        match outcome {
            Some(outcome) => {
                if wait.has_waited() {
                    rx.waiters.leave(wait, drops);
                }
                if rx.waiters.may_notify() {
                    self.notify_receivers(slot);
                }
                Poll::Ready(outcome)
            }
            None => {
                rx.waiters.wait(wait, cx.waker(), wakes, drops);
                if rx.state == State::Idle {
                    self.want_mail(slot);
                }
                Poll::Pending
            }
        }
    }

    /// A future that waited for a datagram is gone.
    pub(crate) fn leave_mail(&mut self, slot: u32, id: &mut Option<WaiterId>) {
        let waker = self.post.boxes.get(slot).rx.waiters.remove(id);
        self.io.after.drops.extend(waker);
        self.notify_receivers(slot);
    }

    /// Notifies as many as there are datagrams to take.
    pub(super) fn notify_receivers(&mut self, slot: u32) {
        let rx = &mut self.post.boxes.get(slot).rx;
        if rx.waiters.notify(rx.available(), &mut self.io.after.wakes) {
            self.list_receivers(slot);
        }
    }

    #[cold]
    fn list_receivers(&mut self, slot: u32) {
        let generation = self.post.boxes.generation(slot);
        self.io.rechecks.push(Recheck::Receive(slot, generation));
    }

    pub(crate) fn recheck_receivers(&mut self, slot: u32, generation: u32) {
        if let Some(mailbox) = self.post.boxes.find(slot, generation) {
            let available = mailbox.rx.available();
            mailbox.rx.waiters.recheck(available);
            self.notify_receivers(slot);
        }
    }

    fn take_mail(&mut self, slot: u32, singly: bool) -> Option<io::Result<Mail>> {
        let rx = &mut self.post.boxes.get(slot).rx;
        if rx.rest.is_none() && rx.letters.is_empty() {
            return rx.error.take().map(|errno| Err(errno.into()));
        }
        let mut rest = match rx.rest.take() {
            Some(rest) => rest,
            None => return Some(Ok(self.open_letter(slot, singly))),
        };
        let first = if singly { rest.split_first() } else { None };
        Some(Ok(match first {
            Some(first) => {
                self.post.boxes.get(slot).rx.rest = Some(rest);
                first
            }
            None => *rest,
        }))
    }

    /// Opens the first letter, and has the receive armed again once enough were taken.
    fn open_letter(&mut self, slot: u32, singly: bool) -> Mail {
        let mailbox = self.post.boxes.get(slot);
        let letter = mailbox.rx.letters.pop_front().expect("a letter is there");
        let format = mailbox.format;
        let wants_more = mailbox.rx.wants_more();
        let mut mail = Mail::open(self.lease(letter, true), format);
        if wants_more {
            self.want_mail(slot);
        }
        let first = if singly { mail.split_first() } else { None };
        match first {
            Some(first) => {
                self.post.boxes.get(slot).rx.rest = Some(Box::new(mail));
                first
            }
            None => mail,
        }
    }

    /// Asks the kernel how many datagrams found no room, of all time. Unix sockets drop none: their senders wait.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn count_drops(&mut self, slot: u32) -> io::Result<u64> {
        let mailbox = self.post.boxes.get(slot);
        if mailbox.format.domain == Domain::Unix {
            return Ok(0);
        }
        let drops = self.io.driver.kernel().option(mailbox.fd, SocketQuery::Drops)?;
        let rx = &mut mailbox.rx;
        let new = u64::from(drops.wrapping_sub(std::mem::replace(&mut rx.drops, drops)));
        rx.dropped += new;
        self.io.driver.counters().dropped_datagrams += new;
        Ok(rx.dropped)
    }

    /// Brings the count of all drops up to date, as far as the kernel tells them.
    pub(crate) fn count_all_drops(&mut self) {
        for slot in self.post.boxes.indices() {
            _ = self.count_drops(slot);
        }
    }

    /// A letter's memory. One that is `kept` is copied where the pool is short; one that goes back at once is not.
    fn lease(&mut self, letter: Letter, kept: bool) -> Lease {
        match letter {
            Letter::Heap(lease) => lease,
            Letter::Lent { id, len } => {
                let pool = self.io.driver.datagram_pool().expect("letters lie in its buffers");
                let lease = Lease::lent(pool.clone(), id, len as usize);
                if kept && pool.is_short() { self.io.copied_out(lease) } else { lease }
            }
        }
    }

    /// Puts an idle mailbox on the list of those to arm.
    fn want_mail(&mut self, slot: u32) {
        let mailbox = self.post.boxes.get(slot);
        if mailbox.rx.state == State::Idle && !mailbox.dropped {
            mailbox.rx.state = State::Wanted;
            self.post.arms.push_back(slot);
        }
    }

    /// Arms what is on the list, first come first served, and no more mailboxes a turn than the kernel has buffers.
    #[inline]
    pub(crate) fn arm_mail(&mut self) {
        if self.post.arms.is_empty() {
            return;
        }
        let buffers = self.io.driver.datagram_pool().map_or(0, |pool| pool.with_kernel() as usize);
        let mut room = if buffers == 0 { self.post.arms.len() } else { buffers };
        while room > 0
            && let Some(slot) = self.post.arms.pop_front()
        {
            let wanted = |rx: &Inbox| rx.state == State::Wanted;
            if self.post.boxes.peek(slot).is_some_and(|mailbox| wanted(&mailbox.rx)) {
                self.arm_one_mailbox(slot, buffers > 0);
                room -= 1;
            }
        }
        if let Some(pool) = self.io.driver.datagram_pool().filter(|_| !self.post.arms.is_empty()) {
            pool.starved();
        }
    }

    fn arm_one_mailbox(&mut self, slot: u32, has_buffers: bool) {
        let token = self.mail_token(slot);
        let size = self.io.driver.datagram_pool().map_or(0, |pool| pool.buffer_size() as usize);
        let mailbox = self.post.boxes.get(slot);
        let (fd, format, rx) = (mailbox.fd, mailbox.format, &mut mailbox.rx);
        let fits = size.saturating_sub(format.layout.payload_at());
        let wanted = rx.max_datagram.unwrap_or(fits);
        let op = if has_buffers && wanted <= fits {
            rx.state = State::Armed;
            MemoryOp::ReceiveMessages { fd, header: format.header() }
        } else if rx.waiters.is_empty() {
            // Nobody waits: the next receive will ask again.
            rx.state = State::Idle;
            return;
        } else {
            rx.state = State::Single;
            self.io.driver.counters().heap_receives += 1;
            MemoryOp::ReceiveMessage {
                fd,
                header: Desk::put(&mut rx.desk, format, wanted, &self.io.memory.meter),
            }
        };
        // SAFETY: the format's header is static, and the pool's memory outlives the driver; a desk stays in the slot
        // until the terminal event.
        unsafe { self.io.start_memory(token, op) };
    }

    pub(crate) fn on_packet(&mut self, event: Event) {
        let (slot, generation) = (event.token.slot(), event.token.generation());
        let Some(mailbox) = self.post.boxes.find(slot, generation) else {
            return self.io.late(event);
        };
        let rx = &mut mailbox.rx;
        let desk = if event.more { None } else { rx.desk.take() };
        if !event.more {
            rx.state = State::Idle;
            self.io.in_flight -= 1;
        }
        match event.result {
            Ok(len) => {
                let desk =
                    desk.map(|desk| Letter::Heap(desk.into_lease(mailbox.format, len as usize)));
                let lent = event.buffer.map(|id| Letter::Lent { id, len });
                mailbox.rx.letters.extend(lent.or(desk));
            }
            Err(errno) if ends_the_operation_only(errno) => {}
            Err(errno) => rx.error = Some(errno),
        }
        self.after_packet(slot, event.more);
    }

    /// Goes on after an event: wakes a reader, arms again, pauses, or closes.
    fn after_packet(&mut self, slot: u32, more: bool) {
        let mailbox = self.post.boxes.get(slot);
        if mailbox.dropped {
            self.discard_mail(slot);
            if !more {
                self.close_mailbox_if_done(slot);
            }
            return;
        }
        let rx = &mut mailbox.rx;
        let recheck = rx.waiters.notify(rx.available(), &mut self.io.after.wakes);
        if rx.wants_more() {
            self.want_mail(slot);
        } else if rx.state == State::Armed && rx.letters.len() >= MOST_LETTERS {
            rx.state = State::Cancelling;
            self.io.cancel(self.mail_token(slot));
        }
        if recheck {
            self.list_receivers(slot);
        }
    }

    /// Ends a receive in flight; its terminal event is still to come. Nothing happens where none is.
    pub(super) fn stop_mail(&mut self, slot: u32) {
        let token = self.mail_token(slot);
        let rx = &mut self.post.boxes.get(slot).rx;
        match rx.state {
            State::Armed | State::Single => {
                rx.state = State::Cancelling;
                self.io.cancel(token);
            }
            State::Wanted => rx.state = State::Idle,
            State::Idle | State::Cancelling => {}
        }
    }

    /// Gives back what was received and nobody will take. Descriptors that came along are closed.
    pub(super) fn discard_mail(&mut self, slot: u32) {
        let mailbox = self.post.boxes.get(slot);
        let (format, letters) = (mailbox.format, std::mem::take(&mut mailbox.rx.letters));
        mailbox.rx.rest = None;
        for letter in letters {
            drop(Mail::open(self.lease(letter, false), format));
        }
    }

    fn mail_token(&self, slot: u32) -> Token {
        Token::new(Kind::RecvDatagram, self.post.boxes.generation(slot), slot)
    }
}

impl Desk {
    /// Lays memory for one datagram out; the answer is the address of its header.
    pub(crate) fn put(
        place: &mut Option<Box<Self>>,
        format: &Format,
        most: usize,
        meter: &Meter,
    ) -> *mut u8 {
        let layout = format.layout;
        let mut memory = HeapMemory::zeroed(layout.payload_at() + most, meter);
        let start = memory.as_mut_ptr();
        let at = |offset| start.wrapping_add(offset).cast_const();
        let desk = place.insert(Box::new(Self {
            vector: IoVec { base: at(layout.payload_at()), len: most },
            header: MsgHeader {
                name: at(Layout::HEAD),
                name_len: layout.name as u32,
                vectors: std::ptr::null(),
                vector_count: 1,
                control: at(layout.control_at()),
                control_len: layout.control,
                flags: 0,
            },
            memory,
        }));
        desk.header.vectors = &raw const desk.vector;
        (&raw mut desk.header).cast()
    }

    /// The datagram of `len` bytes that has come, with the head that lent buffers begin with.
    pub(crate) fn into_lease(self, format: &Format, len: usize) -> Lease {
        let Self { header, mut memory, .. } = self;
        let head = Message {
            name_len: header.name_len,
            control_len: header.control_len as u32,
            payload_len: len as u32,
            flags: header.flags as u32,
        };
        memory[..Layout::HEAD].copy_from_slice(&head.bytes());
        let len = memory.len().min(format.layout.payload_at() + len);
        Lease::of_heap(memory, len)
    }
}
