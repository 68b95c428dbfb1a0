//! Calls on descriptors of the process, whichever code has opened them. A simulated kernel has
//! none, so callers must first check that its descriptors are
//! [real](crate::Kernel::real_descriptors).

use crate::call::named;
use crate::fd::Fd;
use rustix::event::epoll;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, OFlags, SeekFrom};
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Returns the type of a descriptor's file; `Unknown` for an anonymous file, such as an eventfd.
///
/// # Errors
/// The system's error with the name of the call, as for every function here that returns an
/// [`io::Error`].
pub fn file_type(fd: impl AsFd) -> io::Result<FileType> {
    let stat = rustix::fs::fstat(fd).map_err(named("fstat"))?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// Returns true if a call at the cursor may wait for another process: on pipes, sockets, terminals
/// and anonymous files, such as an eventfd. If `fstat` fails, returns false: the call itself then
/// reports the error.
pub fn waits_for_a_process(fd: impl AsFd) -> bool {
    use FileType::{CharacterDevice, Fifo, Socket, Unknown};
    let Ok(stat) = rustix::fs::fstat(fd) else { return false };
    match FileType::from_raw_mode(stat.st_mode) {
        CharacterDevice => !is_memory_device(stat.st_rdev),
        kind => matches!(kind, Fifo | Socket | Unknown),
    }
}

/// Returns true if a file has a position, and its calls wait only for devices or for the server of
/// its file system. Asks no file system, which may hang.
pub fn has_position(fd: impl AsFd) -> bool {
    let seek = |to| rustix::fs::seek(fd.as_fd(), to);
    let Ok(position) = seek(SeekFrom::Current(0)) else { return false };
    // An anonymous file, such as a timer, accepts every position and has none. `/dev/mem` accepts
    // negative ones, too, and has to move back. It returns them, so -1 would look like an error.
    let accepts_all = seek(SeekFrom::Start(1 << 63)).is_ok();
    if accepts_all {
        _ = seek(SeekFrom::Start(position));
    }
    !accepts_all
}

/// Returns true for `/dev/null`, `/dev/zero`, `/dev/full`, `/dev/random` and `/dev/urandom`.
fn is_memory_device(device: u64) -> bool {
    libc::major(device) == 1 && matches!(libc::minor(device), 3 | 5 | 7 | 8 | 9)
}

/// Returns true if epoll can wait for a descriptor. It cannot for most regular files and
/// directories, which are always ready, but it can for files of the system such as `/proc/kmsg` and
/// `trace_pipe`.
pub fn can_wait(fd: impl AsFd) -> bool {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC);
    let add = |epoll| epoll::add(epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
    epoll.is_ok_and(|epoll| add(epoll).is_ok())
}

/// Returns the status flags of an open file.
///
/// # Errors
/// See [`file_type`].
pub fn flags(fd: impl AsFd) -> io::Result<OFlags> {
    rustix::fs::fcntl_getfl(fd).map_err(named("fcntl"))
}

/// Makes an open file non-blocking or blocking, for every descriptor that shares it (`dup`,
/// `fork`).
///
/// # Errors
/// See [`file_type`].
pub fn set_nonblocking(fd: impl AsFd, on: bool) -> io::Result<()> {
    rustix::io::ioctl_fionbio(fd, on).map_err(named("ioctl"))
}

/// Returns another descriptor of the same file, close-on-exec.
///
/// # Errors
/// See [`file_type`].
pub fn duplicate(fd: impl AsFd) -> io::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, 3).map_err(named("fcntl"))
}

/// Creates a pair of connected Unix streams, close-on-exec and non-blocking.
///
/// # Errors
/// See [`file_type`].
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    pair.map_err(named("socketpair"))
}

/// Makes the other socket of a pair readable. Async-signal-safe.
pub fn signal(stream: impl AsFd) {
    match rustix::net::send(&stream, b"!", SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        // The pair is full, so the other socket is readable, or nobody listens.
        Ok(_) | Err(Errno::AGAIN | Errno::PIPE) => {}
        // The call may be denied.
        Err(_) => _ = rustix::io::write(&stream, b"!"),
    }
}

/// Discards all bytes that a stream has received. Returns true if there were any.
///
/// # Errors
/// See [`file_type`].
pub fn drain(stream: impl AsFd) -> io::Result<bool> {
    let mut any = false;
    loop {
        match rustix::net::recv(&stream, &mut [0; 64], RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::AGAIN) => return Ok(any),
            Ok(_) => any = true,
            Err(Errno::INTR) => {}
            Err(error) => return Err(named("recvfrom")(error)),
        }
    }
}

/// Returns the family and type of a socket, and whether it listens; `None` if the descriptor is not
/// a socket.
///
/// # Errors
/// See [`file_type`].
pub fn socket(fd: impl AsFd) -> io::Result<Option<(AddressFamily, SocketType, bool)>> {
    let kind = match sockopt::socket_type(&fd) {
        Err(Errno::NOTSOCK) => return Ok(None),
        kind => kind.map_err(named("getsockopt"))?,
    };
    let family = sockopt::socket_domain(&fd).map_err(named("getsockopt"))?;
    let listens = sockopt::socket_acceptconn(&fd).map_err(named("getsockopt"))?;
    Ok(Some((family, kind, listens)))
}

/// Resets a connection if closing it would do so (`SO_LINGER` of zero). Returns true if the
/// connection was reset. Unix sockets are never reset.
pub fn reset(fd: Fd) -> bool {
    let socket = fd.borrow();
    let is_abortive = sockopt::socket_linger(socket) == Ok(Some(Duration::ZERO));
    is_abortive && rustix::net::connect_unspec(socket).is_ok()
}

/// Waits until a descriptor is ready or the timeout expires, and returns the readiness of each.
///
/// # Errors
/// `INTR` if a signal interrupts the wait; `NOMEM`; `INVAL` for more descriptors than the process
/// may have.
pub fn poll(fds: &[(Fd, PollFlags)], timeout: Option<Duration>) -> Result<Vec<PollFlags>> {
    let polled = fds.iter().map(|(fd, events)| PollFd::from_borrowed_fd(fd.borrow(), *events));
    let mut polled: Vec<PollFd<'_>> = polled.collect();
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    rustix::event::poll(&mut polled, timeout.as_ref())?;
    Ok(polled.iter().map(PollFd::revents).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, open, seek};

    #[test]
    fn a_file_keeps_its_position_when_asked_whether_it_has_one() {
        for (path, expected) in [("/proc/self/exe", true), ("/proc/self/mem", false)] {
            let file = open(path, OFlags::RDONLY, Mode::empty()).unwrap();
            seek(&file, SeekFrom::Start(7)).unwrap();
            assert_eq!(has_position(&file), expected, "{path}");
            assert_eq!(seek(&file, SeekFrom::Current(0)), Ok(7), "{path}");
        }
    }
}
