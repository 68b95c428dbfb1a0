//! `MSG_*` flags of sends and receives.

/// Returned: control messages were truncated.
pub const CTRUNC: u32 = 0x8;
/// For a receive: return the whole length of a datagram. Returned: it was truncated.
pub const TRUNC: u32 = 0x20;
/// Do not block, even on a blocking descriptor.
pub const DONTWAIT: u32 = 0x40;
/// Return only when all bytes were transferred.
pub const WAITALL: u32 = 0x100;
/// No SIGPIPE.
pub const NOSIGNAL: u32 = 0x4000;
/// Received descriptors close on exec.
pub const CMSG_CLOEXEC: u32 = 0x4000_0000;
