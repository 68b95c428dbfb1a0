//! A submission entry that came through the queue, and the memory it names.
#![allow(unsafe_code)]

use super::Piece;
use crate::timeline::Nanos;
use annulus_ring::op::{IoVec, MsgHeader, TimeSpec};
use annulus_ring::{Address, Entry};
use rustix::io::Errno;
use std::ops::Deref;

/// Most vectors a message may have (`UIO_MAXIOV`).
const MOST_VECTORS: usize = 1024;

/// An entry whose submitter keeps the promise of [`Ring::push`](annulus_ring::Ring::push).
#[derive(Clone, Copy)]
pub(crate) struct Submitted(Entry);

impl Submitted {
    /// # Safety
    /// The entry was published under the promise of `Kernel::enter`.
    pub(super) unsafe fn new(entry: Entry) -> Self {
        Self(entry)
    }

    /// The memory of a plain receive or send.
    #[inline]
    pub(crate) fn memory(&self) -> Piece {
        // SAFETY: the promise covers what a receive or send names by address and length.
        unsafe { Piece::new(self.0.addr, self.0.len as usize) }
    }

    /// The socket address of a connect.
    pub(crate) fn address(&self) -> Result<Address, Errno> {
        let len = usize::try_from(self.0.off).unwrap_or(usize::MAX);
        if len > 128 {
            return Err(Errno::INVAL);
        }
        if self.0.addr == 0 {
            return Err(Errno::FAULT);
        }
        let start = std::ptr::with_exposed_provenance::<u8>(self.0.addr as usize);
        // SAFETY: the promise covers the address of a connect, `off` bytes of it.
        Ok(Address::from_bytes(unsafe { std::slice::from_raw_parts(start, len) }))
    }

    /// The length of time of a timeout.
    pub(crate) fn time(&self) -> Result<Nanos, Errno> {
        if self.0.addr == 0 {
            return Err(Errno::FAULT);
        }
        let start = std::ptr::with_exposed_provenance::<TimeSpec>(self.0.addr as usize);
        // SAFETY: the promise covers the time of a timeout until the entry is consumed, which is now.
        let TimeSpec { seconds, nanoseconds } = unsafe { start.read() };
        let seconds = Nanos::try_from(seconds).map_err(|_| Errno::INVAL)?;
        let rest = Nanos::try_from(nanoseconds).map_err(|_| Errno::INVAL)?;
        Ok(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
    }

    /// Reads the `struct msghdr` of a message into `pieces`.
    pub(crate) fn vectors(&self, pieces: &mut Vec<Piece>) -> Result<(), Errno> {
        if self.0.addr == 0 {
            return Err(Errno::FAULT);
        }
        let header = std::ptr::with_exposed_provenance::<MsgHeader>(self.0.addr as usize);
        // SAFETY: the promise covers the header at least until the entry is consumed, which is now.
        let header = unsafe { header.read() };
        if header.vector_count > MOST_VECTORS {
            return Err(Errno::MSGSIZE);
        }
        for index in 0..header.vector_count {
            // SAFETY: as above, for the vectors the header names.
            let IoVec { base, len } = unsafe { header.vectors.add(index).read() };
            // SAFETY: the promise covers the bytes behind the vectors, until the terminal completion.
            pieces.push(unsafe { Piece::new(base.expose_provenance() as u64, len) });
        }
        Ok(())
    }
}

impl Deref for Submitted {
    type Target = Entry;

    #[inline]
    fn deref(&self) -> &Entry {
        &self.0
    }
}
