//! Unix datagram sockets: nothing is lost, and who writes to a full one waits.

use super::Net;
use super::mailbox::{Letter, Partner};
use super::post::Draft;
use super::socket::{Side, SocketId};
use crate::descriptors::FileId;
use annulus_kernel::Address;
use rustix::io::Errno;

/// What a datagram's size leaves of the send buffer.
const RESERVE: usize = 32;

impl Net {
    pub(super) fn connect_unix_datagram(
        &mut self,
        id: SocketId,
        to: &Address,
    ) -> Result<(), Errno> {
        let target = self.names.find(to, true)?;
        if !self.socket(target).is_datagram() {
            return Err(Errno::PROTOTYPE);
        }
        self.takes_letters_of(target, id)?;
        let name = self.unix(target).name;
        self.unix_mut(id).peer_name = name;
        self.set_partner(id, Partner::Living(target));
        Ok(())
    }

    pub(super) fn set_partner(&mut self, id: SocketId, partner: Partner) {
        if let Some(mail) = &mut self.socket_mut(id).mail {
            mail.partner = partner;
        }
    }

    fn partner(&self, id: SocketId) -> Partner {
        self.socket(id).mail.as_ref().map_or(Partner::None, |mail| mail.partner)
    }

    /// Whom a letter is for.
    pub(super) fn target(&self, id: SocketId, to: Option<&Address>) -> Result<SocketId, Errno> {
        match (to, self.partner(id)) {
            (Some(name), _) => self.names.find(name, true),
            (None, Partner::Living(partner)) => Ok(partner),
            (None, Partner::Gone) => Err(Errno::CONNREFUSED),
            (None, Partner::None) => Err(Errno::NOTCONN),
        }
    }

    /// One that is connected hears its partner only.
    fn takes_letters_of(&self, target: SocketId, id: SocketId) -> Result<(), Errno> {
        match self.partner(target) {
            Partner::None => Ok(()),
            Partner::Living(partner) if partner == id => Ok(()),
            _ => Err(Errno::PERM),
        }
    }

    /// Whom a letter is for, if that is one who would take it.
    fn hearing_target(&mut self, id: SocketId, to: Option<&Address>) -> Result<SocketId, Errno> {
        let target = self.target(id, to);
        if to.is_none() && target == Err(Errno::CONNREFUSED) {
            // Told once.
            self.set_partner(id, Partner::None);
        }
        let target = target?;
        if !self.socket(target).is_datagram() {
            return Err(Errno::PROTOTYPE);
        }
        self.takes_letters_of(target, id)?;
        Ok(target)
    }

    pub(super) fn post_unix(
        &mut self,
        id: SocketId,
        draft: &Draft<'_>,
        rights: &mut Vec<FileId>,
        gather: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), Errno> {
        if draft.len + RESERVE > self.socket(id).options.send_buffer {
            return Err(Errno::MSGSIZE);
        }
        let target = self.hearing_target(id, draft.to)?;
        self.refusal(id)?;
        if self.socket(target).stopped_receiving {
            return Err(Errno::PIPE);
        }
        if !self.may_post(id, draft.to) {
            self.await_place(id, draft.to);
            return Err(Errno::AGAIN);
        }
        let from = self.unix(id).name;
        let rights = std::mem::take(rights);
        let mut letter = Letter { bytes: gather(), from, rights, ..Letter::default() };
        self.charge(&mut letter, id);
        self.hand_over(target, letter);
        Ok(())
    }

    /// Notes that a socket waits for a place with whom it sends to, if that is what it lacks.
    pub(crate) fn await_place(&mut self, id: SocketId, to: Option<&Address>) {
        if self.target_has_place(id, to) {
            return;
        }
        let Ok(target) = self.target(id, to) else { return };
        if let Some(mail) = &mut self.socket_mut(target).mail
            && !mail.blocked.contains(&id)
        {
            mail.blocked.push(id);
        }
    }

    fn hand_over(&mut self, target: SocketId, mut letter: Letter) {
        letter.at = self.time.now();
        if let Some(mail) = &mut self.socket_mut(target).mail {
            // The places are counted, not the bytes.
            mail.receive(letter, usize::MAX, false);
        }
        self.wake(target, Side::Read);
    }
}
