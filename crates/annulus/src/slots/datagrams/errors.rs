//! Datagrams that the kernel refused: what is to become of each, and who is told.

use super::Name;
use super::outgoing::{Parcel, State};
use crate::runtime::inner::Inner;
use annulus_kernel::Domain;
use rustix::io::Errno;
use std::io;

/// Ways on which a failure is kept until it is told.
const MOST_WAYS: usize = 16;

/// What became of a datagram whose sender had gone on.
pub(super) struct Failure {
    errno: Errno,
    to: Name,
    text: String,
    /// Earlier ones that are told with it, by number.
    others: usize,
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
        Self { errno, to: parcel.envelope.to.clone(), text, others: 0 }
    }

    fn error(self) -> io::Error {
        let Self { errno, text, others, .. } = self;
        let error = io::Error::from(errno);
        let more =
            if others > 0 { format!("; {others} more were not sent") } else { String::new() };
        io::Error::new(error.kind(), format!("{text}: {error}{more}"))
    }
}

/// What is to be told: of each way the last failure, and how many there were. Bounded: beyond that the oldest only counts.
#[derive(Default)]
pub(super) struct Failures(Vec<Failure>);

impl Failures {
    pub(super) fn note(&mut self, failure: Failure) {
        let same = self.0.iter().position(|known| known.to == failure.to);
        let oldest = (self.0.len() == MOST_WAYS).then_some(0);
        let known = same.or(oldest).map(|place| self.0.remove(place));
        let others = known.map_or(0, |known| known.others + 1);
        self.0.push(Failure { others, ..failure });
    }

    /// The one on this way, to be told.
    #[inline]
    pub(super) fn take_on(&mut self, to: &Name) -> Option<io::Error> {
        let place = self.0.iter().position(|known| known.to == *to)?;
        Some(self.0.remove(place).error())
    }

    /// All of them, to be told as one.
    pub(super) fn take_all(&mut self) -> Option<io::Error> {
        let all = std::mem::take(&mut self.0);
        let last = all.into_iter().reduce(|earlier, failure| {
            let others = earlier.others + 1 + failure.others;
            Failure { others, ..failure }
        })?;
        Some(last.error())
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
            Errno::AGAIN | Errno::INTR => {
                mailbox.tx.untold |= mailbox.is_blind(parcel);
                return State::Refused;
            }
            Errno::NOBUFS | Errno::NOMEM => {
                mailbox.tx.untold = true;
                return State::Refused;
            }
            // The device cannot.
            Errno::IO if parcel.envelope.segment_size.is_some() => {
                mailbox.tx.cuts_here = true;
                return State::Again;
            }
            // Its segments are wider than the way there takes at once: datagrams alone may pass in fragments. (Older kernels
            // say what they also say of an address that nothing can be sent to.)
            Errno::MSGSIZE | Errno::INVAL if parcel.envelope.segment_size.is_some() => {
                return State::Cut;
            }
            _ => {}
        }
        let inet = mailbox.format.domain != Domain::Unix;
        if inet && mailbox.tx.connected && tells_of_an_earlier_one(errno) && !parcel.retried {
            parcel.retried = true;
            if mailbox.rx.hear(errno) {
                self.notify_receivers(slot);
            } else {
                mailbox.tx.failures.note(Failure::of(parcel, errno));
            }
            return State::Again;
        }
        mailbox.tx.failures.note(Failure::of(parcel, errno));
        State::Failed
    }
}
