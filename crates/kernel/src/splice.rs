//! Bytes of stream sockets that are moved through a pipe, and not copied to the process and back (`splice(2)`). The call has no flag for its
//! sockets, so those must be non-blocking ([`pages::prepare`](crate::file::pages::prepare)). A simulated kernel has no pipes.

use crate::fd::Fd;
use crate::pipe::SigPipe;
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, Result};
use rustix::pipe::{SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size};

/// Makes a pipe hold so many bytes, if the system allows; how many it holds.
///
/// # Errors
/// If it is no pipe.
pub fn resize(pipe: BorrowedFd<'_>, bytes: usize) -> Result<usize> {
    // Refused if the user's pipes have more memory than `pipe-user-pages-soft` allows, or above `pipe-max-size`.
    _ = fcntl_setpipe_size(pipe, bytes);
    fcntl_getpipe_size(pipe)
}

/// Moves at most `most` bytes from a socket into a pipe. 0 is the end of the stream, or something that is no plain byte: a receive shows which.
///
/// # Errors
/// `AGAIN` if nothing is there, or the pipe is full; the socket's error, which is reported only once; `INVAL` if the socket has no such
/// call.
pub fn fill(socket: Fd, pipe: BorrowedFd<'_>, most: usize) -> Result<usize> {
    let socket = Fd::borrow(socket);
    rustix::io::retry_on_intr(|| rustix::pipe::splice(socket, None, pipe, None, most, NOWAIT))
}

/// Moves at most `most` bytes from a pipe to a socket. `signal` is the effect of SIGPIPE in the process.
///
/// # Errors
/// `AGAIN` if the socket has no space; the errors of a send.
pub fn drain(pipe: BorrowedFd<'_>, socket: Fd, most: usize, signal: SigPipe) -> Result<usize> {
    signal.avoid(|| rustix::pipe::splice(pipe, None, Fd::borrow(socket), None, most, NOWAIT))
}

/// Takes `count` bytes out of a pipe that holds them, so that they can be sent in another way.
///
/// # Errors
/// Those of a read.
pub fn take(pipe: BorrowedFd<'_>, count: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    let mut done = 0;
    while done < count {
        match rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut bytes[done..]))? {
            0 => return Err(Errno::PIPE),
            read => done += read,
        }
    }
    Ok(bytes)
}

/// The pipe is not waited for.
const NOWAIT: SpliceFlags = SpliceFlags::NONBLOCK;
