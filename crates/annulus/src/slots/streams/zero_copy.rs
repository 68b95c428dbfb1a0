//! Sends that are not copied: the kernel is lent their memory.
//!
//! Such a send has two events. The first tells what went; from then on the next one may start. The second, the
//! notification, tells that the memory is free, which may be long after, when the peer has acknowledged it. Until then a
//! *loan* keeps the chunks and the header, whatever becomes of the stream.
//!
//! Where all of it went, the chunks leave the queue for the loan at the first event. Where not, they stay in the queue
//! until the notification, and are then judged like those of any other send, so that no memory is part lent and part free.
//! A stream that was given up does not wait for that: what gets its memory back is the reset of its closing.
#![allow(unsafe_code)]

use super::queue::Queue;
use super::send::State;
use super::vectors::Vector;
use crate::chunk::Chunk;
use crate::runtime::inner::Inner;
use annulus_driver::{Event, Kind, MemoryOp, Token};
use rustix::io::Errno;

/// A send whose memory the kernel was lent.
pub(crate) struct Loan {
    stream: u32,
    generation: u32,
    /// Went, and may still be read.
    chunks: Queue,
    vector: Option<Box<Vector>>,
    /// What the first event told.
    told: Option<Result<u32, Errno>>,
}

impl Inner {
    /// Whether what was gathered last is to go without being copied.
    #[inline]
    pub(super) fn is_to_lend(&mut self, slot: u32) -> bool {
        let Some(least) = self.io.bounds.lend else { return false };
        let stream = self.streams.get(slot);
        stream.tx.flying >= least && !stream.tx.copies && stream.passing.is_none()
    }

    /// Sends what was gathered last without copying it.
    pub(super) fn lend(&mut self, slot: u32, op: MemoryOp) {
        let (op, vector) = match op {
            MemoryOp::SendNow { fd, buffer, len } | MemoryOp::Send { fd, buffer, len } => {
                (MemoryOp::SendZeroCopy { fd, buffer, len }, None)
            }
            MemoryOp::SendVectorNow { fd, header } | MemoryOp::SendVector { fd, header } => {
                (MemoryOp::SendVectorZeroCopy { fd, header }, Some(self.vectors.keep()))
            }
            other => unreachable!("{other:?} sends no bytes of a stream"),
        };
        let generation = self.streams.generation(slot);
        let loan = Loan { stream: slot, generation, chunks: Queue::default(), vector, told: None };
        let id = self.loans.insert(loan);
        let tx = &mut self.streams.get(slot).tx;
        (tx.state, tx.loan) = (State::Lent, id);
        tx.loans += 1;
        self.io.driver.counters().zero_copy_sends += 1;
        self.linger(slot);
        let token = self.loan_token(id);
        // SAFETY: the chunks stay in the queue, and then in the loan, which also keeps the header, until the terminal
        // event; the bytes of a chunk stay where they are when it moves.
        unsafe { self.io.start_memory(token, op) };
    }

    fn loan_token(&self, id: u32) -> Token {
        Token::new(Kind::SendZeroCopy, self.loans.generation(id), id)
    }

    pub(crate) fn on_loan(&mut self, event: Event) {
        let (id, generation) = (event.token.slot(), event.token.generation());
        let Some(loan) = self.loans.find(id, generation) else { return self.io.late(event) };
        if loan.told.is_none() {
            loan.told = Some(event.result);
            self.on_outcome(id, event.result);
        }
        if !event.more {
            self.end_loan(id);
        }
    }

    /// What went is known: the stream goes on, unless it has to wait for its memory.
    fn on_outcome(&mut self, id: u32, result: Result<u32, Errno>) {
        let slot = self.loans.get(id).stream;
        let tx = &mut self.streams.get(slot).tx;
        let count = result.map_or(0, |count| count as usize);
        let lent = tx.queue.iter().take(tx.flying_chunks.into());
        let went = lent.map(Chunk::len).sum::<usize>() == tx.sent + count;
        if went || tx.error.is_some() {
            self.hand_over(slot, count);
            self.resume_send(slot);
        } else {
            tx.state = State::Judging;
        }
    }

    /// What is in flight leaves the stream for its loan.
    fn hand_over(&mut self, slot: u32, count: usize) {
        let bound = self.io.send_bound();
        let tx = &mut self.streams.get(slot).tx;
        let loan = self.loans.get(tx.loan);
        let lent = (0..tx.flying_chunks).filter_map(|_| tx.queue.pop());
        lent.for_each(|chunk| loan.chunks.push(chunk));
        tx.bytes -= count;
        (tx.sent, tx.flying, tx.flying_chunks) = (0, 0, 0);
        tx.state = State::Idle;
        if tx.bytes <= bound {
            self.io.after.wakes.extend(tx.waker.take());
        }
    }

    /// The memory is free.
    fn end_loan(&mut self, id: u32) {
        let Loan { stream: slot, generation, mut chunks, vector, told } = self.loans.remove(id);
        self.io.in_flight -= 1;
        vector.into_iter().for_each(|vector| self.vectors.free(vector));
        while let Some(chunk) = chunks.pop() {
            chunk.retire_accepted(&self.io.memory.meter, &mut self.io.spares, &mut self.io.after);
        }
        let Some(stream) = self.streams.find(slot, generation) else { return };
        let tx = &mut stream.tx;
        tx.loans -= 1;
        if let (State::Judging, Some(result), true) = (tx.state, told, tx.loan == id) {
            return self.judge_loan(slot, result);
        }
        if tx.loans == 0 {
            self.io.after.wakes.extend(tx.waker.take());
            self.close_if_done(slot);
        }
    }

    /// Not everything went. Where nothing can be lent, the stream copies from here on: its socket is not of the kind, or
    /// no more memory may be locked.
    fn judge_loan(&mut self, slot: u32, result: Result<u32, Errno>) {
        if let Err(Errno::OPNOTSUPP | Errno::NOBUFS | Errno::NOMEM) = result {
            self.streams.get(slot).tx.copies = true;
            return self.judge_send(slot, Ok(0));
        }
        self.judge_send(slot, result);
    }

    /// Gives up on what was lent: cancelled where its outcome is not known, else left to the loan.
    pub(super) fn stop_lending(&mut self, slot: u32) {
        let tx = &self.streams.get(slot).tx;
        let (state, id) = (tx.state, tx.loan);
        if state == State::Lent {
            return self.io.cancel(self.loan_token(id));
        }
        self.hand_over(slot, 0);
        self.discard_unsent(slot);
    }
}
