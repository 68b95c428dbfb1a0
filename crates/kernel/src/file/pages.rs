//! Sends pages of files to sockets with `sendfile(2)`. The call has no flags: whether it waits
//! depends on the socket, and whether it raises SIGPIPE depends on the process. Both are determined
//! once per socket.

use crate::fd::Fd;
use crate::pipe::SigPipe;
use rustix::fd::BorrowedFd;
use rustix::io::Result;

/// Prepares a socket for [`FileCall::Send`](super::FileCall::Send): makes it non-blocking for the
/// rest of its life. Returns the current effect of SIGPIPE in the process, which the caller passes
/// to each call.
///
/// # Errors
/// Fails if the descriptor is not open.
pub fn prepare(socket: Fd) -> Result<SigPipe> {
    rustix::io::ioctl_fionbio(Fd::borrow(socket), true)?;
    Ok(SigPipe::of_process())
}

/// Sends pages of a file to a prepared socket.
pub(super) fn send(
    from: BorrowedFd<'_>,
    mut offset: u64,
    to: BorrowedFd<'_>,
    len: usize,
    signal: SigPipe,
) -> Result<usize> {
    signal.avoid(|| rustix::fs::sendfile(to, from, Some(&mut offset), len))
}
