//! The arguments of `epoll_ctl(2)` and `epoll_wait(2)`.

pub use rustix::event::epoll::{Event as Edge, EventData, EventFlags};

/// A change of what an epoll instance watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// `EPOLL_CTL_ADD`: the present readiness is the first edge.
    Add(EventFlags),
    /// `EPOLL_CTL_MOD`: the present readiness is an edge.
    Modify(EventFlags),
    /// `EPOLL_CTL_DEL`.
    Delete,
}
