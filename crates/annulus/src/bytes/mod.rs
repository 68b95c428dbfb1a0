//! Bytes that are received and sent: leases, chunks, owned buffers, and their deferred drops.

pub(crate) mod buf;
pub(crate) mod chunk;
#[cfg(feature = "bytes")]
mod foreign;
pub(crate) mod lease;
pub(crate) mod owned;
pub(crate) mod shared;
pub(crate) mod thread_bound;
