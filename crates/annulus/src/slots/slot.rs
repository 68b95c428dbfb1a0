//! The slots of a family: how one names its own place, and how an event finds it.

use crate::base::io::Io;
use annulus_driver::{Event, Kind, Slab, Token};

/// The index and the generation by which tokens and timers name a slot.
#[derive(Clone, Copy, Default)]
pub(crate) struct SlotId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl SlotId {
    /// The name of an operation in flight: at most one of each kind.
    #[inline]
    pub(super) fn token(self, kind: Kind) -> Token {
        Token::new(kind, self.generation, self.index)
    }
}

/// The slot of an event. An event whose slot has moved on is counted, and what it carries reclaimed.
#[inline]
pub(super) fn find_or_late<'a, T>(
    slots: &'a mut Slab<T>,
    io: &mut Io,
    event: &Event,
) -> Option<&'a mut T> {
    let slot = slots.find(event.token.slot(), event.token.generation());
    if slot.is_none() {
        io.late(*event);
    }
    slot
}
