//! The name of an operation in flight: kind, generation, slot. Never a pointer.

/// The kind of an operation, which determines what the slot of its token is an index into. The events of `Ignored` are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    Ignored = 0,
    Accept = 1,
    Recv = 2,
    Send = 3,
    Connect = 4,
    Poll = 5,
    Nop = 6,
    RecvReady = 7,
    File = 8,
    /// Receives datagrams, into buffers of the datagram pool.
    RecvDatagram = 9,
    /// Sends one datagram.
    SendDatagram = 10,
    /// Waits until a datagram socket is writable.
    DatagramWritable = 11,
    /// Sends without copying.
    SendZeroCopy = 12,
    /// Waits until a listener has a connection to accept.
    AcceptReady = 13,
}

impl Kind {
    pub(crate) const ALL: [Self; 14] = [
        Self::Ignored,
        Self::Accept,
        Self::Recv,
        Self::Send,
        Self::Connect,
        Self::Poll,
        Self::Nop,
        Self::RecvReady,
        Self::File,
        Self::RecvDatagram,
        Self::SendDatagram,
        Self::DatagramWritable,
        Self::SendZeroCopy,
        Self::AcceptReady,
    ];
}

/// 8 bits kind, 24 bits generation, 32 bits slot: the `user_data` of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl Token {
    /// For operations whose events are dropped.
    pub const IGNORED: Self = Self(0);
    /// For the operations of a driver itself: the layer above never sees their events.
    pub(crate) const fn ignored(slot: u32) -> Self {
        Self(slot as u64)
    }

    /// The number of generations; they wrap.
    pub const GENERATIONS: u32 = 1 << 24;

    /// A token; the generation is truncated to 24 bits.
    #[inline]
    pub fn new(kind: Kind, generation: u32, slot: u32) -> Self {
        let generation = generation & (Self::GENERATIONS - 1);
        Self(u64::from(kind as u8) << 56 | u64::from(generation) << 32 | u64::from(slot))
    }

    /// The token as a `user_data`.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The token that a `user_data` stands for; `None` for a kind that does not exist.
    #[inline]
    pub fn from_bits(bits: u64) -> Option<Self> {
        (((bits >> 56) as usize) < Kind::ALL.len()).then_some(Self(bits))
    }

    /// The kind of the operation: it determines what the slot is an index into.
    #[inline]
    pub const fn kind(self) -> Kind {
        Kind::ALL[(self.0 >> 56) as usize]
    }

    /// The slot, as its table knows it.
    #[inline]
    pub fn id(self) -> SlotId {
        let generation = (self.0 >> 32) as u32 & (Self::GENERATIONS - 1);
        SlotId { index: self.slot(), generation }
    }

    /// Index of the slot.
    #[inline]
    pub fn slot(self) -> u32 {
        self.0 as u32
    }
}

/// The name of a slot in use: its index, and the generation, which distinguishes this use from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotId {
    /// Where it lies in its table.
    pub index: u32,
    /// How often the slot was reused, modulo 2^24.
    pub generation: u32,
}

impl SlotId {
    /// The name of an operation of this slot in flight: at most one of each kind.
    #[inline]
    pub fn token(self, kind: Kind) -> Token {
        Token::new(kind, self.generation, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_keeps_its_parts() {
        for kind in Kind::ALL {
            for generation in [0, 1, Token::GENERATIONS - 1] {
                for slot in [0, 1, u32::MAX] {
                    let token = Token::new(kind, generation, slot);
                    assert_eq!(
                        (token.kind(), token.id().generation, token.slot()),
                        (kind, generation, slot)
                    );
                    assert_eq!(Token::from_bits(token.bits()), Some(token));
                }
            }
        }
    }

    #[test]
    fn generations_wrap_and_unknown_kinds_are_refused() {
        assert_eq!(Token::new(Kind::Send, Token::GENERATIONS, 3), Token::new(Kind::Send, 0, 3));
        assert_eq!(Token::from_bits(u64::MAX), None);
    }
}
