//! Sending datagrams.
//!
//! What a turn has queued goes out with its one enter, each datagram *now*: it must not wait, and where it went no event is
//! posted (see `stream::send`). Where no event has come by the time the driver is settled, all of them went; where the
//! driver does not send quietly, each has its event, and a batch is settled when all have been heard. Those that
//! found no room stay queued, in order, and the mailbox waits for room: a datagram is never left with the kernel to wait,
//! since Linux, trying a Unix datagram again, would send it empty.
//!
//! An error is its datagram's own, and told to the next send on the same way, or to a flush; except for what the kernel
//! remembers of earlier datagrams (an ICMP answer): that goes to who waits to receive, and the datagram is sent again.
#![allow(unsafe_code)]

use super::parcel::{Parcel, State};
use super::{Envelope, Name};
use crate::chunk::Chunk;
use crate::core::Inner;
use crate::time::{Fire, TimerKey};
use crate::waiters::Waiters;
use annulus_driver::{Event, Kind, Op, Token};
use annulus_ring::Domain;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// When to try again where no readiness tells: the system is short of memory, or an unconnected Unix peer is slow.
const RETRY: Duration = Duration::from_millis(2);
/// Most datagrams that one send with segments makes (`UDP_MAX_SEGMENTS` was 64 before 6.9).
pub(crate) const MOST_SEGMENTS: usize = 64;
/// Largest payloads: 65,535 bytes of packet, but for headers.
const MOST_V4: usize = 65_507;
const MOST_V6: usize = 65_527;

/// The sending half of a mailbox.
pub(crate) struct Outbox {
    /// Accepted, not started.
    pub(super) queue: VecDeque<u32>,
    /// Out, and not settled.
    flying: VecDeque<u32>,
    /// Of these, the ones whose events are still to come.
    unheard: usize,
    /// What all of these weigh.
    pub(super) weight: usize,
    /// Most datagrams of the next batch: as many as found room in the last one that did not go out whole, and twice as many
    /// after each that did. What is refused has cost its submission.
    window: usize,
    pub(super) unordered: bool,
    /// It has a peer, whose room the kernel tells of.
    pub(crate) connected: bool,
    /// The device refused to cut datagrams: done here from now on.
    cuts_here: bool,
    /// Of a mailbox whose datagrams may overtake one another: those that found no room. See `stuck`.
    pub(super) stuck: VecDeque<u32>,
    /// The system is short of memory.
    short: bool,
    /// Waits for room: an operation is in flight.
    blocked: bool,
    /// Tries again when a timer goes off.
    pausing: bool,
    /// On the list of those to send.
    listed: bool,
    pub(super) failure: Option<Box<Failure>>,
    pub(super) waiters: Waiters,
    /// When to give up, once the mailbox was dropped.
    pub(super) linger: Option<TimerKey>,
}

/// What became of a datagram whose sender had gone on.
pub(super) struct Failure {
    errno: Errno,
    to: Name,
    text: String,
}

impl Failure {
    fn error(self) -> io::Error {
        let error = io::Error::from(self.errno);
        io::Error::new(error.kind(), format!("{}: {error}", self.text))
    }
}

impl Outbox {
    pub(super) fn new(unordered: bool) -> Self {
        Self {
            queue: VecDeque::new(),
            flying: VecDeque::new(),
            unheard: 0,
            short: false,
            stuck: VecDeque::new(),
            blocked: false,
            weight: 0,
            window: usize::MAX,
            unordered,
            connected: false,
            cuts_here: false,
            pausing: false,
            listed: false,
            failure: None,
            waiters: Waiters::default(),
            linger: None,
        }
    }

