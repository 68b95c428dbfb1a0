//! Standard input and output.

use crate::fs::{File, FileStream};
use annulus_kernel::descriptor;
use std::io;
use std::os::fd::AsFd;

/// Standard input as a stream of bytes, be it a terminal, a pipe or a file. Each call makes one of its own, and what one has read ahead
/// no other gets: call it once.
///
/// ```no_run
/// use annulus::io::{AsyncRecv, AsyncSend, stdin, stdout};
///
/// # annulus::run(async {
/// let (mut input, mut output) = (stdin()?, stdout()?);
/// let mut lines = input.lines(64 * 1024);
/// while let Some(line) = lines.next_line().await? {
///     output.write_all(line.to_uppercase().as_bytes()).await?;
///     output.write_all(b"\n").await?;
/// }
/// output.flush().await
/// # }).unwrap();
/// ```
///
/// # Errors
/// Out of descriptors, or if it is closed; outside a runtime; `Unsupported` under a simulated kernel.
pub fn stdin() -> io::Result<FileStream> {
    stream_of(io::stdin())
}

/// Standard output as a stream of bytes. Queued bytes are written; to wait for that, call
/// [`flush`](crate::io::AsyncSend::flush).
///
/// # Errors
/// As [`stdin`].
pub fn stdout() -> io::Result<FileStream> {
    stream_of(io::stdout())
}

/// Standard error as a stream of bytes, as [`stdout`].
///
/// # Errors
/// As [`stdin`].
pub fn stderr() -> io::Result<FileStream> {
    stream_of(io::stderr())
}

fn stream_of(fd: impl AsFd) -> io::Result<FileStream> {
    let mut stream = File::try_from(descriptor::duplicate(fd)?)?.into_stream();
    stream.shares_cursor = true;
    Ok(stream)
}
