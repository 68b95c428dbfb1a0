//! How a mailbox begins and ends.

use super::{Format, Mailbox, Settings};
use crate::runtime::inner::Inner;
use crate::time::Fire;
use annulus_kernel::Fd;
use std::io;

impl Inner {
    /// Takes a datagram socket in. The first one makes the pool that all of them receive into.
    ///
    /// # Errors
    /// Where there is no memory for that, or the driver cannot receive datagrams. The descriptor is then still the
    /// caller's.
    pub(crate) fn add_mailbox(
        &mut self,
        fd: Fd,
        format: &'static Format,
        settings: Settings,
    ) -> io::Result<u32> {
        self.io.driver.open_datagram_pool(self.post.size)?;
        Ok(self.post.boxes.insert(Mailbox::new(fd, format, settings)))
    }

    /// The handle is gone. What was accepted is still sent, for as long as the linger.
    pub(crate) fn drop_mailbox(&mut self, slot: u32) {
        let mailbox = self.post.boxes.get(slot);
        mailbox.dropped = true;
        let stuck = !mailbox.tx.is_idle();
        self.stop_mail(slot);
        self.discard_mail(slot);
        if stuck {
            self.linger_posts(slot);
        }
        self.close_mailbox_if_done(slot);
    }

    /// Sets the time within which a dropped mailbox must have sent what it had accepted.
    pub(super) fn linger_posts(&mut self, slot: u32) {
        let deadline = self.io.now() + self.io.bounds.linger;
        let fire = Fire::PostLinger(slot, self.post.boxes.generation(slot));
        let mailbox = self.post.boxes.get(slot);
        if mailbox.tx.linger.is_none() {
            mailbox.tx.linger = Some(self.io.timers.insert(deadline, fire));
        }
    }

    /// The linger is over.
    pub(crate) fn on_post_linger(&mut self, slot: u32, generation: u32) {
        if let Some(mailbox) = self.post.boxes.find(slot, generation) {
            mailbox.tx.linger = None;
            self.stop_posts(slot);
            self.close_mailbox_if_done(slot);
        }
    }

    /// Closes a dropped mailbox of which nothing is in flight.
    pub(super) fn close_mailbox_if_done(&mut self, slot: u32) {
        let mailbox = self.post.boxes.get(slot);
        if !(mailbox.dropped && mailbox.rx.is_idle() && mailbox.tx.is_quiet()) {
            return;
        }
        self.discard_mail(slot);
        _ = self.count_drops(slot);
        let mut mailbox = self.post.boxes.remove(slot);
        if let Some(key) = mailbox.tx.linger {
            self.io.timers.remove(key);
        }
        mailbox.rx.waiters.notify_all(&mut self.io.after.drops);
        mailbox.tx.waiters.notify_all(&mut self.io.after.drops);
        self.io.close(mailbox.fd);
    }

    /// Whether all mailboxes have sent what they had accepted.
    pub(crate) fn all_posted(&mut self) -> bool {
        let slots = self.post.boxes.indices();
        slots.into_iter().all(|slot| self.post.boxes.get(slot).tx.is_idle())
    }

    /// Ends all mailboxes. Handles that outlive the runtime find it ended.
    pub(crate) fn stop_mailboxes(&mut self) {
        for slot in self.post.boxes.indices() {
            self.stop_posts(slot);
            self.drop_mailbox(slot);
        }
    }
}
