//! Pipes: byte streams from one process or thread to another, with the leases and rules of streams.
//!
//! [`pipe`] creates a [`Sender`] and a [`Receiver`], [`OpenOptions`] opens a named pipe, and
//! `try_from` adopts descriptors.
//!
//! Reads and writes are made on the loop once the pipe is ready, so they never wait, and a pipe
//! needs no thread.
//!
//! ```
//! use annulus::pipe::pipe;
//!
//! # annulus::run(async {
//! let (mut sender, mut receiver) = pipe()?;
//! sender.send("through the pipe").await?;
//! sender.shutdown().await?;
//! assert_eq!(receiver.recv().await?.as_deref(), Some(&b"through the pipe"[..]));
//! assert!(receiver.recv().await?.is_none());
//! # std::io::Result::Ok(())
//! # }).unwrap();
//! ```

pub use crate::net::pipe::{OpenOptions, Receiver, Sender, pipe};
