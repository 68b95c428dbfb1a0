//! A stream's slot, and the state that all streams share.
//!
//! The life of a slot: *open*, while a handle owns it; *linked*, while what it receives goes to another stream; *leaving*,
//! until it can be taken off the runtime → *dropped*, while what was accepted is still being sent (bounded by the linger) and its receive
//! is being cancelled → *closed*: nothing is in flight, the descriptor goes, the slot is free. A slot is freed only then, so a token in
//! flight always finds its own.

use super::buffer_queue::Links;
use super::carriers::{Carrier, Common};
use super::memory_paused::MemoryPaused;
use super::recv_state::RecvState;
use super::send_state::SendState;
use super::silent::Heard;
use super::vectors::Vectors;
use crate::base::connection_limit::Permit;
use crate::base::io::Io;
use crate::base::op_error::{OpError, Operation};
use crate::slots::turn_lists::TurnLists;
use annulus_driver::SlotId;
use annulus_kernel::{Address, Fd};
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;

/// The state of a slot; a closed one is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Open,
    /// What it receives goes to another stream, until a task asks for bytes.
    Linked,
    /// The handle waits until nothing is in flight, to take the stream off the runtime: nothing new begins.
    Leaving,
    /// No handle owns it any more.
    Dropped,
}

/// A stream off its runtime: its descriptor, the bytes it had received, and the limit it counts against.
pub(crate) type Released = (Fd, Vec<u8>, Option<Permit>);

/// A stream's slot.
pub(crate) struct Stream {
    pub(super) id: SlotId,
    pub(crate) fd: Fd,
    pub(super) rx: RecvState,
    pub(super) tx: SendState,
    /// How its bytes travel, if not by the operations of a plain socket alone.
    pub(super) carrier: Option<Box<Carrier>>,
    /// The peer, if it was known when the stream was made: the kernel forgets it when the connection is reset.
    pub(crate) peer: Option<SocketAddr>,
    /// The stream's place in its listener's limit of connections.
    pub(super) permit: Option<Permit>,
    /// On the list of streams that hold more than they may.
    pub(super) memory_paused: bool,
    pub(super) life: Life,
}

/// State that all streams share, beside `Io`.
pub(crate) struct Shared {
    pub(super) links: Links,
    pub(super) vectors: Vectors,
    pub(super) carriers: Common,
    pub(super) turn: TurnLists,
    pub(super) memory_paused: MemoryPaused,
    pub(super) heard: Heard,
}

impl Stream {
    /// Receives, and takes bytes to be sent: its handle neither waits for its end nor is gone.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        matches!(self.life, Life::Open | Life::Linked)
    }

    /// No handle owns it any more.
    #[inline]
    pub(super) fn is_dropped(&self) -> bool {
        self.life == Life::Dropped
    }

    /// Bytes received and not yet taken.
    #[cfg(test)]
    pub(crate) fn undelivered(&self) -> u32 {
        self.rx.bytes
    }

    /// The sending direction was ended, and has not failed.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.tx.ending && self.tx.error.is_none()
    }

    /// Bytes accepted and not sent.
    pub(crate) fn unsent(&self) -> usize {
        self.tx.bytes
    }

    /// From here on received bytes wait for a task.
    #[inline]
    pub(super) fn unlink(&mut self) {
        if self.life == Life::Linked {
            self.life = Life::Open;
        }
    }

    /// An error of this stream, with its peer.
    #[cold]
    pub(super) fn failed(&self, io: &Io, operation: Operation, errno: Errno) -> io::Error {
        let now = || io.driver.kernel().peer_address(self.fd).ok();
        let peer = self.peer.map(Address::from).or_else(now);
        OpError::new(operation, peer, errno.into()).into()
    }

    /// Holds more than it may, and is to receive nothing. One of which all was delivered receives a little whatever it has to send: its peer
    /// may be in the same state, and neither would read.
    #[inline]
    pub(super) fn is_over(&self, allowance: usize) -> bool {
        self.rx.bytes > 0 && self.holds() > allowance
    }

    /// Bytes undelivered and unsent.
    #[inline]
    pub(super) fn holds(&self) -> usize {
        self.rx.bytes as usize + self.tx.bytes
    }
}
