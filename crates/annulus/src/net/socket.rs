//! Options shared by the handles of all sockets.

use super::datagram_handle::DatagramHandle;
use super::keep_alive::KeepAlive;
use super::listener_handle::ListenerHandle;
use super::new_fd::NewFd;
use super::stream_handle::StreamHandle;
use annulus_kernel::{DeviceName, Fd, Ip, Kernel, Multicast, SocketOption};
use std::io;
use std::time::Duration;

/// A socket that no slot owns yet, or a handle to a socket's slot.
pub(super) trait Socket {
    /// Calls the kernel with the socket's descriptor.
    ///
    /// # Errors
    /// If the runtime has ended; or the errors of `f`.
    fn call<R>(&self, f: impl FnOnce(&dyn Kernel, Fd) -> io::Result<R>) -> io::Result<R>;

    fn set(&self, option: SocketOption, value: u32) -> io::Result<()> {
        self.call(|kernel, fd| kernel.set_option(fd, option, value))
    }

    fn query(&self, option: SocketOption) -> io::Result<u32> {
        self.call(|kernel, fd| kernel.option(fd, option))
    }

    /// Sets the option for each IP version that the socket uses: an IPv6 socket may also have IPv4
    /// peers.
    fn set_ip(&self, option: fn(Ip) -> SocketOption, value: u32) -> io::Result<()> {
        self.call(|kernel, fd| {
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
        self.call(|kernel, fd| kernel.set_multicast(fd, change))
    }

    /// Returns and clears the pending error.
    fn take_error(&self) -> io::Result<Option<io::Error>> {
        let errno = self.query(SocketOption::Error)?;
        Ok((errno != 0).then(|| io::Error::from_raw_os_error(errno as i32)))
    }

    fn bind_device(&self, name: Option<&str>) -> io::Result<()> {
        let name = name.map_or(Ok(DeviceName::NONE), DeviceName::new)?;
        self.call(|kernel, fd| kernel.set_device(fd, name))
    }

    fn device(&self) -> io::Result<Option<String>> {
        let name = self.call(|kernel, fd| kernel.device(fd))?;
        Ok(name.map(|name| name.to_string()))
    }

    fn set_keepalive(&self, keepalive: Option<KeepAlive>) -> io::Result<()> {
        let Some(keepalive) = keepalive else { return self.set(SocketOption::KeepAlive, 0) };
        keepalive.options()?.into_iter().try_for_each(|(option, value)| self.set(option, value))
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

sockets!(StreamHandle, ListenerHandle, DatagramHandle, NewFd);

/// Returns the IP version that a socket was created for.
fn protocol(kernel: &dyn Kernel, fd: Fd) -> io::Result<Ip> {
    let domain = kernel.option(fd, SocketOption::Domain)?;
    let is_v6 = domain == u32::from(rustix::net::AddressFamily::INET6.as_raw());
    Ok(if is_v6 { Ip::V6 } else { Ip::V4 })
}
