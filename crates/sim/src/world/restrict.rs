//! The restrictions of a ring, from when it is enabled.

use crate::memory::Argument;
use annulus_kernel::Register;
use annulus_ring::Entry;
use rustix::io::Errno;

/// `IORING_RESTRICTION_*`
const REGISTRATION: u16 = 0;
const OPERATION: u16 = 1;
const FLAGS_ALLOWED: u16 = 2;
const FLAGS_REQUIRED: u16 = 3;

/// The lists of restrictions.
#[derive(Debug, Default)]
pub(super) struct Restrictions {
    registrations: Vec<u8>,
    operations: Vec<u8>,
    flags_allowed: u8,
    flags_required: u8,
}

impl Restrictions {
    pub(super) fn read(arg: Argument) -> Result<Self, Errno> {
        let mut lists = Self::default();
        for rule in (0..arg.count()).map(|index| arg.restriction(index)) {
            match rule.kind {
                REGISTRATION => lists.registrations.push(rule.value),
                OPERATION => lists.operations.push(rule.value),
                FLAGS_ALLOWED => lists.flags_allowed = rule.value,
                FLAGS_REQUIRED => lists.flags_required = rule.value,
                _ => return Err(Errno::INVAL),
            }
        }
        Ok(lists)
    }

    pub(super) fn allow_entry(&self, entry: &Entry) -> bool {
        self.operations.contains(&entry.opcode)
            && entry.flags & self.flags_required == self.flags_required
            && entry.flags & !(self.flags_allowed | self.flags_required) == 0
    }

    pub(super) fn allow_registration(&self, what: Register) -> bool {
        self.registrations.contains(&(what as u8))
    }
}
