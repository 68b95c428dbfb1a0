//! Datagrams that the kernel refused: what is to become of each, and who is told.

use super::Name;
use super::parcel::{Parcel, State};
use crate::core::Inner;
use annulus_ring::Domain;
use rustix::io::Errno;
use std::io;

/// What became of a datagram whose sender had gone on.
pub(super) struct Failure {
    errno: Errno,
    pub(super) to: Name,
    text: String,
}

impl Failure {
    pub(super) fn error(self) -> io::Error {
        let error = io::Error::from(self.errno);
        io::Error::new(error.kind(), format!("{}: {error}", self.text))
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
    /// What is to become of a parcel that the kernel refused.
    pub(super) fn judge(&mut self, slot: u32, id: u32, errno: Errno) -> State {
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
}
