//! Access to the descriptors of handles, and handles for descriptors that other code has opened.

use super::parts::given;
use super::socket::NewFd;
use super::socket::Socket;
use super::stream_handle::{AsStream, StreamHandle};
use super::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::slots::loop_state;
use annulus_kernel::descriptor;
use rustix::net::{AddressFamily, SocketType};
use std::io;
use std::net;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix;
use std::rc::Rc;

/// Exposes the descriptor of a handle. The runtime still owns it.
pub(crate) fn borrow_exposed<'a>(core: &Core, handle: &'a impl Socket) -> BorrowedFd<'a> {
    loop_state::borrowed_fd(core.expose(handle.change(|_, fd| Ok(fd))))
}

/// Exposes the descriptor of a socket that no slot owns yet.
pub(super) fn borrow_unowned<'a>(core: &Core, socket: &'a NewFd) -> BorrowedFd<'a> {
    loop_state::borrowed_fd(core.kernel.real_descriptors().then(|| socket.fd()))
}

macro_rules! as_fd {
    ($($type:ident $($more:literal)?)+) => {$(
        /// Exposes the descriptor for options and calls that this crate lacks. It stays open while
        /// it is borrowed. Do not read from it or write to it, because this handle would lose or
        /// reorder bytes, and do not make it blocking.
        ///
        $(#[doc = $more])?
        ///
        /// If the runtime has ended or the kernel is simulated, this is a number that no descriptor
        /// has, so every call fails with `EBADF`.
        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                let handle = self.handle();
                borrow_exposed(&handle.core, handle)
            }
        }

        /// Returns the number of the descriptor: see `AsFd`.
        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.as_fd().as_raw_fd()
            }
        }
    )+};
}

