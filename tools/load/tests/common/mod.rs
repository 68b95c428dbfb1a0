//! Servers, and addresses where nothing listens and no other program can start to listen while a
//! test uses them.
#![allow(dead_code, reason = "each test program uses only some of these")]

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::thread;

/// Starts a server that passes each connection to `talk` on a thread of its own, which closes it by
/// dropping it. It ends with the test process.
pub(crate) fn serve(talk: impl Fn(TcpStream) + Send + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, talk) = (stream.unwrap(), talk.clone());
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || talk(stream));
        }
    });
    address
}

/// Returns an address that refuses connections as long as the socket exists, because the socket is
/// bound but does not listen.
pub(crate) fn closed_tcp() -> (OwnedFd, SocketAddr) {
    let bound = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&bound, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = getsockname(&bound).unwrap().try_into().unwrap();
    (bound, address)
}

/// Returns an address that refuses datagrams as long as the socket exists, because the socket is
/// connected to itself and receives from no other socket.
pub(crate) fn closed_udp() -> (UdpSocket, SocketAddr) {
    let bound = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = bound.local_addr().unwrap();
    bound.connect(address).unwrap();
    (bound, address)
}