    /// Nothing queued and nothing in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.flying.is_empty() && self.stuck.is_empty()
    }

    pub(crate) fn is_awaited_by(&self, task: &Waker) -> bool {
        self.waiters.include(task)
    }

    /// Nothing is in flight that names the socket.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_idle() && !self.blocked
    }

    /// Whether a batch may start now: the last one is settled, and nothing waits that must not be overtaken.
    fn may_start(&self) -> bool {
        let waits = self.blocked || self.pausing;
        (!waits || self.unordered) && self.flying.is_empty() && !self.queue.is_empty()
    }

    fn failure_on(&mut self, envelope: &Envelope) -> Option<io::Error> {
        let failure = self.failure.take_if(|failure| failure.to == envelope.to)?;
        Some(failure.error())
    }
}

/// Errors that the kernel may have kept from an earlier datagram.
fn tells_of_an_earlier_one(errno: Errno) -> bool {
    const TOLD: [Errno; 7] = [
        Errno::CONNREFUSED,
        Errno::HOSTUNREACH,
        Errno::NETUNREACH,
        Errno::HOSTDOWN,
        Errno::NETDOWN,
        Errno::PROTO,
        Errno::NOPROTOOPT,
    ];
    TOLD.contains(&errno)
}

impl Inner {
    /// Ready once so little is queued that a datagram would be accepted.
    pub(crate) fn poll_post_room(
        &mut self,
        slot: u32,
        place: &mut Option<u32>,
        cx: &Context<'_>,
    ) -> Poll<()> {
        let has_room = self.has_post_room(slot);
        let tx = &mut self.post.boxes.get(slot).tx;
        if !has_room {
            tx.waiters.wait(place, &mut self.after.drops, cx);
            return Poll::Pending;
        }
        tx.waiters.leave(place, &mut self.after.drops);
        Poll::Ready(())
    }

    /// Accepts a datagram for sending.
    ///
    /// # Errors
    /// `WouldBlock` where too much is queued; what became of an earlier datagram on the same way; or that this one is too
    /// large.
    pub(crate) fn accept_post(
        &mut self,
        slot: u32,
        chunk: Chunk,
        envelope: Envelope,
    ) -> io::Result<()> {
        if let Some(error) = self.post.boxes.get(slot).tx.failure_on(&envelope) {
            return Err(error);
        }
        if !self.has_post_room(slot) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mailbox = self.post.boxes.get(slot);
        if mailbox.format.domain != Domain::Unix {
            let most = if envelope.v4 { MOST_V4 } else { MOST_V6 };
            check_size(envelope.segment_size.map_or(chunk.len(), usize::from), most)?;
            if let Some(size) = envelope.segment_size {
                self.queue_cut(slot, chunk, envelope, size.into(), most);
                return Ok(());
            }
        }
        self.queue_parcel(slot, chunk, envelope);
        Ok(())
    }

    /// Queues datagrams of `size` in pieces that the kernel takes at once.
    fn queue_cut(
        &mut self,
        slot: u32,
        mut chunk: Chunk,
        envelope: Envelope,
        size: usize,
        most: usize,
    ) {
        let cuts_here = self.post.boxes.get(slot).tx.cuts_here;
        let (piece, segment_size) = if cuts_here {
            (size, None)
        } else {
            (size * MOST_SEGMENTS.min(most / size), envelope.segment_size)
        };
        let envelope = Envelope { segment_size, ..envelope };
        while chunk.len() > piece {
            let first = chunk.split_to(piece);
            self.queue_parcel(slot, first, envelope.clone());
        }
        let segment_size = envelope.segment_size.filter(|_| chunk.len() > size);
        self.queue_parcel(slot, chunk, Envelope { segment_size, ..envelope });
    }

    #[inline]
    fn queue_parcel(&mut self, slot: u32, chunk: Chunk, envelope: Envelope) {
        let parcel = Parcel::new(slot, chunk, envelope);
        let weight = parcel.weight();
        let id = self.post.parcels.insert(parcel);
        let tx = &mut self.post.boxes.get(slot).tx;
        tx.queue.push_back(id);
        tx.weight += weight;
        self.list_post(slot);
    }

    #[inline]
    fn list_post(&mut self, slot: u32) {
        let tx = &mut self.post.boxes.get(slot).tx;
        if tx.may_start() && !tx.listed {
            tx.listed = true;
            self.post.posts.push(slot);
        }
    }

