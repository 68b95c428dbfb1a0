//! Sockets: the options that all handles share, sockets that no slot owns yet, and the options that
//! are set when a socket is created.
#![allow(unsafe_code)]

use super::datagram_handle::DatagramHandle;
use super::listener_handle::ListenerHandle;
use super::stream_handle::StreamHandle;
use super::tcp::KeepAlive;
use annulus_kernel::{
    Address, DeviceName, Domain, Fd, Ip, Kernel, Multicast, SocketOption, SocketType,
};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// A socket that no slot owns yet, or a handle to a socket's slot.
pub(crate) trait Socket {
    /// Calls the kernel with the socket's descriptor.
    ///
    /// # Errors
    /// If the runtime has ended; or the errors of `f`.
    fn call<R>(&self, f: impl FnOnce(&dyn Kernel, Fd) -> io::Result<R>) -> io::Result<R>;

    /// Like [`call`](Self::call), but for a call that may change how the socket sends.
    fn change<R>(&self, f: impl FnOnce(&dyn Kernel, Fd) -> io::Result<R>) -> io::Result<R> {
        self.call(f)
    }

    fn set(&self, option: SocketOption, value: u32) -> io::Result<()> {
        self.change(|kernel, fd| kernel.set_option(fd, option, value))
    }

    fn query(&self, option: SocketOption) -> io::Result<u32> {
        self.call(|kernel, fd| kernel.option(fd, option))
    }

    /// Sets the option for each IP version that the socket uses: an IPv6 socket may also have IPv4
    /// peers.
    fn set_ip(&self, option: fn(Ip) -> SocketOption, value: u32) -> io::Result<()> {
        self.change(|kernel, fd| {
            let ip = protocol(kernel, fd)?;
            kernel.set_option(fd, option(ip), value)?;
            if ip == Ip::V6 && kernel.option(fd, SocketOption::V6Only)? == 0 {
                kernel.set_option(fd, option(Ip::V4), value)?;
            }
            Ok(())
        })
    }

    fn query_ip(&self, option: fn(Ip) -> SocketOption) -> io::Result<u32> {
        self.call(|kernel, fd| kernel.option(fd, option(protocol(kernel, fd)?)))
    }

    fn set_multicast(&self, change: Multicast) -> io::Result<()> {
        self.change(|kernel, fd| kernel.set_multicast(fd, change))
    }

    fn take_error(&self) -> io::Result<Option<io::Error>> {
        let errno = self.query(SocketOption::Error)?;
        Ok((errno != 0).then(|| io::Error::from_raw_os_error(errno as i32)))
    }

    fn bind_device(&self, name: Option<&str>) -> io::Result<()> {
        let name = name.map_or(Ok(DeviceName::NONE), DeviceName::new)?;
        self.change(|kernel, fd| kernel.set_device(fd, name))
    }

    fn device(&self) -> io::Result<Option<String>> {
        let name = self.call(|kernel, fd| kernel.device(fd))?;
        Ok(name.map(|name| name.to_string()))
    }

    fn set_keepalive(&self, keepalive: Option<KeepAlive>) -> io::Result<()> {
        let Some(keepalive) = keepalive else { return self.set(SocketOption::KeepAlive, 0) };
        keepalive.options()?.into_iter().try_for_each(|(option, value)| self.set(option, value))
    }

    fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        if let Some(time) = linger.filter(|time| !time.is_zero()) {
            let text = format!(
                "a close that lingers for {time:?} would block the thread; choose 0 or None, or shut down and receive until the end"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.set(SocketOption::Linger, linger.map_or(SocketOption::NO_LINGER, |_| 0))
    }

    fn linger(&self) -> io::Result<Option<Duration>> {
        let seconds = self.query(SocketOption::Linger)?;
        Ok((seconds != SocketOption::NO_LINGER).then(|| Duration::from_secs(seconds.into())))
    }

    /// Turns off a time for which closing the socket would block the thread, which other code has
    /// set. The runtime waits for the peer itself ([`Builder::linger`](crate::Builder::linger)).
    fn never_block_on_close(&self) {
        // If the system refuses the calls, the close may block.
        if self.linger().is_ok_and(|linger| linger.is_some_and(|time| !time.is_zero())) {
            _ = self.set_linger(None);
        }
    }

    fn keepalive(&self) -> io::Result<Option<KeepAlive>> {
        if self.query(SocketOption::KeepAlive)? == 0 {
            return Ok(None);
        }
        let seconds = |query| Ok::<_, io::Error>(Duration::from_secs(self.query(query)?.into()));
        Ok(Some(KeepAlive {
            time: seconds(SocketOption::KeepAliveTime)?,
            interval: seconds(SocketOption::KeepAliveInterval)?,
            retries: self.query(SocketOption::KeepAliveRetries)?,
        }))
    }
}

macro_rules! sockets {
    ($($handle:ty),+) => {$(
        impl Socket for $handle {
            fn call<R>(&self, f: impl FnOnce(&dyn Kernel, Fd) -> io::Result<R>) -> io::Result<R> {
                self.with_fd(f)
            }
        }
    )+};
}

sockets!(StreamHandle, ListenerHandle, NewFd);

impl Socket for DatagramHandle {
    fn call<R>(&self, f: impl FnOnce(&dyn Kernel, Fd) -> io::Result<R>) -> io::Result<R> {
        self.with_fd(f)
    }

    /// Queued datagrams leave first, because an option set after their send must not affect them.
    fn change<R>(&self, f: impl FnOnce(&dyn Kernel, Fd) -> io::Result<R>) -> io::Result<R> {
        self.send_queued();
        self.call(f)
    }
}

/// Returns the IP version that a socket was created for.
fn protocol(kernel: &dyn Kernel, fd: Fd) -> io::Result<Ip> {
    let domain = kernel.option(fd, SocketOption::Domain)?;
    let is_v6 = domain == u32::from(rustix::net::AddressFamily::INET6.as_raw());
    Ok(if is_v6 { Ip::V6 } else { Ip::V4 })
}

/// A descriptor that is closed on drop, unless [`into_fd`](Self::into_fd) gives it to another
/// owner.
pub(crate) struct NewFd {
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

    /// Takes ownership of a descriptor, which must have no other owner.
    pub(crate) fn own(kernel: &Rc<dyn Kernel>, fd: Fd) -> Self {
        Self { kernel: kernel.clone(), fd, taken: false }
    }

    /// Creates a TCP socket for the address's IP version.
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

/// Options that are set on a socket when it is created.
#[derive(Clone, Debug, Default)]
pub(super) struct SocketSettings {
    options: Vec<(SocketOption, Option<OfEach>, u32)>,
    device: Option<String>,
    keepalive: Option<KeepAlive>,
}

/// Returns the kernel's option for an IP version.
type OfEach = fn(Ip) -> SocketOption;

impl SocketSettings {
    /// Returns settings with these options on.
    pub(super) fn on(options: &[SocketOption]) -> Self {
        let on = options.iter().map(|&option| (option, None, 1));
        Self { options: on.collect(), ..Self::default() }
    }

    /// Adds an option, or replaces its earlier value. With `each`, the option is set for each IP
    /// version that the socket uses.
    pub(super) fn put(&mut self, option: SocketOption, each: Option<OfEach>, value: u32) {
        self.options.retain(|(earlier, ..)| *earlier != option);
        self.options.push((option, each, value));
    }

    /// Returns true if an option has been set to a value other than 0.
    pub(super) fn is_on(&self, option: SocketOption) -> bool {
        self.options.iter().any(|&(other, _, value)| other == option && value != 0)
    }

    pub(super) fn bind_device(&mut self, name: String) {
        self.device = Some(name);
    }

    pub(super) fn keep_alive(&mut self, keepalive: KeepAlive) {
        self.keepalive = Some(keepalive);
    }

    /// Sets the options on a new socket.
    ///
    /// # Errors
    /// `InvalidInput` for values that the system does not support; or the system's error.
    pub(super) fn apply(&self, socket: &NewFd) -> io::Result<()> {
        for &(option, each, value) in &self.options {
            each.map_or_else(|| socket.set(option, value), |each| socket.set_ip(each, value))?;
        }
        if self.keepalive.is_some() {
            socket.set_keepalive(self.keepalive)?;
        }
        if self.device.is_some() {
            socket.bind_device(self.device.as_deref())?;
        }
        Ok(())
    }
}
