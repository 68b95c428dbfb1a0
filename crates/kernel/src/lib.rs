//! The operating system under annulus: one trait, [`Kernel`], and its implementation for [`Linux`].
//!
//! The trait has the calls of io_uring, the mapping of its memory, the clock, epoll with the socket
//! calls that do not wait, and the socket and file calls that the layers above make directly. A
//! simulated kernel implements the same trait, so the layers above run on it unchanged.
//!
//! The rest of the crate is the data that these calls take: socket addresses, options, control
//! messages and file calls. Ring entries and completions are in `annulus-ring`.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
pub mod affinity;
mod aio;
mod call;
mod control;
pub mod descriptor;
pub mod epoll;
mod event_fd;
mod fd;
pub mod file;
mod kernel;
mod linux;
mod mapping;
mod message;
mod newer;
mod option;
pub mod pipe;
mod prefetch;
pub mod process;
mod resource;
mod socket;
pub mod splice;
mod uring;

pub use address::{Address, UnixName};
pub use aio::{AioCall, AioContext};
pub use call::{named, with_text, with_watch_limit, without_text};
pub use control::{
    Control, ControlWriter, Controls, Direction, MAX_DESCRIPTORS_PER_MESSAGE, descriptors, space,
};
pub use event_fd::EventFd;
pub use fd::Fd;
pub use kernel::Kernel;
pub use linux::Linux;
pub use mapping::Mapping;
pub use message::{IoVec, MessageHead, MessageLayout, MessageSlot, MsgHeader, msg};
pub use newer::may_be_refusal;
pub use option::{Credentials, DeviceName, Ip, Multicast, OptionRow, SocketOption};
pub use prefetch::prefetch;
pub use resource::{Limit, Resource, machine_memory};
pub use socket::{Domain, Shutdown, SocketType};
pub use uring::{
    CompletionOffsets, EnterArg, EnterFlags, Register, RingId, RingParams, SubmissionOffsets,
};
