//! Slots with generations, in chunks that never move, and tokens, which identify operations in
//! flight and contain their slot.

use annulus_kernel::prefetch;
use std::fmt;

/// The kind of an operation, which determines the table that the slot of its token belongs to. The
/// events of `Ignored` are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum OpKind {
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
    /// An operation that a program defines.
    Custom = 14,
}

impl OpKind {
    pub(crate) const ALL: [Self; 15] = [
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
        Self::Custom,
    ];
}

/// The `user_data` of an entry: 8 bits of kind, 24 bits of generation, 32 bits of slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl Token {
    /// The token of operations whose events are dropped.
    pub const IGNORED: Self = Self(0);
    /// Creates the token of an operation of the driver itself, whose events the layer above never
    /// sees.
    pub(crate) const fn internal(slot: u32) -> Self {
        Self(slot as u64)
    }

    /// Number of generations. After the last one, a slot starts again at generation zero.
    pub const GENERATIONS: u32 = 1 << 24;

    /// Creates a token; the generation is truncated to 24 bits.
    #[inline]
    pub fn new(kind: OpKind, generation: u32, slot: u32) -> Self {
        let generation = generation & (Self::GENERATIONS - 1);
        Self(u64::from(kind as u8) << 56 | u64::from(generation) << 32 | u64::from(slot))
    }

    /// Returns the token as a `user_data`.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the token with the given `user_data`, or `None` if its kind does not exist.
    #[inline]
    pub fn from_bits(bits: u64) -> Option<Self> {
        (((bits >> 56) as usize) < OpKind::ALL.len()).then_some(Self(bits))
    }

    /// Returns the kind of the operation, which determines the table that the slot belongs to.
    #[inline]
    pub const fn kind(self) -> OpKind {
        OpKind::ALL[(self.0 >> 56) as usize]
    }

    /// Returns the slot's index and generation.
    #[inline]
    pub fn id(self) -> SlotId {
        let generation = (self.0 >> 32) as u32 & (Self::GENERATIONS - 1);
        SlotId { index: self.slot(), generation }
    }

    /// Returns the index of the slot.
    #[inline]
    pub fn slot(self) -> u32 {
        self.0 as u32
    }
}

/// The identity of a slot in use: its index, and the generation, which distinguishes this use from
/// other uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotId {
    /// The index of the slot in its table.
    pub index: u32,
    /// Number of times that the slot has been reused, modulo 2^24.
    pub generation: u32,
}

impl SlotId {
    /// Returns the token of an operation of this slot. A slot has at most one operation of each
    /// kind in flight.
    #[inline]
    pub fn token(self, kind: OpKind) -> Token {
        Token::new(kind, self.generation, self.index)
    }
}

const SLOTS_PER_CHUNK: usize = 64;
const NO_SLOT: u32 = u32::MAX;

enum SlotState<T> {
    Used(T),
    Free { next: u32 },
}

struct Slot<T> {
    generation: u32,
    state: SlotState<T>,
}

/// A table of `T` by index. Indices are reused; the generation distinguishes one use from the next.
///
/// The chunks never move, so the kernel may be given addresses of values in them.
pub struct Slab<T> {
    /// Arrays, not slices, so that an index within a chunk needs no bounds check.
    chunks: Vec<Box<[Slot<T>; SLOTS_PER_CHUNK]>>,
    free: u32,
    len: usize,
}

impl<T> Slab<T> {
    /// Creates an empty table, which allocates with the first value.
    pub fn new() -> Self {
        Self { chunks: Vec::new(), free: NO_SLOT, len: 0 }
    }

    /// Returns the number of slots in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts a value in a free slot, and returns the index of the slot.
    pub fn insert(&mut self, value: T) -> u32 {
        self.insert_with(|_| value)
    }

    /// Creates a value in a free slot, so that a large value is not moved. `make` receives the
    /// slot's identity.
    #[inline]
    pub fn insert_with(&mut self, make: impl FnOnce(SlotId) -> T) -> u32 {
        if self.free == NO_SLOT {
            self.grow();
        }
        let index = self.free;
        let slot = self.slot_mut(index);
        let SlotState::Free { next } = slot.state else {
            unreachable!("the free list contains a slot in use")
        };
        slot.state = SlotState::Used(make(SlotId { index, generation: slot.generation }));
        self.free = next;
        self.len += 1;
        index
    }

    /// Takes a value out. Events with existing tokens of the slot are late from now on.
    ///
    /// # Panics
    /// Panics if the slot is free.
    pub fn remove(&mut self, index: u32) -> T {
        let next = self.free;
        let slot = self.slot_mut(index);
        let SlotState::Used(value) = std::mem::replace(&mut slot.state, SlotState::Free { next })
        else {
            panic!("slot {index} was freed twice")
        };
        slot.generation = (slot.generation + 1) % Token::GENERATIONS;
        self.free = index;
        self.len -= 1;
        value
    }

    /// Drops a value in place. Events with existing tokens of the slot are late from now on.
    ///
    /// # Panics
    /// Panics if the slot is free.
    #[inline]
    pub fn free(&mut self, index: u32) {
        let next = self.free;
        let slot = self.slot_mut(index);
        assert!(matches!(slot.state, SlotState::Used(_)), "slot {index} was freed twice");
        slot.state = SlotState::Free { next };
        slot.generation = (slot.generation + 1) % Token::GENERATIONS;
        self.free = index;
        self.len -= 1;
    }

