//! Receives of messages: datagrams, and bytes of streams with control messages or into several
//! ranges.

use super::World;
use super::recv::Received;
use crate::memory::MessageHeader;
use crate::memory_range::MemoryRange;
use crate::net::{Datagram, SocketId};
use crate::op::{Destination, MetadataTarget, ReceiveOp};
use annulus_kernel::{Address, MessageHead, MessageLayout, msg};
use rustix::io::Errno;

struct MessageMetadata {
    name: Option<Address>,
    control: Vec<u8>,
    flags: u32,
}

impl MessageMetadata {
    fn name(&self) -> &[u8] {
        self.name.as_ref().map_or(&[][..], Address::as_bytes)
    }

    fn write_to(&self, header: &MessageHeader) {
        header.name.put(self.name());
        header.control.put(&self.control);
        header.answer(self.name().len(), self.control.len(), self.flags);
    }
}

impl ReceiveOp {
    /// Returns the number of bytes before the payload.
    fn metadata_len(&self) -> usize {
        match self.cover.as_deref() {
            Some(MetadataTarget::BeforePayload(layout)) => layout.payload_at(),
            _ => 0,
        }
    }
}

impl World {
    /// Receives a message, a datagram, or bytes of a stream into vectors.
    #[inline(never)]
    pub(super) fn receive_message(
        &mut self,
        ring: u32,
        socket: SocketId,
        receive: &ReceiveOp,
    ) -> Result<Received, Errno> {
        let front = receive.metadata_len();
        let limit = self.payload_limit(ring, receive)?;
        let mut datagram = self.next_message(socket, limit)?;
        let (count, cut) = (datagram.bytes.len().min(limit), datagram.bytes.len() > limit);
        let metadata = self.message_metadata(socket, &mut datagram, receive, cut);
        let reported = if receive.whole { datagram.bytes.len() } else { count };
        datagram.bytes.truncate(count);
        let flags = match &receive.into {
            // As on Linux, an empty receive takes no buffer, unless metadata precedes the payload.
            Destination::Group(_) if count == 0 && front == 0 => 0,
            Destination::Group(group) => {
                self.fill_buffer(ring, *group, receive, &datagram, &metadata, reported)
            }
            into => scatter(into.ranges(), &datagram.bytes),
        };
        if let Some(MetadataTarget::ToHeader(header)) = receive.cover.as_deref() {
            metadata.write_to(header);
        }
        let result = if front > 0 { front + count } else { reported };
        let datagram = self.net.socket(socket).is_datagram();
        Ok(Received { result, count, flags, again: datagram })
    }

    /// Returns how many bytes of payload fit.
    fn payload_limit(&mut self, ring: u32, receive: &ReceiveOp) -> Result<usize, Errno> {
        match &receive.into {
            Destination::Group(group) => {
                let len = self.next_buffer_len(ring, *group)?;
                len.checked_sub(receive.metadata_len()).ok_or(Errno::FAULT)
            }
            into => Ok(into.ranges().iter().map(|range| range.len()).sum()),
        }
    }

    /// Takes the next message: a datagram, or as many bytes of a stream as fit and may be read
    /// together.
    fn next_message(&mut self, socket: SocketId, limit: usize) -> Result<Datagram, Errno> {
        if self.net.socket(socket).is_datagram() {
            return self.net.recv_datagram(socket);
        }
        let there = self.net.receivable(socket)?;
        let most = self.shorten_read(socket, there.min(limit));
        Ok(self.net.read_message(socket, most))
    }

    fn message_metadata(
        &mut self,
        socket: SocketId,
        datagram: &mut Datagram,
        receive: &ReceiveOp,
        cut: bool,
    ) -> MessageMetadata {
        let limit = match receive.cover.as_deref() {
            Some(MetadataTarget::ToHeader(header)) => header.control.len(),
            Some(MetadataTarget::BeforePayload(layout)) => layout.control,
            None => 0,
        };
        let (control, control_cut) = self.write_controls(socket, datagram, limit);
        let name = match datagram.route {
            Some((from, _)) => Some(self.net.address_seen_by(socket, from).into()),
            None => datagram.from,
        };
        let cut = if cut { msg::TRUNC } else { 0 };
        MessageMetadata { name, control, flags: if control_cut { cut | msg::CTRUNC } else { cut } }
    }

    /// Writes a message to a buffer of a group, and returns the completion flags for that buffer.
    fn fill_buffer(
        &mut self,
        ring: u32,
        group: u16,
        receive: &ReceiveOp,
        datagram: &Datagram,
        metadata: &MessageMetadata,
        reported: usize,
    ) -> u32 {
        let buffer = self.take_buffer(ring, group);
        let mut memory = buffer.memory;
        if let Some(MetadataTarget::BeforePayload(layout)) = receive.cover.as_deref() {
            write_metadata(memory, *layout, metadata, reported);
            memory = memory.skip(layout.payload_at());
        }
        memory.put(&datagram.bytes);
        buffer.flags()
    }
}

/// Writes the part before the payload.
fn write_metadata(
    memory: MemoryRange,
    layout: MessageLayout,
    metadata: &MessageMetadata,
    reported: usize,
) {
    let head = MessageHead {
        name_len: metadata.name().len() as u32,
        control_len: metadata.control.len() as u32,
        payload_len: reported as u32,
        flags: metadata.flags,
    };
    memory.put(&head.bytes());
    memory.skip(MessageLayout::HEAD_BYTES).first(layout.name).put(metadata.name());
    memory.skip(layout.control_at()).first(layout.control).put(&metadata.control);
}

/// Writes bytes to several ranges of memory. Returns no completion flags.
fn scatter(ranges: &[MemoryRange], mut bytes: &[u8]) -> u32 {
    for range in ranges {
        let (part, rest) = bytes.split_at(range.len().min(bytes.len()));
        range.put(part);
        bytes = rest;
    }
    0
}
