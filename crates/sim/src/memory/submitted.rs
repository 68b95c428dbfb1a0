//! A submission entry, and the memory that it refers to.
#![allow(unsafe_code)]

use super::header::{MessageHeader, ranges};
use crate::memory_range::MemoryRange;
use crate::timeline::Nanos;
use annulus_kernel::{Address, IoVec, MsgHeader};
use annulus_ring::op::TimeSpec;
use annulus_ring::{Entry, opcode};
use rustix::io::Errno;
use std::ops::Deref;

/// Maximum number of vectors of a message (`UIO_MAXIOV`).
const MAX_VECTORS: usize = 1024;

/// Reads and writes with a registered buffer.
pub(crate) const REGISTERED_BUFFER_OPCODES: [u8; 2] = [opcode::READ_FIXED, opcode::WRITE_FIXED];

/// An entry under the contract of [`Ring::push_unchecked`](annulus_ring::Ring::push_unchecked).
#[derive(Clone, Copy)]
pub(crate) struct SubmittedEntry(Entry);

impl SubmittedEntry {
    /// # Safety
    /// The entry must have been published under the contract of `Kernel::enter`. It may also
    /// describe another call of `Kernel`: then the memory it refers to must be valid during that
    /// call, and the entry must not be used afterwards.
    pub(crate) unsafe fn new(entry: Entry) -> Self {
        Self(entry)
    }

    /// Returns the memory of a receive or send.
    #[inline]
    pub(crate) fn memory(&self) -> MemoryRange {
        // SAFETY: `new` guarantees that `addr` and `len` of a receive or send describe memory that
        // is valid until the terminal completion.
        unsafe { MemoryRange::new(self.0.addr, self.0.len as usize) }
    }

    /// Returns the same operation with a buffer that is not registered, which has the same effect.
    /// Returns `None` if its buffer is not registered.
    pub(crate) fn with_plain_buffer(&self) -> Option<Self> {
        let opcode = match self.0.opcode {
            opcode::READ_FIXED => opcode::READ,
            opcode::WRITE_FIXED => opcode::WRITE,
            _ => return None,
        };
        Some(Self(Entry { opcode, buf_group: 0, ..self.0 }))
    }

    /// Returns the destination address of a send.
    pub(crate) fn destination(&self) -> Address {
        let [first, second, _, _] = self.0.file_index.to_ne_bytes();
        let len = usize::from(u16::from_ne_bytes([first, second]));
        // SAFETY: `new` guarantees that `off` and the length describe an address that is valid
        // until the terminal completion.
        Address::from_bytes(&unsafe { MemoryRange::new(self.0.off, len) }.bytes())
    }

    /// Returns the socket address of a connect.
    pub(crate) fn address(&self) -> Result<Address, Errno> {
        let len = usize::try_from(self.0.off).unwrap_or(usize::MAX);
        if len > 128 {
            return Err(Errno::INVAL);
        }
        if self.0.addr == 0 {
            return Err(Errno::FAULT);
        }
        let start = std::ptr::with_exposed_provenance::<u8>(self.0.addr as usize);
        // SAFETY: `new` guarantees that the `off` bytes of a connect's address are valid until the
        // terminal completion.
        Ok(Address::from_bytes(unsafe { std::slice::from_raw_parts(start, len) }))
    }

    /// Returns the duration of a timeout.
    pub(crate) fn time(&self) -> Result<Nanos, Errno> {
        if self.0.addr == 0 {
            return Err(Errno::FAULT);
        }
        let start = std::ptr::with_exposed_provenance::<TimeSpec>(self.0.addr as usize);
        // SAFETY: `new` guarantees that the time of a timeout is valid until the entry is consumed,
        // which is now.
        let TimeSpec { seconds, nanoseconds } = unsafe { start.read() };
        let seconds = Nanos::try_from(seconds).map_err(|_| Errno::INVAL)?;
        let rest = Nanos::try_from(nanoseconds).map_err(|_| Errno::INVAL)?;
        Ok(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
    }

    /// Reads the `struct msghdr` of a message, and its vectors.
    pub(crate) fn message(&self) -> Result<MessageHeader, Errno> {
        if self.0.addr == 0 {
            return Err(Errno::FAULT);
        }
        let place = std::ptr::with_exposed_provenance_mut::<MsgHeader>(self.0.addr as usize);
        // SAFETY: the header and its vectors are valid until the entry is consumed, which is now.
        // Name, control messages and bytes are valid until the terminal completion, and so is the
        // header of a receive.
        unsafe {
            let header = place.read();
            if header.vector_count > MAX_VECTORS {
                return Err(Errno::MSGSIZE);
            }
            Ok(MessageHeader::new(place, &header))
        }
    }

    /// Returns the memory of the vectors of a read or write.
    pub(crate) fn vectors(&self) -> Result<Box<[MemoryRange]>, Errno> {
        let count = self.0.len as usize;
        if count > MAX_VECTORS {
            return Err(Errno::INVAL);
        }
        if self.0.addr == 0 && count > 0 {
            return Err(Errno::FAULT);
        }
        let first = std::ptr::with_exposed_provenance::<IoVec>(self.0.addr as usize);
        // SAFETY: the vectors are valid until the entry is consumed, which is now, and their bytes
        // until the terminal completion.
        Ok(unsafe { ranges(first, count) })
    }
}

impl Deref for SubmittedEntry {
    type Target = Entry;

    #[inline]
    fn deref(&self) -> &Entry {
        &self.0
    }
}
