//! Standard input and output.

use crate::fs::{File, FileStream};
use annulus_kernel::descriptor;
use std::io;
use std::os::fd::AsFd;

/// Returns standard input (a terminal, a pipe or a file) as a stream of bytes. Call this once: each
/// call creates a separate stream, and bytes that one stream has read ahead do not reach another.
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
/// If the process has no free descriptor, if standard input is closed, or outside a runtime.
/// `Unsupported` on a simulated kernel.
pub fn stdin() -> io::Result<FileStream> {
    stream_of(io::stdin())
}

/// Returns standard output as a stream of bytes. To wait until queued bytes have been written, call
/// [`flush`](crate::io::AsyncSend::flush).
///
/// # Errors
/// The errors of [`stdin`].
pub fn stdout() -> io::Result<FileStream> {
    stream_of(io::stdout())
}

/// Returns standard error as a stream of bytes, like [`stdout`].
///
/// # Errors
/// The errors of [`stdin`].
pub fn stderr() -> io::Result<FileStream> {
    stream_of(io::stderr())
}

fn stream_of(fd: impl AsFd) -> io::Result<FileStream> {
    let mut stream = File::try_from(descriptor::duplicate(fd)?)?.into_stream();
    stream.shares_cursor = true;
    Ok(stream)
}
