//! Sending and receiving datagrams, whatever their family.

use super::Net;
use super::mailbox::{Letter, Mailbox, Partner};
use super::socket::{Side, SocketId};
use crate::descriptors::FileId;
use annulus_kernel::{Address, Domain};
use rustix::io::Errno;
use std::net::IpAddr;

/// A datagram as its sender hands it over; its bytes are gathered when it is clear that it goes.
pub(crate) struct Draft<'a> {
    /// Where to; where not said, to whom the socket is connected.
    pub(crate) to: Option<&'a Address>,
    pub(crate) len: usize,
    pub(crate) wishes: Wishes,
}

/// What a sender asked for beside, for one send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) tos: Option<u8>,
    /// The local address to leave from.
    pub(crate) from: Option<IpAddr>,
    /// The size of the datagrams that the bytes are to be cut into.
    pub(crate) segment: Option<u16>,
}

impl Net {
    /// Sends a datagram, with these descriptors, which it takes if it goes. EAGAIN where it has to wait.
    pub(crate) fn post(
        &mut self,
        id: SocketId,
        draft: &Draft<'_>,
        rights: &mut Vec<FileId>,
        gather: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), Errno> {
        match self.socket(id).domain {
            Domain::Unix => self.post_unix(id, draft, rights, gather),
            Domain::Inet | Domain::Inet6 => self.post_udp(id, draft, gather),
        }
    }

    /// Whether a datagram for this address would not have to wait now: it goes, or is refused.
    pub(crate) fn may_post(&self, id: SocketId, to: Option<&Address>) -> bool {
        let socket = self.socket(id);
        let Some(mail) = &socket.mail else { return true };
        let over = socket.error.is_some() || socket.stopped_sending;
        over || mail.charged < socket.options.send_buffer && self.target_has_place(id, to)
    }

    /// Only a Unix socket makes its senders wait; and not the one it is connected to.
    pub(crate) fn target_has_place(&self, id: SocketId, to: Option<&Address>) -> bool {
        if self.socket(id).domain != Domain::Unix {
            return true;
        }
        let Ok(target) = self.target(id, to) else { return true };
        let Some(mail) = &self.socket(target).mail else { return true };
        mail.partner == Partner::Living(id) || !mail.is_full()
    }

    /// What stands against any sending at all.
    pub(super) fn refusal(&mut self, id: SocketId) -> Result<(), Errno> {
        let socket = self.socket_mut(id);
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        if socket.stopped_sending { Err(Errno::PIPE) } else { Ok(()) }
    }

    /// A letter counts against its sender's buffer from here to [`settle`](Self::settle).
    pub(super) fn charge(&mut self, letter: &mut Letter, id: SocketId) {
        letter.sender = Some(id);
        let socket = self.socket_mut(id);
        // The sender stays as long as its letter does.
        socket.events += 1;
        if let Some(mail) = &mut socket.mail {
            mail.charged += letter.cost();
        }
    }

    pub(super) fn settle(&mut self, letter: &Letter) {
        let Some(id) = letter.sender else { return };
        let socket = self.socket_mut(id);
        socket.events -= 1;
        if let Some(mail) = &mut socket.mail {
            mail.charged -= letter.cost();
        }
        self.wake(id, Side::Write);
        self.reap(id);
    }

    /// Takes the oldest letter that a socket has received, or says why there is none.
    pub(crate) fn collect(&mut self, id: SocketId) -> Result<Letter, Errno> {
        let socket = self.socket_mut(id);
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let stopped = socket.stopped_receiving;
        let mail = socket.mail.as_mut().expect("asked of datagram sockets only");
        let Some(letter) = mail.take() else {
            return if stopped { Ok(Letter::default()) } else { Err(Errno::AGAIN) };
        };
        self.free_place(id);
        self.settle(&letter);
        Ok(letter)
    }

    /// Senders that waited for a place look again.
    fn free_place(&mut self, id: SocketId) {
        let Some(mail) = &mut self.socket_mut(id).mail else { return };
        for sender in std::mem::take(&mut mail.blocked) {
            if self.sockets.find(sender).is_some() {
                self.wake(sender, Side::Write);
            }
        }
    }

    pub(super) fn shut_datagram(
        &mut self,
        id: SocketId,
        read: bool,
        write: bool,
    ) -> Result<(), Errno> {
        let socket = self.socket_mut(id);
        socket.stopped_receiving |= read;
        socket.stopped_sending |= write;
        // As Linux: done, and an error nevertheless.
        let missing = socket.domain != Domain::Unix && socket.remote.is_none();
        self.wake(id, Side::Read);
        self.wake(id, Side::Write);
        self.free_place(id);
        if missing { Err(Errno::NOTCONN) } else { Ok(()) }
    }

    /// The letters of a socket that is gone are nobody's.
    pub(super) fn release_mail(&mut self, id: SocketId) {
        while let Some(letter) = self.socket_mut(id).mail.as_mut().and_then(|mail| mail.take()) {
            self.discard(letter);
        }
        self.free_place(id);
        if self.socket(id).domain == Domain::Unix {
            self.part_from(id);
        }
    }

    /// A letter that nobody will read.
    pub(super) fn discard(&mut self, letter: Letter) {
        self.settle(&letter);
        self.orphans.extend(letter.rights);
    }

    /// Whoever was connected to a Unix socket that is gone learns it with the next send.
    fn part_from(&mut self, id: SocketId) {
        let gone = Partner::Living(id);
        let deserted = |mail: &Mailbox| mail.partner == gone;
        let all = self.sockets.iter().filter(|(_, it)| it.mail.as_deref().is_some_and(deserted));
        let deserted: Vec<SocketId> = all.map(|(id, _)| id).collect();
        for id in deserted {
            if let Some(mail) = &mut self.socket_mut(id).mail {
                mail.partner = Partner::Gone;
            }
            self.wake(id, Side::Write);
        }
    }

    /// Whether so many bytes have a place in a socket's send buffer.
    pub(super) fn has_charge_left(&self, id: SocketId) -> bool {
        let socket = self.socket(id);
        socket.mail.as_ref().is_some_and(|mail| mail.charged < socket.options.send_buffer)
    }
}
