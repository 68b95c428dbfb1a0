//! Threads for calls that block: calls of `spawn_blocking`, and name lookups.
//!
//! A pool belongs to a runtime. Threads start only when calls need them, and a thread that has had
//! nothing to do for a while ends. Calls above the limit wait for a thread in the order in which
//! they were made. Under a simulated kernel, which has no other threads, polling the future makes
//! the call.

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
