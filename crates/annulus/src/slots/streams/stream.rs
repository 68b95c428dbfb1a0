//! A stream's slot, and the state that all streams share.
//!
//! The life of a slot: *open*, while a handle owns it; *linked*, while what it receives goes to another stream (see `forward`); *leaving*,
//! until it can be taken off the runtime → *dropped*, while what was accepted is still being sent (bounded by the linger) and its receive
//! is being cancelled → *closed*: nothing is in flight, the descriptor goes, the slot is free. A slot is freed only then, so a token in
//! flight always finds its own.

use super::buffer_queue::Links;
use super::memory_paused::MemoryPaused;
use super::recv_state::RecvState;
use super::scm_rights::ScmRights;
use super::send_state::{SendState, ZeroCopySend};
use super::silent::Heard;
use super::splice::{Pipes, Spliced};
use super::vectors::Vectors;
use crate::base::connection_limit::Permit;
use crate::base::io::Io;
use crate::base::op_error::{OpError, Operation};
use crate::slots::slot_id::SlotId;
use crate::slots::turn_lists::TurnLists;
use annulus_driver::Slab;
use annulus_kernel::pipe::SigPipe;
use annulus_kernel::{Address, Fd};
use rustix::io::Errno;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// The state of a slot; a closed one is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Open,
    /// The bytes that it receives go to another stream: `RecvState::forward` names it.
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
    /// State of a stream that needs other operations than a plain socket; `None` for nearly all streams.
    pub(super) special: Option<Box<Special>>,
    /// The peer, if it was known when the stream was made: the kernel forgets it when the connection is reset.
    pub(crate) peer: Option<SocketAddr>,
    /// The stream's place in its listener's limit of connections.
    pub(super) permit: Option<Permit>,
    /// On the list of streams that hold more than they may.
    pub(super) memory_paused: bool,
    pub(super) life: Life,
}

/// The state of a stream that a plain socket at rest has not.
pub(super) enum Special {
    /// Descriptors travel with its bytes.
    ScmRights(ScmRights),
    /// It is a pipe, which is read and written by calls.
    Pipe(SigPipe),
    /// It is a plain socket, of which bytes in a pipe are sent.
    Spliced(Spliced),
}

/// State that all streams share, beside `Io`.
pub(crate) struct Shared {
    pub(super) links: Links,
    pub(super) vectors: Vectors,
    /// Zero-copy sends, until their notification.
    pub(super) zero_copy: Slab<ZeroCopySend>,
    pub(super) turn: TurnLists,
    /// Linked streams whose bytes were sent from a pipe: they go on.
    pub(super) resumed: Vec<SlotId>,
    pub(super) memory_paused: MemoryPaused,
    pub(super) heard: Heard,
    pub(super) pipes: Pipes,
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

    /// Whether nothing but bytes travels over it, by the operations of sockets.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.special.as_deref().is_none_or(|special| matches!(special, Special::Spliced(_)))
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

    /// Descriptors travel with its bytes from here on. None of its operations may be in flight.
    pub(crate) fn pass_descriptors(&mut self) {
        self.special = Some(Box::new(Special::ScmRights(ScmRights::default())));
    }

    pub(crate) fn passes_descriptors(&self) -> bool {
        matches!(self.special.as_deref(), Some(Special::ScmRights(_)))
    }

    /// Adds the descriptors that came with the bytes that were received last to a list.
    #[inline]
    pub(crate) fn take_descriptors(&mut self, list: &mut Vec<OwnedFd>) {
        if let Some(scm_rights) = self.scm_rights() {
            scm_rights.take(list);
        }
    }

    /// The error of descriptors that were lost, once: before the bytes that they came with.
    ///
    /// # Errors
    /// `QuotaExceeded` if descriptors were lost.
    pub(crate) fn check_descriptors(&mut self) -> io::Result<()> {
        if self.scm_rights().is_some_and(|scm_rights| mem::take(&mut scm_rights.has_lost)) {
            let text = "descriptors that came with the next bytes are lost, since the process may open no more (RLIMIT_NOFILE)";
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn scm_rights(&mut self) -> Option<&mut ScmRights> {
        match self.special.as_deref_mut() {
            Some(Special::ScmRights(scm_rights)) => Some(scm_rights),
            _ => None,
        }
    }

    /// If it is a pipe, the signal effect of its writes.
    #[inline]
    pub(super) fn pipe(&self) -> Option<SigPipe> {
        match self.special.as_deref() {
            Some(Special::Pipe(signal)) => Some(*signal),
            _ => None,
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
