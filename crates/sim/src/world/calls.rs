//! The plain system calls on sockets.

use super::World;
use crate::descriptors::File;
use crate::faults::Fault;
use crate::memory::Submitted;
use crate::net::SocketId;
use annulus_ring::{Address, Domain, Shutdown, SocketOption, SocketType};
use rustix::io::Errno;
use std::net::SocketAddr;
use std::os::fd::RawFd;

impl World {
    pub(crate) fn socket(&mut self, domain: Domain, kind: SocketType) -> Result<RawFd, Errno> {
        if kind == SocketType::Datagram || domain == Domain::Unix {
            return Err(Errno::PROTONOSUPPORT);
        }
        if !self.files.has_room() || self.strikes(Fault::SocketLimit) {
            return Err(Errno::MFILE);
        }
        let socket = self.net.create(domain);
        self.files.open(File::Socket(socket))
    }

    pub(crate) fn bind(&mut self, fd: RawFd, address: &Address) -> Result<(), Errno> {
        let (_, socket) = self.socket_of(fd)?;
        self.net.bind(socket, internet(address)?)
    }

    pub(crate) fn listen(&mut self, fd: RawFd, backlog: u32) -> Result<(), Errno> {
        let (_, socket) = self.socket_of(fd)?;
        self.net.listen(socket, backlog)
    }

    pub(crate) fn shutdown(&mut self, fd: RawFd, how: Shutdown) -> Result<(), Errno> {
        let (_, socket) = self.socket_of(fd)?;
        let answer = self.net.shutdown(socket, how);
        self.wake();
        answer
    }

    pub(crate) fn set_option(&mut self, fd: RawFd, option: SocketOption) -> Result<(), Errno> {
        let (_, socket) = self.socket_of(fd)?;
        self.net.set_option(socket, option)
    }

    pub(crate) fn local_address(&self, fd: RawFd) -> Result<Address, Errno> {
        let (_, socket) = self.socket_of(fd)?;
        Ok(self.net.local_address(socket).into())
    }

    pub(crate) fn peer_address(&self, fd: RawFd) -> Result<Address, Errno> {
        let (_, socket) = self.socket_of(fd)?;
        self.net.peer_address(socket).map(Address::from)
    }

    /// Frees a descriptor. What is in flight on its file goes on, and keeps it.
    pub(crate) fn close(&mut self, fd: RawFd) -> Result<(), Errno> {
        if let Some(file) = self.files.close(fd)? {
            self.tear_down(file);
        }
        Ok(())
    }

    pub(super) fn begin_connect(
        &mut self,
        socket: SocketId,
        entry: &Submitted,
    ) -> Result<(), Errno> {
        let to = internet(&entry.address()?)?;
        self.net.connect(socket, to)
    }
}

fn internet(address: &Address) -> Result<SocketAddr, Errno> {
    let least = if address.family() == 2 { 16 } else { 28 };
    if address.as_bytes().len() < least {
        return Err(Errno::INVAL);
    }
    address.to_inet().map_err(|_| Errno::AFNOSUPPORT)
}
