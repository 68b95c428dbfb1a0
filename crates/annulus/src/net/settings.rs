//! Options that are set on a socket when it is made.

use super::keep_alive::KeepAlive;
use super::new_fd::NewFd;
use super::socket::{Socket, set_ip};
use annulus_kernel::{DeviceName, SocketOption};
use std::io;
use std::mem::discriminant;

/// Options that are set on a socket when it is made, in the order in which they were asked for. Options of one protocol stand here as those
/// of IPv4, and are set for each protocol of the socket.
#[derive(Clone, Debug, Default)]
pub(super) struct SocketSettings {
    options: Vec<SocketOption>,
    device: Option<String>,
    keepalive: Option<KeepAlive>,
}

impl SocketSettings {
    pub(super) fn of(options: &[SocketOption]) -> Self {
        Self { options: options.to_vec(), ..Self::default() }
    }

    /// Sets an option; an earlier value is forgotten.
    pub(super) fn put(&mut self, option: SocketOption) {
        self.options.retain(|earlier| discriminant(earlier) != discriminant(&option));
        self.options.push(option);
    }

    pub(super) fn bind_device(&mut self, name: String) {
        self.device = Some(name);
    }

    pub(super) fn keep_alive(&mut self, keepalive: KeepAlive) {
        self.keepalive = Some(keepalive);
    }

    /// # Errors
    /// `InvalidInput` for values that the system does not have; or if it refuses an option.
    pub(super) fn apply(&self, socket: &NewFd) -> io::Result<()> {
        for option in &self.options {
            match *option {
                SocketOption::Ttl(_, hops) => {
                    socket
                        .call(|kernel, fd| set_ip(kernel, fd, |ip| SocketOption::Ttl(ip, hops)))?;
                }
                SocketOption::Tos(_, tos) => {
                    socket
                        .call(|kernel, fd| set_ip(kernel, fd, |ip| SocketOption::Tos(ip, tos)))?;
                }
                option => socket.set(option)?,
            }
        }
        if let Some(keepalive) = self.keepalive {
            keepalive.options()?.into_iter().try_for_each(|option| socket.set(option))?;
        }
        let Some(device) = &self.device else { return Ok(()) };
        socket.set(SocketOption::Device(DeviceName::new(device)?))
    }
}
