//! A slot's own place in the table of its family.

use annulus_driver::{Kind, Token};

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
