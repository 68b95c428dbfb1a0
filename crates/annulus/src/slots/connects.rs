//! A connection attempt's slot. It keeps the address and the descriptor until the terminal event.
#![allow(unsafe_code)]

use crate::runtime::core::Inner;
use crate::slots::streams::note_waker;
use crate::time::{Fire, Instant, TimerKey};
use annulus_driver::{Event, Kind, MemoryOp, Token};
use annulus_kernel::{Address, Fd};
use rustix::io::Errno;
use std::io;
use std::task::{Context, Poll, Waker};

/// A connection attempt.
pub(crate) struct Connect {
    fd: Fd,
    address: Box<Address>,
    outcome: Option<Result<(), Errno>>,
    timer: Option<TimerKey>,
    timed_out: bool,
    waker: Option<Waker>,
    dropped: bool,
}

impl Connect {
    pub(crate) fn is_awaited_by(&self, task: &Waker) -> bool {
        self.waker.as_ref().is_some_and(|waker| waker.will_wake(task))
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }
}

impl Inner {
    /// Starts connecting `fd`; at the deadline the attempt is given up.
    pub(crate) fn start_connect(
        &mut self,
        fd: Fd,
        address: Address,
        deadline: Option<Instant>,
    ) -> u32 {
        let attempt = Connect {
            fd,
            address: Box::new(address),
            outcome: None,
            timer: None,
            timed_out: false,
            waker: None,
            dropped: false,
        };
        let slot = self.connects.insert(attempt);
        let generation = self.connects.generation(slot);
        let timer = deadline.map(|at| self.timers.insert(at, Fire::Connect(slot, generation)));
        let attempt = self.connects.get(slot);
        attempt.timer = timer;
        let bytes = attempt.address.as_bytes();
        let op = MemoryOp::Connect { fd, address: bytes.as_ptr(), len: bytes.len() as u32 };
        let token = self.connect_token(slot);
        // SAFETY: the boxed address stays in the slot, which is freed at the terminal event.
        unsafe { self.start_memory(token, op) };
        slot
    }

    /// The connected descriptor. The slot is gone once this is ready.
    pub(crate) fn poll_connect(&mut self, slot: u32, cx: &Context<'_>) -> Poll<io::Result<Fd>> {
        let attempt = self.connects.get(slot);
        let Some(outcome) = attempt.outcome else {
            note_waker(&mut attempt.waker, &mut self.after.drops, cx);
            return Poll::Pending;
        };
        let timed_out = attempt.timed_out;
        let fd = self.free_connect(slot);
        Poll::Ready(match outcome {
            Ok(()) => Ok(fd),
            Err(errno) => {
                self.close(fd);
                let given_up = timed_out && errno == Errno::CANCELED;
                Err(if given_up { io::ErrorKind::TimedOut.into() } else { errno.into() })
            }
        })
    }

    pub(crate) fn on_connect(&mut self, event: Event) {
        let (slot, generation) = (event.token.slot(), event.token.generation());
        let Some(attempt) = self.connects.find(slot, generation) else { return self.late(event) };
        self.in_flight -= 1;
        attempt.outcome = Some(event.result.map(drop));
        self.after.wakes.extend(attempt.waker.take());
        if attempt.dropped {
            let fd = self.free_connect(slot);
            self.close(fd);
        }
    }

    pub(crate) fn on_connect_timeout(&mut self, slot: u32, generation: u32) {
        let token = self.connect_token_of(slot, generation);
        if let Some(attempt) = self.connects.find(slot, generation) {
            attempt.timer = None;
            attempt.timed_out = true;
            if attempt.outcome.is_none() {
                self.cancel(token);
            }
        }
    }

    /// The future is gone: the attempt is cancelled, and its descriptor closed at the terminal event.
    pub(crate) fn drop_connect(&mut self, slot: u32) {
        let token = self.connect_token(slot);
        let attempt = self.connects.get(slot);
        attempt.dropped = true;
        self.after.drops.extend(attempt.waker.take());
        if attempt.outcome.is_none() {
            self.cancel(token);
        } else {
            let fd = self.free_connect(slot);
            self.close(fd);
        }
    }

    fn free_connect(&mut self, slot: u32) -> Fd {
        let attempt = self.connects.remove(slot);
        if let Some(key) = attempt.timer {
            self.timers.remove(key);
        }
        attempt.fd
    }

    fn connect_token(&self, slot: u32) -> Token {
        self.connect_token_of(slot, self.connects.generation(slot))
    }

    fn connect_token_of(&self, slot: u32, generation: u32) -> Token {
        Token::new(Kind::Connect, generation, slot)
    }
}
