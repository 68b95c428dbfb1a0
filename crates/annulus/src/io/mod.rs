//! Moving bytes: the traits of streams, frames and lines, and copies between files and streams.
//!
//! Received bytes are shown in the buffer that the kernel has filled, and stay in the stream until they are consumed. So code that parses
//! needs no buffer of its own, and loses nothing if it is dropped.
//!
//! | to receive | call | what is copied |
//! |---|---|---|
//! | what has come | [`recv`](AsyncRecv::recv) | nothing |
//! | a look at it | [`fill_buf`](AsyncRecv::fill_buf) or [`peek`](AsyncRecv::peek), then [`consume`](AsyncRecv::consume) | what spans leases |
//! | so many bytes | [`recv_exact`](AsyncRecv::recv_exact) | what spans leases |
//! | messages that contain their length | [`read_frame`](AsyncRecv::read_frame) | what spans leases |
//! | up to a delimiter | [`recv_until`](AsyncRecv::recv_until) | what spans leases |
//! | lines of text | [`lines`](AsyncRecv::lines), [`read_line`](AsyncRecv::read_line) | the text |
//! | into memory of the caller | [`read_exact`](AsyncRecv::read_exact), [`read_to_end`](AsyncRecv::read_to_end) | once |
//! | by code that asks for tokio's traits, such as `Framed` of `tokio-util` | the feature `tokio-io`; for those of `futures-io`, `tokio_util::compat` on top | once, and not by `AsyncBufRead` |
//!
//! Code that is generic over streams asks for [`AsyncRecv`], [`AsyncSend`] or [`AsyncStream`].

mod async_fd;
mod bidirectional;
mod copy;
mod copy_ends;
mod file_stream;
mod framing;
mod idle_timeout;
mod peek;
#[cfg(feature = "tokio-io")]
mod read_ahead;
mod recv;
mod send;
mod send_file;
mod stdio;
#[cfg(feature = "tokio-io")]
mod tokio_io;
mod transfer;

pub use crate::base::op_error::os_error;
pub use crate::slots::polls::Interest;
pub use async_fd::{AsyncFd, ReadyGuard, TryIoError};
pub use bidirectional::{CopyBidirectional, CopyError, Direction, copy_bidirectional};
pub use copy::{copy, copy_at_most, copy_range};
#[doc(hidden)]
pub use copy_ends::OwnStream;
pub use copy_ends::{CopySink, CopySource};
pub use framing::Lines;
pub use peek::Peek;
pub use recv::AsyncRecv;
pub use send::{AsyncSend, AsyncStream};
pub use stdio::{stderr, stdin, stdout};
#[cfg(feature = "tokio-io")]
pub use tokio_io::FromTokio;
