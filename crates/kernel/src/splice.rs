//! Moves bytes between stream sockets through a pipe with `splice(2)`, without copying them into
//! the process. `SPLICE_F_NONBLOCK` applies only to the pipe, so the sockets themselves must be
//! non-blocking ([`pages::prepare`](crate::file::pages::prepare)). A simulated kernel has no pipes.

use crate::fd::Fd;
use crate::pipe::SigPipe;
use rustix::fd::BorrowedFd;
use rustix::io::{Errno, Result};
use rustix::pipe::{SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size};

/// Sets the capacity of a pipe in bytes, if the system allows it, and returns the capacity that the
/// pipe has.
///
/// # Errors
/// Fails if the descriptor is not a pipe.
pub fn resize(pipe: BorrowedFd<'_>, bytes: usize) -> Result<usize> {
    // The call fails if the user's pipes would then exceed `pipe-user-pages-soft`, or if the
    // capacity exceeds `pipe-max-size`.
    _ = fcntl_setpipe_size(pipe, bytes);
    fcntl_getpipe_size(pipe)
}

/// Moves at most `most` bytes from a socket into a pipe. Returns 0 at the end of the stream.
///
/// # Errors
/// `AGAIN` if there is nothing to read, the pipe is full, or an urgent byte comes next, which only
/// a receive passes over; the socket's error, which is reported only once; `INVAL` if the socket
/// does not support `splice`.
pub fn fill(socket: Fd, pipe: BorrowedFd<'_>, most: usize) -> Result<usize> {
    let socket = Fd::borrow(socket);
    rustix::io::retry_on_intr(|| rustix::pipe::splice(socket, None, pipe, None, most, SPLICE_FLAGS))
}

/// Moves at most `most` bytes from a pipe to a socket. `signal` is the effect of SIGPIPE in the
/// process.
///
/// # Errors
/// `AGAIN` if the socket has no space; the errors of a send.
pub fn drain(pipe: BorrowedFd<'_>, socket: Fd, most: usize, signal: SigPipe) -> Result<usize> {
    signal.avoid(|| rustix::pipe::splice(pipe, None, Fd::borrow(socket), None, most, SPLICE_FLAGS))
}

/// Reads `count` bytes that a pipe holds, so that they can be sent another way.
///
/// # Errors
/// The errors of a read; `PIPE` if the pipe ends earlier.
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

/// Flags of a call that does not wait for the pipe.
const SPLICE_FLAGS: SpliceFlags = SpliceFlags::NONBLOCK;
