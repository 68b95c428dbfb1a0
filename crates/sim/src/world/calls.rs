//! System calls on sockets.

use super::World;
use crate::descriptors::File;
use crate::faults::Fault;
use crate::memory::SubmittedEntry;
use crate::net::SocketId;
use annulus_kernel::{Address, Credentials, Domain, Multicast, Shutdown, SocketOption, SocketType};
use rustix::io::Errno;
use std::os::fd::RawFd;

impl World {
    pub(crate) fn socket(
        &mut self,
        domain: Domain,
        kind: SocketType,
        nonblocking: bool,
    ) -> Result<RawFd, Errno> {
        if !self.files.has_free() || self.occurs(Fault::SocketLimit) {
            return Err(Errno::MFILE);
        }
        let socket = self.net.create(domain, kind, nonblocking);
        self.files.open(File::Socket(socket))
    }

    pub(crate) fn socket_pair(
        &mut self,
        kind: SocketType,
        nonblocking: bool,
    ) -> Result<(RawFd, RawFd), Errno> {
        if self.files.free() < 2 || self.occurs(Fault::SocketLimit) {
            return Err(Errno::MFILE);
        }
        let [one, other] = self.net.create_pair(kind, nonblocking);
        Ok((self.files.open(File::Socket(one))?, self.files.open(File::Socket(other))?))
    }

    pub(crate) fn bind(&mut self, fd: RawFd, address: &Address) -> Result<(), Errno> {
        let (_, socket) = self.socket_of(fd)?;
        self.net.bind(socket, address)
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

    pub(crate) fn set_option(
        &mut self,
        fd: RawFd,
        option: SocketOption,
        value: u32,
    ) -> Result<(), Errno> {
        let (_, socket) = self.socket_of(fd)?;
        self.net.set_option(socket, option, value)
    }

    pub(crate) fn set_multicast(&mut self, fd: RawFd, change: Multicast) -> Result<(), Errno> {
        let (_, socket) = self.socket_of(fd)?;
        self.net.set_multicast(socket, change)
    }

    pub(crate) fn local_address(&self, fd: RawFd) -> Result<Address, Errno> {
        let (_, socket) = self.socket_of(fd)?;
        Ok(self.net.local_address(socket))
    }

    pub(crate) fn peer_address(&self, fd: RawFd) -> Result<Address, Errno> {
        let (_, socket) = self.socket_of(fd)?;
        self.net.peer_address(socket)
    }

    pub(crate) fn option(&mut self, fd: RawFd, option: SocketOption) -> Result<u32, Errno> {
        let (_, socket) = self.socket_of(fd)?;
        self.net.option(socket, option)
    }

    pub(crate) fn peer_credentials(&self, fd: RawFd) -> Result<Credentials, Errno> {
        let (_, socket) = self.socket_of(fd)?;
        self.net.peer_credentials(socket)
    }

    pub(crate) fn unacknowledged(&self, fd: RawFd) -> usize {
        self.socket_of(fd).map_or(0, |(_, socket)| self.net.unacknowledged(socket))
    }

    /// Closes a descriptor. Operations in flight keep its file open and continue.
    pub(crate) fn close(&mut self, fd: RawFd) -> Result<(), Errno> {
        if let Some(file) = self.files.close(fd)? {
            self.tear_down(file);
        }
        Ok(())
    }

    pub(super) fn start_connect(
        &mut self,
        socket: SocketId,
        entry: &SubmittedEntry,
    ) -> Result<(), Errno> {
        self.net.connect(socket, &entry.address()?)
    }
}
