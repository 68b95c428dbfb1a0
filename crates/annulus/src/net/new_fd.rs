//! A socket that no slot owns yet.
#![allow(unsafe_code)]

use annulus_kernel::{Address, Domain, Fd, Kernel, SocketType};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

/// A descriptor that is closed on drop, unless a slot takes it over.
pub(super) struct NewFd {
    kernel: Rc<dyn Kernel>,
    fd: Fd,
    taken: bool,
}

impl NewFd {
    pub(super) fn new(
        kernel: &Rc<dyn Kernel>,
        domain: Domain,
        kind: SocketType,
    ) -> io::Result<Self> {
        let number = kernel.socket(domain, kind, true)?;
        // SAFETY: the kernel has just created this descriptor, and nothing else owns it.
        Ok(Self::own(kernel, unsafe { Fd::from_raw(number) }))
    }

    /// Creates two Unix sockets that are connected to each other.
    pub(super) fn pair(kernel: &Rc<dyn Kernel>, kind: SocketType) -> io::Result<(Self, Self)> {
        let (one, other) = kernel.socket_pair(kind, true)?;
        // SAFETY: the kernel has just created these descriptors, and nothing else owns them.
        let own = |number| Self::own(kernel, unsafe { Fd::from_raw(number) });
        Ok((own(one), own(other)))
    }

    /// Takes ownership of a descriptor that has no other owner.
    pub(super) fn own(kernel: &Rc<dyn Kernel>, fd: Fd) -> Self {
        Self { kernel: kernel.clone(), fd, taken: false }
    }

    /// Creates a TCP socket of the address's family.
    pub(super) fn tcp_for(kernel: &Rc<dyn Kernel>, address: SocketAddr) -> io::Result<Self> {
        let domain = if address.is_ipv4() { Domain::Inet } else { Domain::Inet6 };
        Self::new(kernel, domain, SocketType::Stream)
    }

    pub(super) fn fd(&self) -> Fd {
        self.fd
    }

    pub(super) fn with_fd<R>(
        &self,
        f: impl FnOnce(&dyn Kernel, Fd) -> io::Result<R>,
    ) -> io::Result<R> {
        f(&*self.kernel, self.fd)
    }

    pub(super) fn bind(&self, address: &Address) -> io::Result<()> {
        self.kernel.bind(self.fd, address)
    }

    pub(super) fn listen(&self, backlog: u32) -> io::Result<()> {
        self.kernel.listen(self.fd, backlog)
    }

    /// Returns the descriptor, which the caller owns from now on.
    pub(super) fn into_fd(mut self) -> Fd {
        self.taken = true;
        self.fd
    }
}

impl Drop for NewFd {
    fn drop(&mut self) {
        if !self.taken {
            self.kernel.close(self.fd);
        }
    }
}
