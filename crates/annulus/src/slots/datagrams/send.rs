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

use super::Envelope;
use super::outgoing::{Parcel, State};
use crate::chunk::Chunk;
use crate::runtime::inner::Inner;
use crate::time::Fire;
use annulus_driver::{Event, Kind, MemoryOp, Op, Token};

impl Inner {
    #[inline]
    pub(super) fn list_post(&mut self, slot: u32) {
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

    /// Sends what is queued, each datagram now.
    fn send_batch(&mut self, slot: u32) {
        let mailbox = self.post.boxes.get(slot);
        for _ in 0..mailbox.tx.batch(mailbox.format.domain) {
            let tx = &mut self.post.boxes.get(slot).tx;
            let Some(id) = tx.queue.pop_front() else { break };
            tx.flying.push_back(id);
            self.submit_parcel(id);
        }
        if !self.io.driver.has_quiet_sends() {
            return;
        }
        self.post.posted.push(slot);
        let mailbox = self.post.boxes.get(slot);
        let tx = &mailbox.tx;
        // Where somebody waits to learn it, or more is to follow, this turn must not sleep.
        self.post.must_settle |= mailbox.dropped || !tx.waiters.is_empty() || !tx.queue.is_empty();
    }

    fn submit_parcel(&mut self, id: u32) {
        let token = Token::new(Kind::SendDatagram, self.post.parcels.generation(id), id);
        let parcel = self.post.parcels.get(id);
        parcel.state = State::Now;
        let header = parcel.seal();
        let mailbox = self.post.boxes.get(parcel.mailbox);
        let fd = mailbox.fd;
        if self.io.driver.has_quiet_sends() {
            // SAFETY: the header points into the parcel's slot, which does not move and is freed at the event, or once the
            // driver is settled.
            unsafe { self.io.driver.submit_memory(token, MemoryOp::SendMessageNow { fd, header }) };
        } else {
            mailbox.tx.unheard += 1;
            // SAFETY: as above; the slot is freed after the event.
            unsafe { self.io.start_memory(token, MemoryOp::SendMessage { fd, header }) };
        }
    }

    /// The driver is settled: parcels of which no event came went out.
    #[inline]
    pub(crate) fn settle_posts(&mut self) {
        self.post.must_settle = false;
        while let Some(slot) = self.post.posted.pop() {
            self.settle_batch(slot);
        }
    }

    fn settle_batch(&mut self, slot: u32) {
        let (mut refused, mut gone, mut moved) = (false, 0, false);
        while let Some(id) = self.post.boxes.get(slot).tx.next_flying() {
            let parcel = self.post.parcels.get(id);
            match parcel.state {
                State::Now | State::Done | State::Failed => {
                    gone += 1;
                    moved |= parcel.waited;
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
        if moved {
            tx.has_moved();
        }
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
        self.io.memory.meter.sub(chunk.weight());
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
        let tx = &mut mailbox.tx;
        if std::mem::take(&mut tx.untold) {
            self.pause_posts(slot);
        } else if !tx.blocked {
            tx.blocked = true;
            let op = Op::WritableOnce { fd: mailbox.fd };
            self.io.start(token, op);
        }
    }

    pub(crate) fn on_room(&mut self, event: Event) {
        let (slot, generation) = (event.token.slot(), event.token.generation());
        let Some(mailbox) = self.post.boxes.find(slot, generation) else {
            return self.io.late(event);
        };
        mailbox.tx.blocked = false;
        mailbox.tx.try_again();
        self.io.in_flight -= 1;
        self.go_on_posting(slot);
    }

    fn room_token(&self, slot: u32) -> Token {
        Token::new(Kind::DatagramWritable, self.post.boxes.generation(slot), slot)
    }

    fn pause_posts(&mut self, slot: u32) {
        let tx = &mut self.post.boxes.get(slot).tx;
        if std::mem::replace(&mut tx.pausing, true) {
            return;
        }
        let pause = tx.next_pause();
        let fire = Fire::Post(slot, self.post.boxes.generation(slot));
        self.io.timers.insert(self.io.now() + pause, fire);
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
        let bound = self.io.send_bound();
        let is_below = self.post.boxes.get(slot).tx.weight <= bound;
        let has_room = is_below || self.first_to_give_up(slot).is_some();
        let mailbox = self.post.boxes.get(slot);
        if has_room {
            mailbox.tx.waiters.notify_all(&mut self.io.after.wakes);
        }
        let stuck = mailbox.dropped && !mailbox.tx.is_idle();
        let in_vain = mailbox.tx.is_idle() && mailbox.tx.blocked;
        self.list_post(slot);
        if stuck {
            self.linger_posts(slot);
        }
        if in_vain {
            self.io.cancel(self.room_token(slot));
        }
        self.close_mailbox_if_done(slot);
    }

    pub(crate) fn on_parcel(&mut self, event: Event) {
        let (id, generation) = (event.token.slot(), event.token.generation());
        let Some(parcel) = self.post.parcels.find(id, generation) else {
            return self.io.late(event);
        };
        let slot = parcel.mailbox;
        // The batch is settled as a whole.
        let outcome = event.result.err().map_or(State::Done, |errno| self.judge(slot, id, errno));
        self.post.parcels.get(id).state = outcome;
        let tx = &mut self.post.boxes.get(slot).tx;
        if tx.unheard == 0 {
            return;
        }
        tx.unheard -= 1;
        let heard_of_all = tx.unheard == 0;
        self.io.in_flight -= 1;
        if heard_of_all {
            self.settle_batch(slot);
        }
    }

    /// A parcel is done with.
    #[inline]
    pub(super) fn end_parcel(&mut self, slot: u32, id: u32) {
        let parcel = self.post.parcels.get(id);
        self.post.boxes.get(slot).tx.weight -= parcel.weight();
        // Taken out where it lies: a slot is large.
        let chunk = std::mem::replace(&mut parcel.chunk, Chunk::EMPTY);
        chunk.retire_accepted(&self.io.memory.meter, &mut self.io.spares, &mut self.io.after);
        self.post.parcels.free(id);
    }

    /// Gives up on everything that was accepted and is not out.
    pub(super) fn stop_posts(&mut self, slot: u32) {
        let tx = &mut self.post.boxes.get(slot).tx;
        tx.try_again();
        let queue = std::mem::take(&mut tx.queue);
        queue.into_iter().for_each(|id| self.end_parcel(slot, id));
        if self.post.boxes.get(slot).tx.blocked {
            self.io.cancel(self.room_token(slot));
        }
    }
}
