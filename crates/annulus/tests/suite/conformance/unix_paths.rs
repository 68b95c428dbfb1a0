//! Peers whose path the standard library cannot express.
#![allow(unsafe_code)]

use super::unix::TestPath;
use crate::common::receive;
use annulus::net::{UnixDatagram, UnixListener};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Binds a socket to a path of 108 bytes, the full length of `sun_path`. The kernel accepts it, but
/// the standard library cannot express it.
fn bound_to_the_longest_path(kind: libc::c_int) -> (OwnedFd, TestPath) {
    let short = TestPath::new();
    let mut path = short.0.as_os_str().as_bytes().to_vec();
    path.resize(108, b'x');
    // SAFETY: the calls take numbers, and an address of the given length that outlives them.
    let fd = unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        address.sun_path.iter_mut().zip(&path).for_each(|(to, from)| *to = *from as _);
        let fd = libc::socket(libc::AF_UNIX, kind, 0);
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        let len = size_of::<libc::sockaddr_un>() as u32;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), len), 0);
        OwnedFd::from_raw_fd(fd)
    };
    (fd, TestPath(OsString::from_vec(path).into()))
}

pub(crate) async fn a_peer_whose_path_has_no_final_zero_is_accepted_as_unnamed() -> io::Result<()> {
    let path = TestPath::new();
    let listener = UnixListener::bind(&path)?;
    let (client, _long) = bound_to_the_longest_path(libc::SOCK_STREAM);
    rustix::net::connect(&client, &rustix::net::SocketAddrUnix::new(path.as_ref())?)?;
    let (mut stream, peer) = listener.accept().await?;
    assert!(peer.is_unnamed());
    std::os::unix::net::UnixStream::from(client).write_all(b"hello")?;
    assert_eq!(receive(&mut stream, 5).await?, b"hello");

    let path = TestPath::new();
    let socket = UnixDatagram::bind(&path)?;
    let (client, _long) = bound_to_the_longest_path(libc::SOCK_DGRAM);
    std::os::unix::net::UnixDatagram::from(client).send_to(b"datagram", &path)?;
    assert_eq!(&*socket.recv().await?, b"datagram");
    Ok(())
}
