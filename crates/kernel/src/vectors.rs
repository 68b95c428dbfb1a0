//! Memory as system calls name it: `struct iovec`, and `struct msghdr` over those.

/// `struct iovec`: a range of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IoVec {
    /// Its first byte.
    pub base: *const u8,
    /// Its length.
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
