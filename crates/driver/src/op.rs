//! What a driver can be asked to do.

use crate::token::Token;
use annulus_kernel::Fd;
use annulus_kernel::file::FileCall;

/// An operation that names no memory of the submitter, as plain data: see [`Driver::submit`](crate::Driver::submit).
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Nothing: costs what an operation costs.
    Nop,
    /// Accepts connections until it ends; each event's value is a descriptor.
    AcceptMulti {
        /// The listening socket.
        fd: Fd,
    },
    /// Accepts one connection.
    Accept {
        /// The listening socket.
        fd: Fd,
    },
    /// Receives into the pool's buffers until it ends.
    ReceiveMulti {
        /// The socket.
        fd: Fd,
        /// Ends once this many bytes came; zero is no limit. Only where [`Driver::limits_receives`](crate::Driver::limits_receives).
        limit: u32,
    },
    /// Receives once into one of the pool's buffers.
    ReceiveLent {
        /// The socket.
        fd: Fd,
    },
    /// Tells once that there is room to send, or that nothing can be sent any more.
    WritableOnce {
        /// The socket.
        fd: Fd,
    },
    /// Tells once when the descriptor is readable, or failed; the value says nothing.
    ReadableOnce {
        /// The descriptor.
        fd: Fd,
    },
    /// Tells each time the descriptor becomes readable, until it ends.
    Readable {
        /// The descriptor.
        fd: Fd,
    },
    /// Cancels. The target still has its own terminal event; this has none.
    Cancel {
        /// The target.
        target: Token,
    },
    /// Closes a descriptor. Nothing of it may be in flight. No event.
    Close {
        /// The descriptor.
        fd: Fd,
    },
}

/// An operation that names memory of the submitter, as plain data. What it points to must outlive it: see
/// [`Driver::submit_memory`](crate::Driver::submit_memory).
#[derive(Clone, Copy, Debug)]
pub enum MemoryOp {
    /// Receives once into the submitter's memory.
    Receive {
        /// The socket.
        fd: Fd,
        /// Where to.
        buffer: *mut u8,
        /// At most so many bytes.
        len: u32,
    },
    /// Receives messages until it ends, each into a buffer of the pool that its token's kind borrows from. A `struct
    /// msghdr`, which must outlive the submission, tells the room for name and control messages; it names no vectors. A
    /// filled buffer is laid out as [`annulus_kernel::Layout`] tells, and the event counts from its beginning, so that it
    /// is never zero. An empty message may end the operation.
    ReceiveMessages {
        /// The socket.
        fd: Fd,
        /// The `struct msghdr`.
        header: *const u8,
    },
    /// Receives one message into what a `struct msghdr` names, which is written to as `recvmsg(2)` does. The event counts
    /// its whole length, even where the room was less.
    ReceiveMessage {
        /// The socket.
        fd: Fd,
        /// The `struct msghdr`.
        header: *mut u8,
    },
    /// Sends a message now or not at all: no event where it went, else one with the error. The `struct msghdr` and
    /// everything it names must outlive the operation.
    SendMessageNow {
        /// The socket.
        fd: Fd,
        /// The `struct msghdr`.
        header: *const u8,
    },
    /// As `SendMessageNow`, with an event in either case. Only where [`Driver::sends_quietly`](crate::Driver::sends_quietly)
    /// is false.
    SendMessage {
        /// The socket.
        fd: Fd,
        /// The `struct msghdr`.
        header: *const u8,
    },
    /// Sends now or not at all: no event where everything went, else one with the short count or the error.
    SendNow {
        /// The socket.
        fd: Fd,
        /// From where.
        buffer: *const u8,
        /// How many bytes.
        len: u32,
    },
    /// As `SendNow`, from the vectors of a `struct msghdr`, which must outlive the *submission* only.
    SendVectorNow {
        /// The socket.
        fd: Fd,
        /// The `struct msghdr`.
        header: *const u8,
    },
    /// Sends everything, waiting for room. By the verbs of files it sends what there is room for, at least a byte.
    Send {
        /// The socket.
        fd: Fd,
        /// From where.
        buffer: *const u8,
        /// How many bytes.
        len: u32,
    },
    /// As `Send`, from vectors.
    SendVector {
        /// The socket.
        fd: Fd,
        /// The `struct msghdr`.
        header: *const u8,
    },
    /// As `Send`, but the kernel reads the memory in its own time: the event that tells the outcome is followed by the
    /// terminal one, which tells nothing but that the memory is free, where it promises [`more`](crate::Event::more).
    /// `EOPNOTSUPP` for sockets that can't. Only where the driver was [set up for it](crate::UringConfig::zero_copy).
    Lend {
        /// The socket.
        fd: Fd,
        /// From where.
        buffer: *const u8,
        /// How many bytes.
        len: u32,
    },
    /// As `Lend`, from vectors. The `struct msghdr` is part of the memory.
    LendVector {
        /// The socket.
        fd: Fd,
        /// The `struct msghdr`.
        header: *const u8,
    },
    /// Connects.
    Connect {
        /// The socket.
        fd: Fd,
        /// A socket address.
        address: *const u8,
        /// Its length.
        len: u32,
    },
    /// Makes a call on files, off the loop: by the ring where it can, else by a worker thread. The call itself, too, must
    /// stay valid and unmoved until the terminal event.
    File {
        /// The call.
        call: *const FileCall,
        /// It waits for a device, which should begin now, not with the turn: it has something to do while tasks run.
        soon: bool,
    },
}
