//! Buffers that reads and writes use again and again are registered with the ring. The kernel then
//! looks up and pins their pages once, instead of for each call.
//!
//! A buffer is found by the address of a call, so a call needs nothing that says where its memory
//! comes from. The owner of the memory [adds](BufferRegistry::add) it, and
//! [removes](BufferRegistry::remove) it before it is freed.
#![allow(unsafe_code)]

use annulus_kernel::IoVec;
use annulus_ring::{BufferTable, Ring};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::RefUnwindSafe;

/// Number of calls with a buffer before the next one registers it. Registering costs about as much
/// as a few calls save.
const MIN_USES: u8 = 8;
/// Maximum number of registered buffers.
const MAX_BUFFERS: u16 = 1024;
/// Maximum number of registered bytes, all of which are pinned.
const MAX_BYTES: usize = 64 << 20;

/// Number of calls with unregistered buffers, after the kernel has refused a buffer or the table,
/// before the next attempt. The limit (`RLIMIT_MEMLOCK`) covers all rings of a user, so others may
/// free memory.
const CALLS_PER_RETRY: u16 = 4096;

/// The buffers that calls of a ring may use as registered buffers.
pub struct BufferRegistry {
    state: RefCell<State>,
    /// Whether slots wait to be cleared.
    has_released: Cell<bool>,
}

/// A panic does not interrupt a change: no foreign code runs during one.
impl RefUnwindSafe for BufferRegistry {}

#[derive(Default)]
struct State {
    /// The buffers by address. Each is allocated until it is removed.
    buffers: HashMap<usize, Buffer, BuildHasherDefault<AddressHasher>>,
    /// The ring's table of buffers, once the first buffer is registered.
    table: Option<BufferTable>,
    /// Number of slots that have been used.
    used_slots: u16,
    /// Used slots without a buffer.
    free_slots: Vec<u16>,
    /// Slots whose buffers have been removed, and are still pinned.
    released_slots: Vec<u16>,
    registered_bytes: usize,
    /// Number of calls to let pass before a buffer is registered, after a refusal.
    calls_until_retry: u16,
}

struct Buffer {
    len: usize,
    /// Number of calls with the buffer, counted up to [`MIN_USES`].
    uses: u8,
    slot: Option<u16>,
}

impl BufferRegistry {
    pub(super) fn new() -> Self {
        Self { state: RefCell::default(), has_released: Cell::new(false) }
    }

    /// Adds a buffer, which calls may use from its start.
    ///
    /// # Safety
    /// Until the buffer is removed, its memory must stay allocated: a call with other memory at the
    /// same address would read or write the old pages.
    pub unsafe fn add(&self, start: *const u8, len: usize) {
        if len <= MAX_BYTES {
            let buffer = Buffer { len, uses: 0, slot: None };
            self.state.borrow_mut().buffers.insert(start.addr(), buffer);
        }
    }

    /// Removes a buffer, which no call in flight may use.
    pub fn remove(&self, start: *const u8) {
        let state = &mut *self.state.borrow_mut();
        if let Some(Buffer { len, slot: Some(slot), .. }) = state.buffers.remove(&start.addr()) {
            state.registered_bytes -= len;
            state.released_slots.push(slot);
            self.has_released.set(true);
        }
    }

    /// Returns the slot of the buffer that a call uses, if it is registered. Registers a buffer
    /// that has been used often.
    #[inline]
    pub(super) fn slot_of(&self, ring: &Ring, address: u64, len: u32) -> Option<u16> {
        let state = &mut *self.state.borrow_mut();
        let address = usize::try_from(address).ok()?;
        let buffer = state.buffers.get_mut(&address)?;
        if len as usize > buffer.len {
            return None;
        }
        if buffer.slot.is_some() {
            return buffer.slot;
        }
        if buffer.uses < MIN_USES {
            buffer.uses += 1;
            return None;
        }
        self.register(state, ring, address)
    }

    /// Registers a buffer, if the limits allow it, and returns its slot.
    #[cold]
    fn register(&self, state: &mut State, ring: &Ring, address: usize) -> Option<u16> {
        if state.calls_until_retry > 0 {
            state.calls_until_retry -= 1;
            return None;
        }
        self.clear_released(state, ring);
        if state.table.is_none() {
            state.table = BufferTable::register(ring, MAX_BUFFERS).ok();
        }
        let Some(table) = &state.table else {
            state.calls_until_retry = CALLS_PER_RETRY;
            return None;
        };
        let buffer = state.buffers.get_mut(&address)?;
        if state.registered_bytes + buffer.len > MAX_BYTES {
            return None;
        }
        let slot = match state.free_slots.pop() {
            Some(slot) => slot,
            None if state.used_slots < table.slots() => {
                state.used_slots += 1;
                state.used_slots - 1
            }
            None => return None,
        };
        let memory = IoVec { base: std::ptr::without_provenance(address), len: buffer.len };
        match table.set(ring, slot, memory) {
            Ok(()) => {
                buffer.slot = Some(slot);
                state.registered_bytes += buffer.len;
                Some(slot)
            }
            Err(_) => {
                // Buffers that are registered stay so.
                state.free_slots.push(slot);
                state.calls_until_retry = CALLS_PER_RETRY;
                None
            }
        }
    }

    /// Unpins the buffers that have been removed.
    #[inline]
    pub(super) fn clear(&self, ring: &Ring) {
        if self.has_released.get() {
            self.clear_released(&mut self.state.borrow_mut(), ring);
        }
    }

    #[cold]
    fn clear_released(&self, state: &mut State, ring: &Ring) {
        self.has_released.set(false);
        for slot in state.released_slots.drain(..) {
            // After a failure, the slot keeps its pages and is not used again.
            if BufferTable::clear(ring, slot).is_ok() {
                state.free_slots.push(slot);
            }
        }
    }
}

impl fmt::Debug for BufferRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.borrow();
        let bytes = state.registered_bytes;
        write!(f, "BufferRegistry({} buffers, {bytes} bytes registered)", state.buffers.len())
    }
}

/// A hasher for addresses, whose low bits are often zero.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("addresses are numbers");
    }

    fn write_usize(&mut self, address: usize) {
        // The table of a `HashMap` uses the lowest and the highest bits.
        let product = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
