//! Addresses at which nothing listens, and at which nothing else can begin to while a test uses them.
#![allow(dead_code, reason = "each test file takes what it needs")]

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

/// Refuses connections as long as the socket lives, which is bound and does not listen.
pub(crate) fn closed_tcp() -> (OwnedFd, SocketAddr) {
    let bound = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&bound, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = getsockname(&bound).unwrap().try_into().unwrap();
    (bound, address)
}

/// Refuses datagrams as long as the socket lives, which is connected, to itself, and so for no others.
pub(crate) fn closed_udp() -> (UdpSocket, SocketAddr) {
    let bound = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = bound.local_addr().unwrap();
    bound.connect(address).unwrap();
    (bound, address)
}
