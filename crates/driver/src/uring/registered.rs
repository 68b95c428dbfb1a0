//! Memory that was registered, and which calls lie within it.
#![allow(unsafe_code)]

use super::Uring;
use annulus_kernel::IoVec;
use annulus_ring::{BufferTable, Entry, Ring};
use std::io;
use std::ops::Range;

/// Places in the table: what can be registered at once. An empty place takes 8 bytes of the kernel's.
const PLACES: usize = 64;

/// The ring's table, from the first registration on.
#[derive(Debug, Default)]
pub(super) struct Registered {
    table: Option<BufferTable>,
    /// By place: the addresses there. A free place has none.
    spans: Vec<Range<u64>>,
}

impl Registered {
    /// Finds a place for memory; which one.
    ///
    /// # Errors
    /// `QuotaExceeded` where all are taken; or whatever the kernel says.
    ///
    /// # Safety
    /// The memory must stay mapped until it was [removed](Self::remove), or the ring has gone.
    pub(super) unsafe fn add(&mut self, ring: &Ring, memory: IoVec) -> io::Result<u32> {
        if self.table.is_none() {
            self.table = Some(BufferTable::register(ring, PLACES as u32)?);
        }
        let free = self.spans.iter().position(Range::is_empty);
        let place = free.unwrap_or(self.spans.len());
        if place == PLACES {
            let text = format!("the ring has room for {PLACES} pieces of memory, all taken");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        let table = self.table.as_ref().expect("made above");
        // SAFETY: the caller's promise; entries name the place as long as its span is known here.
        unsafe { table.set(ring, place as u32, memory)? };
        self.spans.resize(self.spans.len().max(place + 1), 0..0);
        self.spans[place] = memory.base as u64..memory.base as u64 + memory.len as u64;
        Ok(place as u32)
    }

    /// Gives a place up: no call to come names it.
    pub(super) fn remove(&mut self, ring: &Ring, place: u32) {
        self.spans[place as usize] = 0..0;
        if let Some(table) = &self.table {
            // Where it fails, the pages stay pinned until others lie there.
            _ = table.clear(ring, place);
        }
    }

    /// The entry that names the place, where a read or write lies within one.
    pub(super) fn entry(&self, entry: Entry) -> Option<Entry> {
        let end = entry.addr.checked_add(entry.len.into())?;
        let within = |span: &Range<u64>| span.contains(&entry.addr) && end <= span.end;
        let place = self.spans.iter().position(within)?;
        let registered = entry.of_place(place as u16);
        (registered != entry).then_some(registered)
    }
}

impl Uring {
    /// # Safety
    /// See [`Driver::register_memory`](crate::Driver::register_memory).
    pub(crate) unsafe fn register_memory(&mut self, memory: IoVec) -> io::Result<u32> {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.registered.add(&self.ring, memory) }
    }

    pub(crate) fn forget_memory(&mut self, place: u32) {
        self.registered.remove(&self.ring, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_kernel::Fd;
    use annulus_ring::opcode;

    fn entry(opcode: u8, addr: u64, len: u32) -> Entry {
        Entry { addr, len, ..Entry::new(opcode, Fd::NONE) }
    }

    #[test]
    fn only_what_lies_within_names_a_place() {
        let spans = vec![0..0, 1000..2000];
        let registered = Registered { table: None, spans };
        for (addr, len, within) in [
            (1000, 1000, true),
            (1999, 1, true),
            (999, 2, false),
            (1999, 2, false),
            (0, 0, false),
            (u64::MAX, 2, false),
        ] {
            let found = registered.entry(entry(opcode::READ, addr, len));
            assert_eq!(found.is_some(), within, "{len} bytes at {addr}");
        }
        let read = registered.entry(entry(opcode::READ, 1000, 8)).unwrap();
        assert_eq!((read.opcode, read.buf_group), (opcode::READ_FIXED, 1));
        let write = registered.entry(entry(opcode::WRITE, 1000, 8)).unwrap();
        assert_eq!((write.opcode, write.buf_group), (opcode::WRITE_FIXED, 1));
        assert_eq!(registered.entry(entry(opcode::READV, 1000, 1)), None);
    }
}
