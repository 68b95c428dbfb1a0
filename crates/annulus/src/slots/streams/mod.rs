//! One slot a stream: its descriptor, its receive, its send. Policy for all drivers and kernels.
//!
//! The life of a stream's slot: *open*, while a handle owns it → *dropped*, while what was accepted is still being sent
//! (bounded by the linger) and its receive is being cancelled → *closed*: nothing is in flight, the descriptor goes, the
//! slot is free. A slot is freed only then, so a token in flight always finds its own.

mod close;
mod held_back;
mod queue;
mod recv;
mod scm_rights;
mod send;
mod vectors;
mod zero_copy;

pub(crate) use held_back::HeldBack;
pub(crate) use recv::{Links, Receive};
pub(crate) use send::Transmit;
pub(crate) use vectors::Vectors;
pub(crate) use zero_copy::Loan;

use crate::net::Permit;
use crate::runtime::inner::Inner;
use annulus_driver::{Kind, Token};
use annulus_kernel::Fd;
use std::collections::VecDeque;

/// A stream's slot.
pub(crate) struct Stream {
    pub(crate) fd: Fd,
    pub(crate) rx: Receive,
    pub(crate) tx: Transmit,
    /// Descriptors travel with its bytes.
    passing: Option<Box<scm_rights::Passing>>,
    /// It counts against its listener's limit.
    permit: Option<Permit>,
    /// On the list of streams that hold more than they may.
    pub(crate) held_back: bool,
    /// No handle owns it any more.
    pub(crate) dropped: bool,
}

impl Stream {
    pub(crate) fn new(fd: Fd, permit: Option<Permit>) -> Self {
        let (rx, tx) = (Receive::default(), Transmit::default());
        Self { fd, rx, tx, passing: None, permit, held_back: false, dropped: false }
    }

    /// Bytes undelivered and unsent.
    #[inline]
    pub(crate) fn holds(&self) -> usize {
        self.rx.undelivered() as usize + self.tx.unsent()
    }
}

impl Inner {
    /// The name of a stream's operation in flight: at most one of each kind.
    #[inline]
    pub(crate) fn stream_token(&self, kind: Kind, slot: u32) -> Token {
        Token::new(kind, self.streams.generation(slot), slot)
    }
}

/// What the turn has to do for streams before it enters the kernel. Slots, each at most once.
#[derive(Default)]
pub(crate) struct Agenda {
    /// Streams with something to send.
    pub(crate) sends: Vec<u32>,
    /// Streams to arm.
    pub(crate) arms: VecDeque<u32>,
    /// Streams whose send went out in this turn: done, unless an event says otherwise.
    pub(crate) eager: Vec<u32>,
    /// A task waits for one of these: no sleep before they are settled.
    pub(crate) sleepless: bool,
}
