//! A connection, with one operation at a time: a receive, or a send of the received bytes.

use crate::mode::{Mode, Operations};
use annulus_kernel::file::{CURSOR_OFFSET, FileCall};
use annulus_kernel::{Fd, IoVec, MsgHeader, msg};
use annulus_ring::Entry;
use annulus_ring::op::{Poll, Read, Recv, RecvMsg, Send, SendMsg, Write, Writev, file_entry, poll};
use listen::BUFFER;

/// Errors after which an operation is tried again: EINTR and EAGAIN.
const INTR: i32 = -4;
const AGAIN: i32 = -11;

/// The operation that is in flight.
#[derive(Clone, Copy)]
enum Step {
    Polling,
    Receiving,
    Sending,
}

/// The next step of a connection after an operation has ended.
pub enum Next {
    Start(Entry),
    End,
}

pub struct Connection {
    pub fd: Fd,
    step: Step,
    buffer: Box<[u8]>,
    /// Number of bytes received, and how many of them have been sent.
    filled: usize,
    sent: usize,
    /// Memory that operations with vectors refer to: the kernel reads it until they end.
    vector: IoVec,
    header: MsgHeader,
}

impl Connection {
    pub fn new(fd: Fd) -> Box<Connection> {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        let vector = IoVec { base: buffer.as_ptr(), len: buffer.len() };
        let (filled, sent, header) = (0, 0, MsgHeader::EMPTY);
        Box::new(Connection { fd, step: Step::Receiving, buffer, filled, sent, vector, header })
    }

    /// Returns the entry of a receive, or of a poll that comes first if the operations have no flag
    /// for it.
    pub fn receive(&mut self, mode: Mode) -> Entry {
        if mode.polls_first && mode.operations.are_of_files() {
            self.step = Step::Polling;
            return Poll { fd: self.fd, events: poll::IN }.entry().into();
        }
        let entry = self.receive_now(mode);
        if mode.polls_first { entry.poll_first() } else { entry }
    }

    fn receive_now(&mut self, mode: Mode) -> Entry {
        self.step = Step::Receiving;
        let (fd, buffer, len) = (self.fd, self.buffer.as_mut_ptr(), BUFFER as u32);
        match mode.operations {
            Operations::RecvSend => Recv { fd, buffer, len }.entry(),
            Operations::ReadWrite => Read { fd, buffer, len, offset: CURSOR_OFFSET }.entry(),
            Operations::ReadvWritev => {
                let vectors = self.describe(0, BUFFER);
                let fd = fd.raw();
                let call = FileCall::ReadVector {
                    fd,
                    vectors,
                    count: 1,
                    offset: CURSOR_OFFSET,
                    nowait: false,
                };
                file_entry(&call).expect("READV has no entry")
            }
            Operations::RecvmsgSendmsg => {
                let header = self.header(0, BUFFER);
                RecvMsg { fd, header, flags: 0 }.entry()
            }
        }
    }

    /// Handles an operation's result, and returns the next step.
    pub fn advance(&mut self, mode: Mode, result: i32) -> Next {
        match (self.step, result) {
            (Step::Polling, 0..) => Next::Start(self.receive_now(mode)),
            (Step::Receiving | Step::Polling, INTR | AGAIN) => Next::Start(self.receive(mode)),
            (Step::Sending, INTR | AGAIN) => Next::Start(self.send(mode)),
            (Step::Receiving, 1..) => {
                (self.filled, self.sent) = (result as usize, 0);
                Next::Start(self.send(mode))
            }
            (Step::Sending, 0..) => {
                self.sent += result as usize;
                Next::Start(if self.sent < self.filled {
                    self.send(mode)
                } else {
                    self.receive(mode)
                })
            }
            _ => Next::End,
        }
    }

    fn send(&mut self, mode: Mode) -> Entry {
        self.step = Step::Sending;
        let (fd, rest) = (self.fd, &self.buffer[self.sent..self.filled]);
        let (buffer, len) = (rest.as_ptr(), rest.len());
        match mode.operations {
            Operations::RecvSend => {
                Send { fd, buffer, len: len as u32, flags: msg::NOSIGNAL }.entry()
            }
            Operations::ReadWrite => Write { fd, buffer, len: len as u32, flags: 0 }.entry(),
            Operations::ReadvWritev => {
                let vectors = self.describe(self.sent, self.filled);
                Writev { fd, vectors, count: 1, flags: 0 }.entry()
            }
            Operations::RecvmsgSendmsg => {
                let header = self.header(self.sent, self.filled);
                SendMsg { fd, header, flags: msg::NOSIGNAL }.entry()
            }
        }
    }

    /// Returns a vector that describes a part of the buffer.
    fn describe(&mut self, from: usize, to: usize) -> *const IoVec {
        let part = &mut self.buffer[from..to];
        self.vector = IoVec { base: part.as_mut_ptr(), len: part.len() };
        &raw const self.vector
    }

    /// Returns a message header that describes a part of the buffer.
    fn header(&mut self, from: usize, to: usize) -> *mut u8 {
        self.describe(from, to);
        let (vectors, vector_count) = (&raw const self.vector, 1);
        self.header = MsgHeader { vectors, vector_count, ..MsgHeader::EMPTY };
        (&raw mut self.header).cast()
    }
}