    /// Starts the sends on the list.
    #[inline]
    pub(crate) fn start_posts(&mut self) {
        let mut posts = std::mem::take(&mut self.post.posts);
        for slot in posts.drain(..) {
            if let Some(mailbox) = self.post.boxes.peek(slot)
                && std::mem::take(&mut mailbox.tx.listed)
                && mailbox.tx.may_start()
            {
                self.send_batch(slot);
            }
        }
        // Nothing was listed meanwhile: the list keeps its memory.
        self.post.posts = posts;
    }

    /// Sends what is queued, each datagram now. Unix datagrams keep their order whatever happens, so that of those only
    /// one is out at a time: the second could go where the first had found no room.
    fn send_batch(&mut self, slot: u32) {
        let mailbox = self.post.boxes.get(slot);
        let one = mailbox.format.domain == Domain::Unix && !mailbox.tx.unordered;
        let batch = if one { 1 } else { mailbox.tx.window };
        for _ in 0..batch {
            let tx = &mut self.post.boxes.get(slot).tx;
            let Some(id) = tx.queue.pop_front() else { break };
            tx.flying.push_back(id);
            self.submit_parcel(id);
        }
        if !self.driver.sends_quietly() {
            return;
        }
        self.post.posted.push(slot);
        let mailbox = self.post.boxes.get(slot);
        let tx = &mailbox.tx;
        // Where somebody waits to learn it, or more is to follow, this turn must not sleep.
        self.agenda.sleepless |= mailbox.dropped || !tx.waiters.is_empty() || !tx.queue.is_empty();
    }

    fn submit_parcel(&mut self, id: u32) {
        let token = Token::new(Kind::Parcel, self.post.parcels.generation(id), id);
        let parcel = self.post.parcels.get(id);
        parcel.state = State::Now;
        let header = parcel.seal();
        let mailbox = self.post.boxes.get(parcel.mailbox);
        let fd = mailbox.fd;
        if self.driver.sends_quietly() {
            // SAFETY: the header points into the parcel's slot, which does not move and is freed at the event, or once the
            // driver is settled.
            unsafe { self.driver.submit(token, Op::SendMessageNow { fd, header }) };
        } else {
            mailbox.tx.unheard += 1;
            // SAFETY: as above; the slot is freed after the event.
            unsafe { self.start(token, Op::SendMessage { fd, header }) };
        }
    }

    /// The driver is settled: parcels of which no event came went out.
    #[inline]
    pub(crate) fn settle_posts(&mut self) {
        while let Some(slot) = self.post.posted.pop() {
            self.settle_batch(slot);
        }
    }

    fn settle_batch(&mut self, slot: u32) {
        let (mut refused, mut gone) = (false, 0);
        // From the last one on, so that those to be sent again keep their order.
        while let Some(id) = self.post.boxes.get(slot).tx.flying.pop_back() {
            match self.post.parcels.get(id).state {
                State::Now | State::Failed => {
                    gone += 1;
                    self.end_parcel(slot, id);
                }
                State::Refused => {
                    refused = true;
                    self.set_aside(slot, id);
                }
                State::Queued | State::Again | State::Cut => self.requeue(slot, id),
            }
        }
        let tx = &mut self.post.boxes.get(slot).tx;
        tx.window = if refused { gone.max(1) } else { tx.window.saturating_mul(2) };
        if refused {
            self.wait_for_room(slot);
        }
        self.go_on_posting(slot);
    }

