//! Threads for calls that block: those of `spawn_blocking`, and look-ups of names.
//!
//! A pool belongs to a runtime. Its threads start when they are first needed, and only as many as there are calls; one that has had
//! nothing to do for a while ends. Calls above the limit wait for a thread in the order in which they were made. Under a simulated
//! kernel, which has no other threads, a call is made by the poll of its future.

mod call;
mod pool;
mod resolver;

pub(crate) use call::BlockingCall;
pub(crate) use pool::{Limits, Pool};
pub(crate) use resolver::{Lookup, Resolver};

/// A runtime's pool and resolver, for calls that block.
#[derive(Clone)]
pub(crate) struct Blocking {
    pub(crate) pool: Pool,
    pub(crate) resolver: Resolver,
}
