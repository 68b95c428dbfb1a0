//! The operations of a driver.

use crate::slots::Token;
use annulus_kernel::Fd;

/// An operation that names no memory of the submitter, as plain data: see
/// [`Driver::submit`](crate::Driver::submit).
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Does nothing, at the cost of an operation.
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
    RecvMulti {
        /// The socket.
        fd: Fd,
        /// Ends after so many bytes, of which the last receive brings at most as many once more;
        /// zero is no limit. Only if [`Driver::limits_receives`](crate::Driver::limits_receives).
        limit: u32,
    },
    /// Receives once into one of the pool's buffers.
    RecvPooled {
        /// The socket.
        fd: Fd,
    },
    /// Waits until the socket is writable, or has failed.
    WritableOnce {
        /// The socket.
        fd: Fd,
    },
    /// Waits until the descriptor is readable, or has failed. The value means nothing.
    ReadableOnce {
        /// The descriptor.
        fd: Fd,
    },
    /// An event each time the descriptor becomes readable, until it ends.
    Readable {
        /// The descriptor.
        fd: Fd,
    },
    /// Cancels an operation. The target still has its terminal event; the cancel has none.
    Cancel {
        /// The target.
        target: Token,
    },
    /// Closes a descriptor that no operation in flight names. No event.
    Close {
        /// The descriptor.
        fd: Fd,
    },
}

/// An operation that names memory of the submitter, as plain data. The memory must outlive it: see
/// [`Driver::submit_memory`](crate::Driver::submit_memory).
#[derive(Clone, Copy, Debug)]
pub enum MemoryOp {
    /// Receives once into the submitter's memory.
    Recv {
        /// The socket.
        fd: Fd,
        /// Where the bytes go.
        buffer: *mut u8,
        /// Most bytes to receive.
        len: u32,
    },
    /// Receives messages until it ends, each into a buffer of the pool of its token's kind. A
    /// `struct msghdr`, which must outlive the submission, gives the space for name and control
    /// messages; it names no vectors. A filled buffer has the layout of [`annulus_kernel::Layout`],
    /// and the event's value counts from its beginning, so that it is never zero. An empty message
    /// may end the operation.
    RecvMessages {
        /// The socket.
        fd: Fd,
        /// The `struct msghdr`.
        header: *const u8,
    },
    /// Receives one message into the memory that a `struct msghdr` names, as `recvmsg(2)` does. The
    /// event's value is the length of the message, even if it was truncated.
    RecvMessage {
        /// The socket.
        fd: Fd,
        /// The `struct msghdr`.
        header: *mut u8,
    },
    /// Sends a message without blocking: no event if it was sent, else one with the error. The
    /// `struct msghdr` and all that it names must outlive the operation.
    SendMessageNow {
        /// The socket.
        fd: Fd,
        /// The `struct msghdr`.
        header: *const u8,
    },
    /// Sends one datagram of bytes to an address without blocking: as `SendMessageNow`, without a
    /// header. Bytes and address must outlive the operation. Only if
    /// [`Driver::addresses_sends`](crate::Driver::addresses_sends) is true.
    SendToNow {
        /// The socket.
        fd: Fd,
        /// The bytes.
        buffer: *const u8,
        /// How many bytes.
        len: u32,
        /// The destination, or null for the peer of a connected socket.
        to: *const u8,
        /// The length of the destination's address.
        to_len: u16,
    },
    /// Sends without blocking: no event if everything was sent, else one with the short count or
    /// the error.
    SendNow {
        /// The socket.
        fd: Fd,
        /// The bytes.
        buffer: *const u8,
        /// How many bytes.
        len: u32,
    },
    /// As `SendNow`, from the vectors of a `struct msghdr`. Header and vectors need outlive only
    /// the submission.
    SendVectorNow {
        /// The socket.
        fd: Fd,
        /// The `struct msghdr`.
        header: *const u8,
    },
    /// Sends everything, and waits for space.
    Send {
        /// The socket.
        fd: Fd,
        /// The bytes.
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
    /// As `Send`, without a copy (`IORING_OP_SEND_ZC`): the kernel reads the memory until the
    /// terminal event. If the event with the result has [`more`](crate::Event::more), the terminal
    /// one follows, and says only that the memory is free. `EOPNOTSUPP` if the socket cannot. Only
    /// if the driver was [set up for it](crate::UringConfig::zero_copy).
    SendZeroCopy {
        /// The socket.
        fd: Fd,
        /// The bytes.
        buffer: *const u8,
        /// How many bytes.
        len: u32,
    },
    /// As `SendZeroCopy`, from vectors. The `struct msghdr` is part of the memory that the kernel
    /// reads.
    SendVectorZeroCopy {
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
        /// The length of the address.
        len: u32,
    },
}

/// When and where a file call is made that leaves the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileStart {
    /// With the turn.
    Later,
    /// Before the end of the turn, since it waits for a device, which then works while tasks run.
    Soon,
    /// On a thread apart from others, since it may hang. Few calls of one group, such as those on
    /// one mount, are made at once.
    Apart {
        /// The group.
        group: u64,
    },
}

impl FileStart {
    /// The group of a call that may hang.
    pub fn group(self) -> Option<u64> {
        match self {
            Self::Apart { group } => Some(group),
            Self::Later | Self::Soon => None,
        }
    }
}
