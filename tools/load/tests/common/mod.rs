//! Addresses where nothing listens, and where no other program can start to listen while a test
//! uses them.
#![allow(dead_code, reason = "each test program uses only some of these")]

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

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
