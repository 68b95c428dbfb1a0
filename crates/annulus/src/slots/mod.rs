//! The objects that the kernel works on, each with a slot: streams, datagram sockets, listeners,
//! connection attempts, polls, file calls, NOPs.

mod arming;
pub(crate) mod connects;
pub(crate) mod datagrams;
pub(crate) mod file_ops;
pub(crate) mod listeners;
pub(crate) mod nops;
pub(crate) mod polls;
pub(crate) mod streams;
mod turn_lists;
pub(crate) mod waits;

use crate::base::io::Io;
use annulus_driver::{Event, Slab};

/// Returns the slot of an event. A late event, whose slot has moved on, is counted and its
/// resources are reclaimed.
#[inline]
fn find_or_late<'a, T>(slots: &'a mut Slab<T>, io: &mut Io, event: &Event) -> Option<&'a mut T> {
    let slot = slots.find(event.token.id());
    if slot.is_none() {
        io.late(*event);
    }
    slot
}
