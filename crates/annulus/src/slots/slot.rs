//! How an event finds its slot.

use crate::base::io::Io;
use annulus_driver::{Event, Slab};

/// The slot of an event. An event whose slot has moved on is counted, and what it carries reclaimed.
#[inline]
pub(super) fn find_or_late<'a, T>(
    slots: &'a mut Slab<T>,
    io: &mut Io,
    event: &Event,
) -> Option<&'a mut T> {
    let slot = slots.find(event.token.id());
    if slot.is_none() {
        io.late(*event);
    }
    slot
}
