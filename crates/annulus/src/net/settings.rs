//! Options that are set on a socket when it is created.

use super::keep_alive::KeepAlive;
use super::new_fd::NewFd;
use super::socket::Socket;
use annulus_kernel::{Ip, SocketOption};
use std::io;

/// Options that are set on a socket when it is created, in the order in which they were requested.
#[derive(Clone, Debug, Default)]
pub(super) struct SocketSettings {
    options: Vec<(SocketOption, Option<OfEach>, u32)>,
    device: Option<String>,
    keepalive: Option<KeepAlive>,
}

/// Maps each IP version of a socket to its option.
type OfEach = fn(Ip) -> SocketOption;

impl SocketSettings {
    /// Returns settings with these options on.
    pub(super) fn on(options: &[SocketOption]) -> Self {
        let on = options.iter().map(|&option| (option, None, 1));
        Self { options: on.collect(), ..Self::default() }
    }

    /// Sets an option, or the corresponding option of each IP version. Replaces an earlier value.
    pub(super) fn put(&mut self, option: SocketOption, each: Option<OfEach>, value: u32) {
        self.options.retain(|(earlier, ..)| *earlier != option);
        self.options.push((option, each, value));
    }

    pub(super) fn bind_device(&mut self, name: String) {
        self.device = Some(name);
    }

    pub(super) fn keep_alive(&mut self, keepalive: KeepAlive) {
        self.keepalive = Some(keepalive);
    }

    /// # Errors
    /// `InvalidInput` for values that the system does not support; or if it refuses an option.
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
