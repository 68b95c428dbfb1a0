//! Pages of files, sent to sockets by `sendfile(2)`. That call has no flags: whether it waits depends on the socket, and whether it
//! raises SIGPIPE on the process. Both are settled once for a socket.

use crate::fd::Fd;
use crate::pipe::SigPipe;
use rustix::fd::BorrowedFd;
use rustix::io::Result;

/// Makes a socket ready for [`FileCall::Send`](super::FileCall::Send): non-blocking, which it stays. The present effect of
/// SIGPIPE in the process is returned, to be given to each call.
///
/// # Errors
/// If it is no open descriptor.
pub fn prepare(socket: Fd) -> Result<SigPipe> {
    rustix::io::ioctl_fionbio(Fd::borrow(socket), true)?;
    Ok(SigPipe::of_process())
}

/// Sends pages of a file to a socket that was made ready.
pub(super) fn send(
    from: BorrowedFd<'_>,
    mut offset: u64,
    to: BorrowedFd<'_>,
    len: usize,
    signal: SigPipe,
) -> Result<usize> {
    signal.avoid(|| rustix::fs::sendfile(to, from, Some(&mut offset), len))
}
