//! A `struct msghdr` that an entry named.
#![allow(unsafe_code)]

use super::Piece;
use annulus_kernel::{IoVec, MsgHeader};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// A message's header: where its parts lie.
#[derive(Debug)]
pub(crate) struct Header {
    place: *mut MsgHeader,
    pub(crate) name: Piece,
    pub(crate) control: Piece,
    pub(crate) vectors: Box<[Piece]>,
}

impl Header {
    /// # Safety
    /// The submitter's promise: the vectors are there now; name, control messages and the vectors' bytes until the terminal
    /// completion of whatever uses them later; and where [`answer`](Self::answer) is called, `place` as well.
    pub(super) unsafe fn new(place: *mut MsgHeader, header: &MsgHeader) -> Self {
        // SAFETY: the promise covers the vectors that the header names.
        let vectors = unsafe { pieces(header.vectors, header.vector_count) };
        let (name, control) = (header.name.expose_provenance(), header.control.expose_provenance());
        // SAFETY: the promise covers the name.
        let name = unsafe { Piece::new(name as u64, header.name_len as usize) };
        // SAFETY: the promise covers the control messages.
        let control = unsafe { Piece::new(control as u64, header.control_len) };
        Self { place, name, control, vectors }
    }

    /// Tells what a receive brought, as `recvmsg(2)` does. For headers of receives only.
    pub(crate) fn answer(&self, name_len: usize, control_len: usize, flags: u32) {
        // SAFETY: the header of a receive is the kernel's to write to until its terminal completion. Atomics, because one
        // that nobody reads may be shared with other rings.
        unsafe {
            let flags_place = (&raw mut (*self.place).flags).cast();
            AtomicU32::from_ptr(&raw mut (*self.place).name_len).store(name_len as u32, Relaxed);
            AtomicUsize::from_ptr(&raw mut (*self.place).control_len).store(control_len, Relaxed);
            AtomicU32::from_ptr(flags_place).store(flags, Relaxed);
        }
    }
}

/// # Safety
/// `count` vectors stand at `first`, under the promise of an entry that is being consumed.
pub(super) unsafe fn pieces(first: *const IoVec, count: usize) -> Box<[Piece]> {
    let piece = |index| {
        // SAFETY: the caller's promise.
        let IoVec { base, len } = unsafe { first.add(index).read() };
        // SAFETY: the entry's promise covers the bytes behind the vectors, until the terminal completion.
        unsafe { Piece::new(base.expose_provenance() as u64, len) }
    };
    (0..count).map(piece).collect()
}
