//! The `struct msghdr` of an entry.
#![allow(unsafe_code)]

use crate::memory_range::MemoryRange;
use annulus_kernel::{IoVec, MsgHeader};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// A header and the memory that it refers to.
#[derive(Debug)]
pub(crate) struct MessageHeader {
    place: *mut MsgHeader,
    pub(crate) name: MemoryRange,
    pub(crate) control: MemoryRange,
    pub(crate) vectors: Box<[MemoryRange]>,
}

impl MessageHeader {
    /// # Safety
    /// The vectors must be valid now; the name, the control messages and the bytes of the vectors
    /// until the terminal completion of the operation. If [`answer`](Self::answer) is called,
    /// `place` must be valid until then too.
    pub(super) unsafe fn new(place: *mut MsgHeader, header: &MsgHeader) -> Self {
        let (name, control) = (header.name.expose_provenance(), header.control.expose_provenance());
        // SAFETY: the caller guarantees that vectors, name and control messages are valid as long
        // as required.
        unsafe {
            Self {
                place,
                name: MemoryRange::new(name as u64, header.name_len as usize),
                control: MemoryRange::new(control as u64, header.control_len),
                vectors: ranges(header.vectors, header.vector_count),
            }
        }
    }

    /// Writes the metadata of a received message, like `recvmsg(2)`. Only for headers of receives.
    pub(crate) fn answer(&self, name_len: usize, control_len: usize, flags: u32) {
        // SAFETY: `new` guarantees that the header of a receive may be written to until its
        // terminal completion. The stores are atomic because several rings may use one header at
        // the same time, if no code reads it.
        unsafe {
            let flags_place = (&raw mut (*self.place).flags).cast();
            AtomicU32::from_ptr(&raw mut (*self.place).name_len).store(name_len as u32, Relaxed);
            AtomicUsize::from_ptr(&raw mut (*self.place).control_len).store(control_len, Relaxed);
            AtomicU32::from_ptr(flags_place).store(flags, Relaxed);
        }
    }
}

/// # Safety
/// There must be `count` vectors at `first`, and their bytes must be valid until the terminal
/// completion.
pub(super) unsafe fn ranges(first: *const IoVec, count: usize) -> Box<[MemoryRange]> {
    // SAFETY: the caller guarantees that vectors and bytes are valid as long as required.
    let range = |index| unsafe {
        let IoVec { base, len } = first.add(index).read();
        MemoryRange::new(base.expose_provenance() as u64, len)
    };
    (0..count).map(range).collect()
}
