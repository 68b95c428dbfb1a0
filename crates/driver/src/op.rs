//! The operations of a driver.

use crate::slots::Token;
use annulus_kernel::Fd;

/// An operation that refers to no memory of the submitter.
/// [`Driver::submit`](crate::Driver::submit) starts it.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Does nothing. Its cost is the minimum cost of an operation.
    Nop,
    /// Accepts connections until the operation ends. The value of each event is a descriptor.
    AcceptMulti {
        /// The listening socket.
        fd: Fd,
    },
    /// Accepts one connection.
    Accept {
        /// The listening socket.
        fd: Fd,
    },
    /// Accepts a connection that is in the backlog. If the backlog is empty, the operation ends at
    /// once with EAGAIN or ECANCELED.
    AcceptNow {
        /// The listening socket.
        fd: Fd,
    },
    /// Receives into the pool's buffers until the operation ends.
    RecvMulti {
        /// The socket to receive from.
        fd: Fd,
        /// Number of bytes after which the operation ends; zero means no limit. The total may
        /// exceed the limit, but no single receive does. Requires
        /// [`Driver::supports_receive_limit`](crate::Driver::supports_receive_limit).
        limit: u32,
    },
    /// Receives pieces of the pool's area until the operation ends, on a TCP socket; other sockets
    /// fail with EPROTONOSUPPORT. Requires
    /// [`Driver::receives_zero_copy`](crate::Driver::receives_zero_copy).
    RecvZeroCopy {
        /// The socket to receive from.
        fd: Fd,
        /// Number of bytes after which the operation ends, with a value of zero, as at the end of
        /// the stream; zero means no limit.
        limit: u32,
    },
    /// Receives once into one of the pool's buffers.
    RecvPooled {
        /// The socket to receive from.
        fd: Fd,
    },
    /// Waits until the descriptor is writable, or has failed.
    WritableOnce {
        /// The descriptor to poll.
        fd: Fd,
    },
    /// Waits until the descriptor is readable, or has failed. The event's value is meaningless.
    ReadableOnce {
        /// The descriptor to poll.
        fd: Fd,
    },
    /// Reports an event each time the descriptor becomes readable, until the operation ends.
    Readable {
        /// The descriptor to poll.
        fd: Fd,
    },
    /// Cancels an operation. The target still gets its terminal event; the cancel itself has no
    /// event.
    Cancel {
        /// The token of the operation to cancel.
        target: Token,
    },
    /// Closes a descriptor that no operation in flight refers to. It has no event.
    Close {
        /// The descriptor to close.
        fd: Fd,
    },
}

