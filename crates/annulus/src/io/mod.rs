//! Moving bytes: the stream traits, frames and lines, and copies between files and streams.
//!
//! Received bytes are shown in the buffer that the kernel has filled, and stay in the stream until
//! they are consumed. Parsers therefore need no buffer of their own, and lose nothing if they are
//! dropped.
//!
//! | to receive | call | copied |
//! |---|---|---|
//! | the bytes that have arrived | [`recv`](AsyncRecv::recv) | nothing |
//! | the same, without consuming them | [`fill_buf`](AsyncRecv::fill_buf) or [`fill_at_least`](AsyncRecv::fill_at_least), then [`consume`](AsyncRecv::consume) | bytes that span leases |
//! | a number of bytes | [`recv_exact`](AsyncRecv::recv_exact) | bytes that span leases |
//! | messages that contain their length | [`read_frame`](AsyncRecv::read_frame) | bytes that span leases |
//! | up to a delimiter | [`recv_until`](AsyncRecv::recv_until) | bytes that span leases |
//! | lines of text | [`lines`](AsyncRecv::lines), [`read_line`](AsyncRecv::read_line) | the text |
//! | into the caller's memory | [`read_exact`](AsyncRecv::read_exact), [`read_to_end`](AsyncRecv::read_to_end) | once |
//! | in code that needs tokio's traits, such as `Framed` of `tokio-util` | the feature `tokio-io`; for the traits of `futures-io`, `tokio_util::compat` on top | once, except with `AsyncBufRead` |
//!
//! Code that is generic over streams uses [`AsyncRecv`], [`AsyncSend`] or [`AsyncStream`].

mod async_fd;
mod bidirectional;
mod copy;
mod copy_ends;
mod file_stream;
mod framing;
mod recv;
mod send;
mod send_file;
mod split;
mod stdio;
#[cfg(feature = "tokio-io")]
mod tokio_io;
mod transfer;

pub use crate::errors::{CopyError, Direction, raw_os_error};
pub use crate::slots::interest::Interest;
pub use async_fd::{AsyncFd, ReadyGuard, TryIoError};
pub use bidirectional::{CopyBidirectional, copy_bidirectional};
pub use copy::{copy, copy_at_most, copy_range};
pub use copy_ends::{CopySink, CopySource};
pub use framing::Lines;
pub use recv::AsyncRecv;
pub use send::{AsyncSend, AsyncStream};
pub use split::{ReadHalf, WriteHalf, split};
pub use stdio::{stderr, stdin, stdout};
#[cfg(feature = "tokio-io")]
pub use tokio_io::FromTokio;
