//! `MSG_*` flags of sends and receives.

/// Control messages did not fit (an answer).
pub const CTRUNC: u32 = 0x8;
/// Asked of a receive: tell a datagram's whole length. Answered: it was cut.
pub const TRUNC: u32 = 0x20;
/// Do not block, whatever the descriptor's mode.
pub const DONTWAIT: u32 = 0x40;
/// Come back only when everything is done.
pub const WAITALL: u32 = 0x100;
/// No SIGPIPE.
pub const NOSIGNAL: u32 = 0x4000;
/// Received descriptors close on exec.
pub const CMSG_CLOEXEC: u32 = 0x4000_0000;