    /// Puts a parcel back to the front; cut, where nobody below would do that.
    fn requeue(&mut self, slot: u32, id: u32) {
        let cuts_here = self.post.boxes.get(slot).tx.cuts_here;
        let parcel = self.post.parcels.get(id);
        let cut = std::mem::replace(&mut parcel.state, State::Queued) == State::Cut || cuts_here;
        let Some(size) = parcel.envelope.segment_size.filter(|_| cut) else {
            return self.post.boxes.get(slot).tx.queue.push_front(id);
        };
        let weight = parcel.weight();
        let Parcel { mut chunk, envelope, .. } = self.post.parcels.remove(id);
        let tx = &mut self.post.boxes.get(slot).tx;
        tx.weight -= weight;
        let queue = std::mem::take(&mut tx.queue);
        let single = Envelope { segment_size: None, ..envelope };
        while chunk.len() > usize::from(size) {
            let first = chunk.split_to(size.into());
            self.queue_parcel(slot, first, single.clone());
        }
        self.queue_parcel(slot, chunk, single);
        self.post.boxes.get(slot).tx.queue.extend(queue);
    }

    /// Something found no room. Where nothing would tell that there is some, waits for a moment.
    fn wait_for_room(&mut self, slot: u32) {
        let token = self.room_token(slot);
        let mailbox = self.post.boxes.get(slot);
        let blind = mailbox.is_blind();
        let tx = &mut mailbox.tx;
        if std::mem::take(&mut tx.short) || blind {
            self.pause_posts(slot);
        } else if !tx.blocked {
            tx.blocked = true;
            let op = Op::WritableOnce { fd: mailbox.fd };
            // SAFETY: it names no memory.
            unsafe { self.start(token, op) };
        }
    }

    pub(crate) fn on_room(&mut self, event: Event) {
        let (slot, generation) = (event.token.slot(), event.token.generation());
        let Some(mailbox) = self.post.boxes.find(slot, generation) else { return self.late(event) };
        mailbox.tx.blocked = false;
        mailbox.tx.try_again();
        self.in_flight -= 1;
        self.go_on_posting(slot);
    }

    fn room_token(&self, slot: u32) -> Token {
        Token::new(Kind::Room, self.post.boxes.generation(slot), slot)
    }

    fn pause_posts(&mut self, slot: u32) {
        let tx = &mut self.post.boxes.get(slot).tx;
        if std::mem::replace(&mut tx.pausing, true) {
            return;
        }
        let fire = Fire::Post(slot, self.post.boxes.generation(slot));
        self.timers.insert(self.now() + RETRY, fire);
    }

    pub(crate) fn on_post_retry(&mut self, slot: u32, generation: u32) {
        if let Some(mailbox) = self.post.boxes.find(slot, generation)
            && std::mem::take(&mut mailbox.tx.pausing)
        {
            mailbox.tx.try_again();
            self.go_on_posting(slot);
        }
    }

    /// Something has ended: goes on with what is queued, wakes who waits for room or the end, closes.
    fn go_on_posting(&mut self, slot: u32) {
        let bound = self.bounds.send;
        let mailbox = self.post.boxes.get(slot);
        if mailbox.tx.weight <= bound || mailbox.can_give_up() {
            mailbox.tx.waiters.wake_all(&mut self.after.wakes);
        }
        let stuck = mailbox.dropped && !mailbox.tx.is_idle();
        let in_vain = mailbox.tx.is_idle() && mailbox.tx.blocked;
        self.list_post(slot);
        if stuck {
            self.linger_posts(slot);
        }
        if in_vain {
            self.cancel(self.room_token(slot));
        }
        self.close_mailbox_if_done(slot);
    }

    pub(crate) fn on_parcel(&mut self, event: Event) {
        let (id, generation) = (event.token.slot(), event.token.generation());
        let Some(parcel) = self.post.parcels.find(id, generation) else { return self.late(event) };
        let slot = parcel.mailbox;
        // The batch is settled as a whole.
        let outcome = event.result.err().map_or(State::Failed, |errno| self.judge(slot, id, errno));
        self.post.parcels.get(id).state = outcome;
        let tx = &mut self.post.boxes.get(slot).tx;
        if tx.unheard == 0 {
            return;
        }
        tx.unheard -= 1;
        let heard_of_all = tx.unheard == 0;
        self.in_flight -= 1;
        if heard_of_all {
            self.settle_batch(slot);
        }
    }

