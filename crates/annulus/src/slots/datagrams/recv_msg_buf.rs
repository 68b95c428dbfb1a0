//! Memory for one `recvmsg`, if the pool lends none.

use super::Format;
use crate::bytes::lease::Lease;
use crate::memory::{HeapMemory, Meter};
use annulus_kernel::{IoVec, Layout, Message, MsgHeader};

/// A heap buffer, laid out as lent ones are, and the header that points into it. It must not move or be freed until the
/// receive's terminal event.
pub(crate) struct RecvMsgBuf {
    header: MsgHeader,
    vector: IoVec,
    memory: Box<HeapMemory>,
}

impl RecvMsgBuf {
    /// Puts memory for a datagram of up to `most` bytes in `place`. Returns the address of its header.
    pub(crate) fn put(
        place: &mut Option<Box<Self>>,
        format: &Format,
        most: usize,
        meter: &Meter,
    ) -> *mut u8 {
        let layout = format.layout;
        let mut memory = HeapMemory::zeroed(layout.payload_at() + most, meter);
        let start = memory.as_mut_ptr();
        let at = |offset| start.wrapping_add(offset).cast_const();
        let buf = place.insert(Box::new(Self {
            vector: IoVec { base: at(layout.payload_at()), len: most },
            header: MsgHeader {
                name: at(Layout::HEAD),
                name_len: layout.name as u32,
                vectors: std::ptr::null(),
                vector_count: 1,
                control: at(layout.control_at()),
                control_len: layout.control,
                flags: 0,
            },
            memory,
        }));
        buf.header.vectors = &raw const buf.vector;
        (&raw mut buf.header).cast()
    }

    /// The datagram of `len` bytes that has arrived, behind the same head that lent buffers begin with.
    pub(crate) fn into_lease(self, format: &Format, len: usize) -> Lease {
        let Self { header, mut memory, .. } = self;
        let head = Message {
            name_len: header.name_len,
            control_len: header.control_len as u32,
            payload_len: len as u32,
            flags: header.flags as u32,
        };
        memory[..Layout::HEAD].copy_from_slice(&head.bytes());
        let len = memory.len().min(format.layout.payload_at() + len);
        Lease::of_heap(memory, len)
    }
}
