//! Datagrams. One slot a socket: its receive, its sends. Policy for all drivers and kernels, as `stream` is for streams.
//!
//! A *mailbox* is a datagram socket's slot. A *letter* is a received datagram in its buffer, not looked at; opened, it is
//! *mail*. A *parcel* is a datagram on its way out, with everything the kernel reads of it, at a place that does not move.
//! The *post office* is all of them together, and what the turn has to do for them.
//!
//! The life of a mailbox: *open*, while a handle owns it → *dropped*, while what was accepted is still being sent (bounded
//! by the linger) and its receive is being cancelled → *closed*: nothing is in flight, the descriptor goes.

mod accepting;
mod close;
mod deferred;
mod errors;
mod format;
mod name;
mod outgoing;
mod received;
mod recv;
mod send;
mod send_state;

pub(crate) use format::Format;
pub(crate) use name::Name;
pub(crate) use outgoing::Envelope;
pub(crate) use received::Mail;
pub(crate) use recv::Desk;

use annulus_driver::{PoolSize, Slab};
use annulus_kernel::{Domain, Fd};
use outgoing::Parcel;
use recv::Inbox;
use send_state::Outbox;
use std::collections::VecDeque;
use std::io;

/// A datagram socket's slot.
pub(crate) struct Mailbox {
    pub(crate) fd: Fd,
    /// How its datagrams are laid out, which follows from its family.
    pub(crate) format: &'static Format,
    pub(crate) rx: Inbox,
    pub(crate) tx: Outbox,
    /// No handle owns it any more.
    dropped: bool,
}

impl Mailbox {
    pub(crate) fn new(fd: Fd, format: &'static Format, settings: Settings) -> Self {
        Self {
            fd,
            format,
            rx: Inbox::new(settings.max_datagram),
            tx: Outbox::new(settings.unordered),
            dropped: false,
        }
    }
}

/// Most bytes that one may ask to receive whole: all that UDP's length can tell; and as much memory as one receive may take,
/// where only the sender's buffer is the limit.
const MOST_INET: usize = 65_535;
const MOST_UNIX: usize = 64 << 20;

/// What is decided when a mailbox is made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    /// Sends may overtake one another.
    pub(crate) unordered: bool,
    /// Largest datagram to be received whole; what the pool's buffers hold, where none is given.
    pub(crate) max_datagram: Option<usize>,
}

impl Settings {
    /// # Errors
    /// `InvalidInput` where datagrams of this family do not get as large as is asked for, naming the limit.
    pub(crate) fn check(&self, domain: Domain) -> io::Result<()> {
        let most = if domain == Domain::Unix { MOST_UNIX } else { MOST_INET };
        match self.max_datagram.filter(|wanted| *wanted > most) {
            Some(wanted) => {
                let text = format!("max_datagram of {wanted} bytes is above the limit of {most}");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
            None => Ok(()),
        }
    }
}

/// All mailboxes and parcels, and what the turn has to do for them. Lists name slots, each at most once.
pub(crate) struct PostOffice {
    pub(crate) boxes: Slab<Mailbox>,
    pub(crate) parcels: Slab<Parcel>,
    /// Mailboxes to arm.
    pub(crate) arms: VecDeque<u32>,
    /// Mailboxes with something to send.
    pub(crate) posts: Vec<u32>,
    /// Mailboxes whose parcels went out in this turn: done, unless an event says otherwise.
    pub(crate) posted: Vec<u32>,
    /// A task waits for one of the posted: no sleep before they are settled.
    pub(crate) must_settle: bool,
    /// The size of the pool, which is made with the first mailbox.
    pub(crate) size: PoolSize,
}

impl PostOffice {
    pub(crate) fn new(size: PoolSize) -> Self {
        Self {
            boxes: Slab::new(),
            parcels: Slab::new(),
            arms: VecDeque::new(),
            posts: Vec::new(),
            posted: Vec::new(),
            must_settle: false,
            size,
        }
    }
}
