//! Socket options: those that the kernel crate's table lists for simulated sockets. Most are stored
//! without an effect.

use super::link::Link;
use annulus_kernel::{Domain, Ip, OptionRow, SocketOption};
use rustix::io::Errno;

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) receive_buffer: usize,
    pub(crate) send_buffer: usize,
    /// All other options that were set.
    others: Vec<(SocketOption, u32)>,
}

impl Options {
    pub(crate) fn new(link: &Link) -> Self {
        Self {
            receive_buffer: link.receive_buffer as usize,
            send_buffer: link.send_buffer as usize,
            others: Vec::new(),
        }
    }

    /// Returns true if closing the socket resets its connection.
    pub(crate) fn is_abortive(&self) -> bool {
        self.value(SocketOption::Linger) == 0
    }

    pub(crate) fn is_on(&self, option: SocketOption) -> bool {
        self.value(option) != 0
    }

    /// Returns the value of an option other than a buffer size.
    pub(crate) fn value(&self, option: SocketOption) -> u32 {
        let set = self.others.iter().find(|(other, _)| *other == option);
        set.map_or_else(|| option.row().initial.unwrap_or_default(), |(_, value)| *value)
    }

    pub(crate) fn set(
        &mut self,
        domain: Domain,
        option: SocketOption,
        value: u32,
    ) -> Result<(), Errno> {
        if !row(domain, option)?.range.contains(&value) {
            return Err(Errno::INVAL);
        }
        match option {
            // Like on Linux, the value is doubled for overhead, and has a minimum.
            SocketOption::RecvBuffer => self.receive_buffer = (2 * value as usize).max(2304),
            SocketOption::SendBuffer => self.send_buffer = (2 * value as usize).max(4608),
            _ => {
                self.others.retain(|(other, _)| *other != option);
                self.others.push((option, value));
            }
        }
        Ok(())
    }

    /// Returns the value of an option that the table lists for simulated sockets.
    pub(crate) fn query(&self, domain: Domain, option: SocketOption) -> Result<u32, Errno> {
        row(domain, option)?;
        Ok(match option {
            SocketOption::RecvBuffer => self.receive_buffer as u32,
            SocketOption::SendBuffer => self.send_buffer as u32,
            _ => self.value(option),
        })
    }
}

/// Returns the table's row of an option, if sockets of this family have it.
fn row(domain: Domain, option: SocketOption) -> Result<OptionRow, Errno> {
    let row = option.row();
    row.protocol().map_or(Ok(()), |ip| check_protocol(domain, ip))?;
    if row.initial.is_some() { Ok(row) } else { Err(Errno::OPNOTSUPP) }
}

/// Returns an error unless sockets of this family have the options of `ip`. IPv6 sockets also have
/// the IPv4 options.
pub(super) fn check_protocol(domain: Domain, ip: Ip) -> Result<(), Errno> {
    match (domain, ip) {
        (Domain::Inet6, _) | (Domain::Inet, Ip::V4) => Ok(()),
        (Domain::Inet, Ip::V6) => Err(Errno::NOPROTOOPT),
        (Domain::Unix, _) => Err(Errno::OPNOTSUPP),
    }
}
