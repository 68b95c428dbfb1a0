//! Pipes: bytes from one process or thread to another, with the leases and rules of streams.
//!
//! A [`Sender`] and a [`Receiver`] are made by [`pipe`], of a named pipe by [`OpenOptions`], and of descriptors by
//! `try_from`.
//!
//! Reads and writes are calls on the loop, made once the pipe is ready for them; so they never wait, and a pipe needs no thread.
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
