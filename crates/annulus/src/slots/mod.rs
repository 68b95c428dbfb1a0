//! The objects that the kernel works on, a slot each: streams, datagram sockets, listeners, attempts to connect, polls, file calls, NOPs.
//! One module a family; each is policy for all drivers and kernels.

mod arming;
pub(crate) mod connects;
pub(crate) mod datagrams;
pub(crate) mod file_ops;
pub(crate) mod listeners;
pub(crate) mod nops;
pub(crate) mod polls;
mod slot;
pub(crate) mod streams;
mod turn_lists;
pub(crate) mod waits;