    /// Returns the identity of a slot in its current use.
    #[inline]
    pub fn id(&self, index: u32) -> SlotId {
        let slot = &self.chunks[index as usize / SLOTS_PER_CHUNK][index as usize % SLOTS_PER_CHUNK];
        SlotId { index, generation: slot.generation }
    }

    /// Returns the value with this identity, or `None` if it has been removed.
    #[inline]
    pub fn find(&mut self, id: SlotId) -> Option<&mut T> {
        let SlotId { index, generation } = id;
        let slot = &mut self.chunks.get_mut(index as usize / SLOTS_PER_CHUNK)?
            [index as usize % SLOTS_PER_CHUNK];
        match &mut slot.state {
            SlotState::Used(value) if slot.generation == generation => Some(value),
            _ => None,
        }
    }

    /// Prefetches the memory of a slot.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        if let Some(chunk) = self.chunks.get(index as usize / SLOTS_PER_CHUNK) {
            prefetch(&raw const chunk[index as usize % SLOTS_PER_CHUNK], size_of::<Slot<T>>());
        }
    }

    /// Returns the value in a slot that is known to be in use.
    ///
    /// # Panics
    /// Panics if the slot is free: the index was used after its value was removed.
    #[inline]
    pub fn get(&mut self, index: u32) -> &mut T {
        self.get_with_id(index).1
    }

    /// Like [`get`](Self::get), but also returns the identity of the slot.
    ///
    /// # Panics
    /// Panics if the slot is free.
    #[inline]
    pub fn get_with_id(&mut self, index: u32) -> (SlotId, &mut T) {
        let slot = self.slot_mut(index);
        match &mut slot.state {
            SlotState::Used(value) => (SlotId { index, generation: slot.generation }, value),
            SlotState::Free { .. } => panic!("slot {index} is free"),
        }
    }

    /// Returns the value in a slot, if any.
    #[inline]
    pub fn peek(&mut self, index: u32) -> Option<&mut T> {
        let slot = &mut self.chunks.get_mut(index as usize / SLOTS_PER_CHUNK)?
            [index as usize % SLOTS_PER_CHUNK];
        match &mut slot.state {
            SlotState::Used(value) => Some(value),
            SlotState::Free { .. } => None,
        }
    }

    /// Takes all values out, ordered by index.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        let slots = self.chunks.into_iter().flat_map(|chunk| chunk as Box<[Slot<T>]>);
        slots.filter_map(|slot| match slot.state {
            SlotState::Used(value) => Some(value),
            SlotState::Free { .. } => None,
        })
    }

    /// Returns all values, ordered by index.
    pub fn values(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flat_map(|chunk| chunk.iter_mut()).filter_map(|slot| match &mut slot
            .state
        {
            SlotState::Used(value) => Some(value),
            SlotState::Free { .. } => None,
        })
    }

    /// Returns the indices in use.
    pub fn indices(&self) -> Vec<u32> {
        let slots = self.chunks.iter().flat_map(|chunk| chunk.iter());
        let used = |(index, slot): (usize, &Slot<T>)| {
            matches!(slot.state, SlotState::Used(_)).then_some(index as u32)
        };
        slots.enumerate().filter_map(used).collect()
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> &mut Slot<T> {
        &mut self.chunks[index as usize / SLOTS_PER_CHUNK][index as usize % SLOTS_PER_CHUNK]
    }

    fn grow(&mut self) {
        let first = (self.chunks.len() * SLOTS_PER_CHUNK) as u32;
        let last = first + SLOTS_PER_CHUNK as u32 - 1;
        let free =
            |index| SlotState::Free { next: if index == last { NO_SLOT } else { index + 1 } };
        let slots: Box<[_]> =
            (first..=last).map(|index| Slot { generation: 0, state: free(index) }).collect();
        let Ok(chunk) = slots.try_into() else {
            unreachable!("a chunk has {SLOTS_PER_CHUNK} slots")
        };
        self.chunks.push(chunk);
        self.free = first;
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slab({} in use)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_an_earlier_use_is_not_found() {
        let mut slab = Slab::new();
        let index = slab.insert("first");
        let first = slab.id(index);
        assert_eq!(slab.find(first), Some(&mut "first"));
        assert_eq!(slab.remove(index), "first");
        assert_eq!(slab.find(first), None);
        assert_eq!(slab.insert("second"), index);
        assert_eq!(slab.find(first), None);
        assert_eq!(slab.find(slab.id(index)), Some(&mut "second"));
    }

    #[test]
    fn values_do_not_move_when_the_table_grows() {
        let mut slab = Slab::new();
        let index = slab.insert(0u64);
        let address = std::ptr::from_ref(slab.get(index));
        let others: Vec<u32> = (1..1000).map(|n| slab.insert(n)).collect();
        assert_eq!(std::ptr::from_ref(slab.get(index)), address);
        assert_eq!(slab.len(), 1000);
        for other in others {
            slab.remove(other);
        }
        assert_eq!(slab.indices(), [index]);
    }

    #[test]
    fn an_unknown_slot_is_empty() {
        let mut slab: Slab<u8> = Slab::new();
        assert_eq!(slab.find(SlotId { index: 7, generation: 0 }), None);
        assert_eq!(slab.peek(1 << 30), None);
    }

    #[test]
    fn a_token_returns_its_parts() {
        for kind in OpKind::ALL {
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
        assert_eq!(Token::new(OpKind::Send, Token::GENERATIONS, 3), Token::new(OpKind::Send, 0, 3));
        assert_eq!(Token::from_bits(u64::MAX), None);
    }
}
