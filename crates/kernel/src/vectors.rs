//! Memory as system calls name it: `struct iovec`, `struct msghdr` over those, and `struct mmsghdr`.

use std::ptr;

/// `struct iovec`: a range of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IoVec {
    /// Address of the first byte.
    pub base: *const u8,
    /// Length in bytes.
    pub len: usize,
}

/// `struct msghdr`: what `sendmsg` sends, or where `recvmsg` writes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct MsgHeader {
    pub name: *const u8,
    pub name_len: u32,
    pub vectors: *const IoVec,
    pub vector_count: usize,
    pub control: *const u8,
    pub control_len: usize,
    pub flags: i32,
}

impl MsgHeader {
    /// Without an address, vectors and control messages.
    pub const EMPTY: Self = Self {
        name: ptr::null(),
        name_len: 0,
        vectors: ptr::null(),
        vector_count: 0,
        control: ptr::null(),
        control_len: 0,
        flags: 0,
    };
}

/// `struct mmsghdr`: one of several messages to receive.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MessageSlot {
    /// The header, with the memory to receive into.
    pub header: MsgHeader,
    /// The length of the message, once it was received.
    pub len: u32,
}
