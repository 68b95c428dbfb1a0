//! The arguments of `epoll_ctl(2)` and `epoll_wait(2)`.

pub use rustix::event::epoll::{Event as Edge, EventData, EventFlags};

/// A change to what an epoll instance watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// `EPOLL_CTL_ADD`: the current readiness is the first edge.
    Add(EventFlags),
    /// `EPOLL_CTL_MOD`: the current readiness is an edge.
    Modify(EventFlags),
    /// `EPOLL_CTL_DEL`.
    Delete,
}
