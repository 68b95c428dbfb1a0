//! Receives of messages: datagrams, and bytes of streams with control messages.

use super::World;
use super::recv::Got;
use crate::memory::Header;
use crate::net::{Datagram, SocketId};
use crate::op::{Cover, Into, Receive};
use crate::piece::Piece;
use annulus_kernel::{Address, Layout, Message, msg};
use rustix::io::Errno;

/// The metadata of a received message.
struct Label {
    name: Option<Address>,
    control: Vec<u8>,
    flags: u32,
}

impl Label {
    fn name(&self) -> &[u8] {
        self.name.as_ref().map_or(&[][..], Address::as_bytes)
    }

    /// Writes the metadata to the header of a receive.
    fn write_to(&self, header: &Header) {
        header.name.put(self.name());
        header.control.put(&self.control);
        header.answer(self.name().len(), self.control.len(), self.flags);
    }
}

impl Receive {
    /// Bytes in front of a payload.
    fn front(&self) -> usize {
        match self.cover.as_deref() {
            Some(Cover::Front(layout)) => layout.payload_at(),
            _ => 0,
        }
    }
}

impl World {
    /// Receives a message, or the bytes of a datagram.
    #[inline(never)]
    pub(super) fn receive_message(
        &mut self,
        ring: u32,
        socket: SocketId,
        receive: &Receive,
    ) -> Result<Got, Errno> {
        let front = receive.front();
        let limit = self.payload_limit(ring, receive)?;
        let mut datagram = self.fetch(socket, limit)?;
        let (count, cut) = (datagram.bytes.len().min(limit), datagram.bytes.len() > limit);
        let label = self.label(socket, &mut datagram, receive, cut);
        let reported = if receive.whole { datagram.bytes.len() } else { count };
        datagram.bytes.truncate(count);
        let flags = match &receive.into {
            // As on Linux, without bytes and without a header the buffer is not used.
            Into::Group(_) if count == 0 && front == 0 => 0,
            Into::Group(group) => self.fill(ring, *group, receive, &datagram, &label, reported),
            into => scatter(into.pieces(), &datagram.bytes),
        };
        if let Some(Cover::Header(header)) = receive.cover.as_deref() {
            label.write_to(header);
        }
        let result = if front > 0 { front + count } else { reported };
        let datagram = self.net.socket(socket).is_datagram();
        Ok(Got { result, count, flags, again: datagram })
    }

    /// Bytes of payload that fit.
    fn payload_limit(&mut self, ring: u32, receive: &Receive) -> Result<usize, Errno> {
        match &receive.into {
            Into::Group(group) => {
                let len = self.buffer_at_hand(ring, *group)?;
                len.checked_sub(receive.front()).ok_or(Errno::FAULT)
            }
            into => Ok(into.pieces().iter().map(|piece| piece.len()).sum()),
        }
    }

    /// The next message: a datagram, or as many bytes of a stream as fit and were sent together.
    fn fetch(&mut self, socket: SocketId, limit: usize) -> Result<Datagram, Errno> {
        if self.net.socket(socket).is_datagram() {
            return self.net.recv_datagram(socket);
        }
        let there = self.net.receivable(socket)?;
        let most = self.shorten_read(socket, there.min(limit));
        Ok(self.net.read_message(socket, most))
    }

    fn label(
        &mut self,
        socket: SocketId,
        datagram: &mut Datagram,
        receive: &Receive,
        cut: bool,
    ) -> Label {
        let limit = match receive.cover.as_deref() {
            Some(Cover::Header(header)) => header.control.len(),
            Some(Cover::Front(layout)) => layout.control,
            None => 0,
        };
        let (control, control_cut) = self.write_controls(socket, datagram, limit);
        let name = match datagram.route {
            Some((from, _)) => Some(self.net.seen(socket, from).into()),
            None => datagram.from,
        };
        let cut = if cut { msg::TRUNC } else { 0 };
        Label { name, control, flags: if control_cut { cut | msg::CTRUNC } else { cut } }
    }

    /// Puts a message into a buffer of a group; returns the flags that name it.
    fn fill(
        &mut self,
        ring: u32,
        group: u16,
        receive: &Receive,
        datagram: &Datagram,
        label: &Label,
        reported: usize,
    ) -> u32 {
        let buffer = self.take_buffer(ring, group);
        let mut memory = buffer.memory;
        if let Some(Cover::Front(layout)) = receive.cover.as_deref() {
            frame(memory, *layout, label, reported);
            memory = memory.skip(layout.payload_at());
        }
        memory.put(&datagram.bytes);
        buffer.flags()
    }
}

/// Writes what is in front of a payload.
fn frame(memory: Piece, layout: Layout, label: &Label, reported: usize) {
    let head = Message {
        name_len: label.name().len() as u32,
        control_len: label.control.len() as u32,
        payload_len: reported as u32,
        flags: label.flags,
    };
    memory.put(&head.bytes());
    memory.skip(Layout::HEAD).first(layout.name).put(label.name());
    memory.skip(layout.control_at()).first(layout.control).put(&label.control);
}

/// Writes bytes to several ranges of memory; returns no flags.
fn scatter(pieces: &[Piece], mut bytes: &[u8]) -> u32 {
    for piece in pieces {
        let (part, rest) = bytes.split_at(piece.len().min(bytes.len()));
        piece.put(part);
        bytes = rest;
    }
    0
}
