//! Messages: datagrams, and bytes with control messages.

use super::*;
use annulus_kernel::{IoVec, MsgHeader};
use std::io;

#[derive(Debug)]
pub struct ReceivedMessage {
    pub result: i32,
    pub bytes: Vec<u8>,
    pub from: Option<Address>,
    pub flags: u32,
    control: Vec<u8>,
}

impl ReceivedMessage {
    /// Returns the internet address of the sender.
    pub fn sender(&self) -> SocketAddr {
        inet_of(self.from.as_ref().expect("the datagram has no sender"))
    }

    pub fn controls(&self) -> Vec<Control<'_>> {
        controls(&self.control)
    }
}

/// The parts of a message that a multishot receive wrote to a buffer.
pub struct FramedMessage {
    pub head: MessageHead,
    pub name: Vec<u8>,
    pub control: Vec<u8>,
    pub bytes: Vec<u8>,
}

pub fn controls(bytes: &[u8]) -> Vec<Control<'_>> {
    Controls::new(bytes).collect()
}

pub fn inet(text: &str) -> Address {
    text.parse::<SocketAddr>().unwrap().into()
}

pub fn inet_of(address: &Address) -> SocketAddr {
    address.to_inet().unwrap()
}

pub fn refused<T: std::fmt::Debug>(answer: io::Result<T>) -> Errno {
    errno_of(&answer.unwrap_err()).unwrap()
}

/// Creates a header that has only sizes and no memory.
pub fn header_of(layout: MessageLayout) -> MsgHeader {
    MsgHeader {
        name: std::ptr::null(),
        name_len: layout.name as u32,
        vectors: std::ptr::null(),
        vector_count: 0,
        control: std::ptr::null(),
        control_len: layout.control,
        flags: 0,
    }
}

pub fn recv_msg_multi(fd: Fd, header: &MsgHeader, flags: u32) -> Entry {
    let header = std::ptr::from_ref(header).cast();
    op::RecvMsgMulti { fd, group: BUFFER_GROUP, header, flags }.entry()
}

impl Host {
    /// Creates a UDP socket on the loopback; also returns its address.
    pub fn udp(&self, domain: Domain) -> (Fd, Address) {
        let fd = self.new_socket(domain, SocketType::Datagram, false).unwrap();
        let address = if domain == Domain::Inet { "127.0.0.1:0" } else { "[::1]:0" };
        self.kernel.bind(fd, &inet(address)).unwrap();
        (fd, self.kernel.local_address(fd).unwrap())
    }

    pub fn send_to(&mut self, fd: Fd, to: &Address, bytes: &[u8]) -> i32 {
        self.send_msg(fd, Some(to), bytes, &[])
    }

    /// Like [`send_to`](Self::send_to), but the operation with `user_data` `other` may complete,
    /// too. Its completions are kept for later.
    pub fn send_to_beside(&mut self, fd: Fd, to: &Address, bytes: &[u8], other: u64) -> i32 {
        self.send_msg_beside(fd, Some(to), bytes, &[], other)
    }

    pub fn send_msg(
        &mut self,
        fd: Fd,
        to: Option<&Address>,
        bytes: &[u8],
        controls: &[Control<'_>],
    ) -> i32 {
        self.send_msg_beside(fd, to, bytes, controls, u64::MAX)
    }

    fn send_msg_beside(
        &mut self,
        fd: Fd,
        to: Option<&Address>,
        bytes: &[u8],
        controls: &[Control<'_>],
        other: u64,
    ) -> i32 {
        let mut control = [0; 1024];
        let mut writer = ControlWriter::new(&mut control, Direction::Sent);
        assert!(controls.iter().all(|&control| writer.push(control)));
        let control_len = writer.len();
        let vector = IoVec { base: bytes.as_ptr(), len: bytes.len() };
        let name = to.map(Address::as_bytes);
        let header = MsgHeader {
            name: name.map_or(std::ptr::null(), <[u8]>::as_ptr),
            name_len: name.map_or(0, |name| name.len() as u32),
            vectors: &raw const vector,
            vector_count: 1,
            control: control.as_ptr(),
            control_len,
            flags: 0,
        };
        let header = (&raw const header).cast();
        let entry = op::SendMsg { fd, header, flags: WAITALL_FLAGS }.entry();
        self.push(77, entry);
        let done = self.wait_for_user_data(77);
        assert!(other != u64::MAX || self.kept.is_empty(), "{:?}", self.kept);
        done.result
    }

    /// Waits for a completion with this `user_data`, and keeps other completions for later.
    pub fn wait_for_user_data(&mut self, user_data: u64) -> Completion {
        loop {
            if let Some(at) = self.kept.iter().position(|done| done.user_data == user_data) {
                return self.kept.remove(at);
            }
            let taken = self.wait_for(1);
            self.kept.extend(taken);
        }
    }

    pub fn recv_msg(
        &mut self,
        fd: Fd,
        len: usize,
        control_len: usize,
        flags: u32,
    ) -> Result<ReceivedMessage, i32> {
        let (mut bytes, mut name, mut control) = (vec![0; len], [0u8; 128], vec![0; control_len]);
        let vector = IoVec { base: bytes.as_mut_ptr(), len };
        let mut header = MsgHeader {
            name: name.as_mut_ptr(),
            name_len: name.len() as u32,
            vectors: &raw const vector,
            vector_count: 1,
            control: control.as_mut_ptr(),
            control_len,
            flags: 0,
        };
        let address = (&raw mut header).cast();
        let result = self.submit_and_wait(op::RecvMsg { fd, header: address, flags }.entry());
        bytes.truncate(usize::try_from(result).map_err(|_| result)?);
        control.truncate(header.control_len);
        let from =
            (header.name_len > 0).then(|| Address::from_bytes(&name[..header.name_len as usize]));
        Ok(ReceivedMessage { result, bytes, from, flags: header.flags as u32, control })
    }

    /// Receives up to `len` bytes, and returns their number.
    pub fn recv_some(&mut self, fd: Fd, len: usize) -> Result<usize, i32> {
        let mut memory = vec![0u8; len];
        let entry = op::Recv { fd, buffer: memory.as_mut_ptr(), len: len as u32 };
        let count = self.submit_and_wait(entry.entry());
        usize::try_from(count).map_err(|_| count)
    }

    /// Receives without waiting, and returns the number of bytes.
    pub fn recv_now(&mut self, fd: Fd) -> Result<usize, i32> {
        let mut memory = [0u8; 2048];
        let (buffer, len) = (memory.as_mut_ptr(), memory.len() as u32);
        let entry = op::Recv { fd, buffer, len }.entry();
        self.push(78, Entry { op_flags: msg::DONTWAIT, ..entry });
        let count = self.wait_for_user_data(78).result;
        usize::try_from(count).map_err(|_| count)
    }
}

impl ProvidedBuffers {
    /// Copies the message of a multishot receive's completion, and gives the buffer back.
    pub fn framed(&mut self, done: &Completion, layout: MessageLayout) -> FramedMessage {
        let buffer = self.bytes(done);
        let head = MessageHead::read(&buffer).unwrap();
        let part = |at: usize, len: u32| buffer[at..at + len as usize].to_vec();
        FramedMessage {
            head,
            name: part(MessageLayout::HEAD_BYTES, head.name_len.min(layout.name as u32)),
            control: part(layout.control_at(), head.control_len),
            bytes: buffer[layout.payload_at()..].to_vec(),
        }
    }
}
