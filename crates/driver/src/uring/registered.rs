//! Memory that was registered, and which file calls lie within it.
#![allow(unsafe_code)]

use super::Uring;
use annulus_kernel::IoVec;
use annulus_ring::{BufferTable, Entry, Ring};
use std::io;
use std::ops::Range;

/// Entries of the table: most regions that can be registered at once. An empty entry takes 8 bytes of kernel memory.
const CAPACITY: usize = 64;

/// The ring's table of registered buffers, made at the first registration.
#[derive(Debug, Default)]
pub(super) struct Registered {
    table: Option<BufferTable>,
    /// The addresses of each entry; an empty range for a free one.
    ranges: Vec<Range<u64>>,
}

impl Registered {
    /// Registers memory, and returns its index in the table.
    ///
    /// # Errors
    /// `QuotaExceeded` if the table is full, or the kernel's error.
    ///
    /// # Safety
    /// The memory must stay mapped until it was [removed](Self::remove), or the ring has gone.
    pub(super) unsafe fn add(&mut self, ring: &Ring, memory: IoVec) -> io::Result<u32> {
        if self.table.is_none() {
            self.table = Some(BufferTable::register(ring, CAPACITY as u32)?);
        }
        let free = self.ranges.iter().position(Range::is_empty);
        let index = free.unwrap_or(self.ranges.len());
        if index == CAPACITY {
            let text =
                format!("the ring registers at most {CAPACITY} regions of memory; drop one first");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        let table = self.table.as_ref().expect("made above");
        // SAFETY: the memory stays mapped until `remove`, which this function demands; entries name the index only while its
        // range is in `ranges`, which `remove` empties first.
        unsafe { table.set(ring, index as u32, memory)? };
        self.ranges.resize(self.ranges.len().max(index + 1), 0..0);
        self.ranges[index] = memory.base as u64..memory.base as u64 + memory.len as u64;
        Ok(index as u32)
    }

    /// Frees an index: entries made from now on do not name it.
    pub(super) fn remove(&mut self, ring: &Ring, index: u32) {
        self.ranges[index as usize] = 0..0;
        if let Some(table) = &self.table {
            // If it fails, the pages stay pinned until the index is used again.
            _ = table.clear(ring, index);
        }
    }

    /// The entry of a read or write that names its memory by index; `None` if that is not registered.
    pub(super) fn entry(&self, entry: Entry) -> Option<Entry> {
        let end = entry.addr.checked_add(entry.len.into())?;
        let within = |range: &Range<u64>| range.contains(&entry.addr) && end <= range.end;
        let index = self.ranges.iter().position(within)?;
        let registered = entry.registered(index as u16);
        (registered != entry).then_some(registered)
    }
}

impl Uring {
    /// # Safety
    /// See [`Driver::register_memory`](crate::Driver::register_memory).
    pub(crate) unsafe fn register_memory(&mut self, memory: IoVec) -> io::Result<u32> {
        // SAFETY: the memory stays mapped until `unregister_memory`, which `Driver::register_memory` demands.
        unsafe { self.registered.add(&self.ring, memory) }
    }

    pub(crate) fn unregister_memory(&mut self, index: u32) {
        self.registered.remove(&self.ring, index);
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
    fn only_memory_within_a_region_is_named_by_index() {
        let ranges = vec![0..0, 1000..2000];
        let registered = Registered { table: None, ranges };
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