    /// What is to become of a parcel that the kernel refused.
    fn judge(&mut self, slot: u32, id: u32, errno: Errno) -> State {
        let parcel = self.post.parcels.get(id);
        let mailbox = self.post.boxes.get(slot);
        match errno {
            Errno::AGAIN | Errno::INTR => return State::Refused,
            Errno::NOBUFS | Errno::NOMEM => {
                mailbox.tx.short = true;
                return State::Refused;
            }
            // The device cannot; or, before 4.18, the kernel.
            Errno::IO | Errno::INVAL if parcel.envelope.segment_size.is_some() => {
                mailbox.tx.cuts_here = true;
                return State::Again;
            }
            // Its segments are wider than the way there takes at once: datagrams alone may pass in fragments.
            Errno::MSGSIZE if parcel.envelope.segment_size.is_some() => return State::Cut,
            _ => {}
        }
        let inet = mailbox.format.domain != Domain::Unix;
        if inet && mailbox.tx.connected && tells_of_an_earlier_one(errno) && !parcel.retried {
            parcel.retried = true;
            if mailbox.rx.hear(errno) {
                mailbox.rx.waiters.wake_one(&mut self.after.wakes);
            } else {
                mailbox.tx.failure = Some(Failure::of(parcel, errno).into());
            }
            return State::Again;
        }
        mailbox.tx.failure = Some(Failure::of(parcel, errno).into());
        State::Failed
    }

    /// A parcel is done with.
    #[inline]
    pub(super) fn end_parcel(&mut self, slot: u32, id: u32) {
        let parcel = self.post.parcels.get(id);
        self.post.boxes.get(slot).tx.weight -= parcel.weight();
        if let Some(buffer) = parcel.chunk.take_copied() {
            self.spares.keep(buffer);
        }
        self.post.parcels.free(id);
    }

    /// Ready once the kernel has taken everything.
    ///
    /// # Errors
    /// What became of a datagram, once.
    pub(crate) fn poll_post_flush(
        &mut self,
        slot: u32,
        place: &mut Option<u32>,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        let tx = &mut self.post.boxes.get(slot).tx;
        if !tx.is_idle() {
            tx.waiters.wait(place, &mut self.after.drops, cx);
            return Poll::Pending;
        }
        tx.waiters.leave(place, &mut self.after.drops);
        Poll::Ready(tx.failure.take().map_or(Ok(()), |failure| Err(failure.error())))
    }

    /// Somebody waits no more for room or a flush.
    pub(crate) fn leave_post(&mut self, slot: u32, place: &mut Option<u32>) {
        self.post.boxes.get(slot).tx.waiters.leave(place, &mut self.after.drops);
    }

    /// Gives up on everything that was accepted and is not out.
    pub(super) fn stop_posts(&mut self, slot: u32) {
        let tx = &mut self.post.boxes.get(slot).tx;
        tx.try_again();
        let queue = std::mem::take(&mut tx.queue);
        queue.into_iter().for_each(|id| self.end_parcel(slot, id));
        if self.post.boxes.get(slot).tx.blocked {
            self.cancel(self.room_token(slot));
        }
    }
}

impl Failure {
    pub(super) fn of(parcel: &Parcel, errno: Errno) -> Self {
        let len = parcel.chunk.len();
        let way = parcel.addressee().map_or(String::new(), |to| format!(" to {to}"));
        let hint = match errno {
            Errno::MSGSIZE => ", more than the way there takes at once",
            Errno::AGAIN => ", which takes none",
            _ => "",
        };
        let text = format!("sending a datagram of {len} bytes{way}{hint}");
        Self { errno, to: parcel.envelope.to.clone(), text }
    }
}

fn check_size(len: usize, most: usize) -> io::Result<()> {
    if len <= most {
        return Ok(());
    }
    let text = format!(
        "a datagram of {len} bytes is above the limit of {most}: send it in pieces, or with send_segments"
    );
    // What the system calls EMSGSIZE has no kind of its own.
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}