/// An operation that refers to memory of the submitter.
/// [`Driver::submit_memory`](crate::Driver::submit_memory) starts it, and says how long the memory
/// must stay valid.
#[derive(Clone, Copy, Debug)]
pub enum MemoryOp {
    /// Receives once into the submitter's memory.
    Recv {
        /// The socket to receive from.
        fd: Fd,
        /// The memory that the received bytes are written to.
        buffer: *mut u8,
        /// Maximum number of bytes to receive.
        len: u32,
    },
    /// Receives messages until the operation ends, each into a buffer of the pool that the token's
    /// kind selects. A `struct msghdr` gives the space for the name and the control messages; it
    /// has no vectors, and must outlive the submission. A filled buffer has the layout of
    /// [`annulus_kernel::MessageLayout`], and the event's value counts from the start of the
    /// buffer, so it is never zero. An empty message may end the operation.
    RecvMessages {
        /// The socket to receive from.
        fd: Fd,
        /// The address of the `struct msghdr`.
        header: *const u8,
    },
    /// Receives one message into the memory that a `struct msghdr` refers to, like `recvmsg(2)`.
    /// The event's value is the full length of the message, even if the message was truncated.
    RecvMessage {
        /// The socket to receive from.
        fd: Fd,
        /// The address of the `struct msghdr`.
        header: *mut u8,
    },
    /// Sends a message without blocking. A send that succeeds has no event; one that fails has an
    /// event with the error. The `struct msghdr` and everything it refers to must outlive the
    /// operation.
    SendMessageNow {
        /// The socket to send on.
        fd: Fd,
        /// The address of the `struct msghdr`.
        header: *const u8,
    },
    /// Sends one datagram to an address without blocking: like `SendMessageNow`, but without a
    /// header. The bytes and the address must outlive the operation. Requires
    /// [`Driver::supports_send_to_now`](crate::Driver::supports_send_to_now).
    SendToNow {
        /// The socket to send on.
        fd: Fd,
        /// The bytes to send.
        buffer: *const u8,
        /// Number of bytes at `buffer`.
        len: u32,
        /// The destination, or null for the peer of a connected socket.
        to: *const u8,
        /// The length of the destination's address.
        to_len: u16,
    },
    /// Sends without blocking. A send of all bytes has no event; otherwise the event has the
    /// smaller count or the error.
    SendNow {
        /// The socket to send on.
        fd: Fd,
        /// The bytes to send.
        buffer: *const u8,
        /// Number of bytes at `buffer`.
        len: u32,
    },
    /// Like `SendNow`, but sends the vectors of a `struct msghdr`. The header and the vectors need
    /// only outlive the submission.
    SendVectorNow {
        /// The socket to send on.
        fd: Fd,
        /// The address of the `struct msghdr`.
        header: *const u8,
    },
    /// Sends all bytes, and waits for space if necessary. A send of more than 1 GiB, or one that
    /// fails in the middle, may end with the number of bytes sent so far.
    Send {
        /// The socket to send on.
        fd: Fd,
        /// The bytes to send.
        buffer: *const u8,
        /// Number of bytes at `buffer`.
        len: u32,
    },
    /// Like `Send`, but sends the vectors of a `struct msghdr`.
    SendVector {
        /// The socket to send on.
        fd: Fd,
        /// The address of the `struct msghdr`.
        header: *const u8,
    },
    /// Like `Send`, but without a copy (`IORING_OP_SEND_ZC`): the kernel reads the memory until the
    /// terminal event. If the event with the result has [`more`](crate::Event::more) set, a
    /// terminal event follows, which says only that the memory is free. Fails with `EOPNOTSUPP` if
    /// the socket does not support it. Requires a driver that was [set up for
    /// it](crate::UringConfig::zero_copy).
    SendZeroCopy {
        /// The socket to send on.
        fd: Fd,
        /// The bytes to send.
        buffer: *const u8,
        /// Number of bytes at `buffer`.
        len: u32,
    },
    /// Like `SendZeroCopy`, but sends the vectors of a `struct msghdr`, which is part of the memory
    /// that the kernel reads.
    SendVectorZeroCopy {
        /// The socket to send on.
        fd: Fd,
        /// The address of the `struct msghdr`.
        header: *const u8,
    },
    /// Connects a socket to an address.
    Connect {
        /// The socket to connect.
        fd: Fd,
        /// The peer's address, in the kernel's layout.
        address: *const u8,
        /// Number of bytes at `address`.
        len: u32,
    },
}

/// When and where a file call that leaves the loop is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileStart {
    /// Submitted with the turn.
    WithTurn,
    /// Submitted before the end of the turn if the device has little to do, so that it works while
    /// tasks run.
    Early,
    /// Made on a separate thread, since it may hang. Only a few calls of one group, such as calls
    /// on one mount, run at once.
    Isolated {
        /// The number of the group, such as one per mount.
        group: u64,
    },
}

/// Minimum number of calls in an early batch, which is submitted before the end of the turn.
const MIN_EARLY_BATCH_CALLS: u32 = 2;

/// Returns true if the queued calls should be submitted before the end of the turn: if the device
/// has no more calls than that to work on. `in_flight` includes the queued calls.
///
/// The kernel starts none of the calls of a batch before it has prepared all of them, so an idle
/// device first gets a small batch, and then larger ones. A device that has enough to do gets one
/// batch per turn, because the device is notified of each batch.
pub(crate) fn is_early_batch(queued: u32, in_flight: u32) -> bool {
    queued >= MIN_EARLY_BATCH_CALLS && queued >= in_flight.saturating_sub(queued)
}

impl FileStart {
    /// Returns the group of a call that may hang.
    pub fn group(self) -> Option<u64> {
        match self {
            Self::Isolated { group } => Some(group),
            Self::WithTurn | Self::Early => None,
        }
    }
}
