//! The drivers of annulus: io_uring and epoll behind one interface.
//!
//! A driver takes operations, each with a [`Token`], and returns [`Event`]s with that token. It
//! lends receive memory from a [`Pool`]. It knows nothing about tasks, wakers or streams: the layer
//! above decides when to arm, pause, coalesce or close, in one place for all drivers.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod counters;
mod driver;
mod driver_state;
mod epoll;
mod event;
mod op;
mod pool;
mod slots;
mod uring;
mod wait;
mod workers;

pub use annulus_kernel::prefetch;
pub use counters::{Counter, Counters};
pub use driver::Driver;
pub use epoll::Epoll;
pub use event::Event;
pub use op::{FileStart, MemoryOp, Op};
pub use pool::{Pool, PoolMemory, PoolSize, ReceiveBudget};
pub use slots::{OpKind, Slab, SlotId, Token};
pub use uring::{BufferRegistry, ReceiveArea, Uring, UringConfig};
pub use wait::Wait;
pub use workers::NO_THREAD;