as_fd!(
    TcpStream "On io_uring, a receive may return fewer bytes than `SO_RCVLOWAT`. Use [`fill_at_least`](Self::fill_at_least) instead."
    UnixStream "On io_uring, a receive may return fewer bytes than `SO_RCVLOWAT`. Use [`fill_at_least`](Self::fill_at_least) instead."
    UdpSocket UnixDatagram
    TcpListener "A duplicate, such as one that `try_clone_to_owned` creates for a process that takes over, continues to listen after the runtime's
end. So does an exposed descriptor, until the last handle of the runtime is gone."
    UnixListener "A duplicate, such as one that `try_clone_to_owned` creates for a process that takes over, continues to listen after the runtime's
end. So does an exposed descriptor, until the last handle of the runtime is gone.");

const INET_FAMILIES: &[AddressFamily] = &[AddressFamily::INET, AddressFamily::INET6];
const UNIX_FAMILIES: &[AddressFamily] = &[AddressFamily::UNIX];

/// The properties that a descriptor must have.
struct Wanted {
    what: &'static str,
    families: &'static [AddressFamily],
    kind: SocketType,
    listens: bool,
}

impl Wanted {
    /// Checks that a socket has these properties. Returns its address family.
    ///
    /// # Errors
    /// `InvalidInput`, with the actual and the required kind in the message.
    fn check(&self, socket: &OwnedFd) -> io::Result<AddressFamily> {
        let refused = |is: String| {
            let (number, wanted) = (socket.as_raw_fd(), self.what);
            let text = format!("descriptor {number} is {is}; {wanted} is required");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let Some((family, kind, listens)) = descriptor::socket(socket)? else {
            return Err(refused("not a socket".into()));
        };
        if self.families.contains(&family) && kind == self.kind && listens == self.listens {
            return Ok(family);
        }
        Err(refused(name_of(family, kind, listens)))
    }
}

/// Returns the name of a kind of socket, with its article.
fn name_of(family: AddressFamily, kind: SocketType, listens: bool) -> String {
    let (article, family) = match family {
        AddressFamily::INET => ("an", "IPv4".to_owned()),
        AddressFamily::INET6 => ("an", "IPv6".to_owned()),
        AddressFamily::UNIX => ("a", "Unix".to_owned()),
        _ => ("an", format!("address family {}", family.as_raw())),
    };
    let kind = match kind {
        SocketType::STREAM => "stream".to_owned(),
        SocketType::DGRAM => "datagram".to_owned(),
        SocketType::SEQPACKET => "seqpacket".to_owned(),
        _ => format!("type {}", kind.as_raw()),
    };
    match listens {
        true => format!("a listening {family} {kind} socket"),
        false => format!("{article} {family} {kind} socket"),
    }
}

/// Takes over a real socket of the required kind, makes it non-blocking and returns it with the
/// current runtime. Closing it will not block either.
///
/// # Errors
/// Outside a runtime; `Unsupported` under a simulated kernel; `InvalidInput` for a socket of
/// another kind. The socket is closed if the call fails.
fn taken(socket: OwnedFd, wanted: &Wanted) -> io::Result<(Rc<Core>, NewFd, AddressFamily)> {
    let core = current::get()?;
    core.require_real("a real socket cannot enter a simulation")?;
    let family = wanted.check(&socket)?;
    descriptor::set_nonblocking(&socket, true)?;
    let socket = NewFd::own(&core.kernel, given(socket));
    if wanted.kind == SocketType::STREAM {
        socket.never_block_on_close();
    }
    Ok((core, socket, family))
}

/// Like [`taken`], but for a listening TCP socket.
pub(super) fn listening(socket: OwnedFd) -> io::Result<(Rc<Core>, NewFd)> {
    let (what, kind) = ("a listening TCP socket", SocketType::STREAM);
    let wanted = Wanted { what, families: INET_FAMILIES, kind, listens: true };
    taken(socket, &wanted).map(|(core, socket, _)| (core, socket))
}

/// Like [`taken`], but for a TCP socket that neither listens nor is connected. Also returns true if
/// it is for IPv4.
pub(super) fn unconnected(socket: OwnedFd) -> io::Result<(Rc<Core>, NewFd, bool)> {
    let what = "a TCP socket that is neither listening nor connected";
    let kind = SocketType::STREAM;
    let wanted = Wanted { what, families: INET_FAMILIES, kind, listens: false };
    let number = socket.as_raw_fd();
    let (core, socket, family) = taken(socket, &wanted)?;
    if socket.with_fd(|kernel, fd| kernel.peer_address(fd)).is_ok() {
        let text = format!("descriptor {number} is connected; {what} is required");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok((core, socket, family == AddressFamily::INET))
}

/// Implements `from_std`, which takes the standard library's type, and `TryFrom<OwnedFd>`. The
/// expression at the end of each row builds the type from the result of [`taken`].
macro_rules! from_descriptor {
    ($($type:ident, $std:ty, $what:literal: $families:ident $kind:ident $listens:literal, $make:expr;)+) => {$(
        impl $type {
            #[doc = concat!("Takes over ", $what, " of the standard library and makes it non-blocking.")]
            /// For TCP, a positive `SO_LINGER` is turned off, so that a close does not block either;
            /// [`Builder::linger`](crate::Builder::linger) replaces it.
            ///
            /// # Errors
            /// Outside a runtime; `Unsupported` under a simulated kernel. The socket is closed if
            /// the call fails.
            pub fn from_std(socket: $std) -> io::Result<Self> {
                Self::try_from(OwnedFd::from(socket))
            }
        }

        #[doc = concat!("Takes over the descriptor of ", $what, " and makes it non-blocking.")]
        /// For TCP, a positive `SO_LINGER` is turned off, so that a close does not block either;
        /// [`Builder::linger`](crate::Builder::linger) replaces it.
        ///
        /// # Errors
        /// `InvalidInput` for a descriptor of another kind, with its actual kind in the message;
        /// `Unsupported` under a simulated kernel. Also fails outside a runtime. The descriptor is
        /// closed if the call fails.
        impl TryFrom<OwnedFd> for $type {
            type Error = io::Error;

            fn try_from(socket: OwnedFd) -> io::Result<Self> {
                let kind = SocketType::$kind;
                let wanted = Wanted { what: $what, families: $families, kind, listens: $listens };
                $make(taken(socket, &wanted)?)
            }
        }
    )+};
}

type Taken = (Rc<Core>, NewFd, AddressFamily);

from_descriptor! {
    TcpStream, net::TcpStream, "a TCP connection": INET_FAMILIES STREAM false,
        |(core, socket, _): Taken| StreamHandle::new(core, socket, None).map(TcpStream::new);
    TcpListener, net::TcpListener, "a listening TCP socket": INET_FAMILIES STREAM true,
        |(core, socket, _): Taken| TcpListener::new(&core, socket, None);
    UdpSocket, net::UdpSocket, "a UDP socket": INET_FAMILIES DGRAM false,
        |(core, socket, family): Taken| UdpSocket::adopt(&core, socket, family == AddressFamily::INET);
    UnixStream, unix::net::UnixStream, "a Unix stream": UNIX_FAMILIES STREAM false,
        |(core, socket, _): Taken| StreamHandle::new(core, socket, None).map(UnixStream::new);
    UnixListener, unix::net::UnixListener, "a listening Unix socket": UNIX_FAMILIES STREAM true,
        |(core, socket, _): Taken| UnixListener::from_elsewhere(&core, socket);
    UnixDatagram, unix::net::UnixDatagram, "a Unix datagram socket": UNIX_FAMILIES DGRAM false,
        |(core, socket, _): Taken| UnixDatagram::adopt(&core, socket);
}
