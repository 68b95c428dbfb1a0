//! The options of sockets.

use super::link::Link;
use annulus_kernel::{Domain, Ip, SocketOption, SocketQuery};
use rustix::io::Errno;
use std::time::Duration;

/// The options of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) reuse_address: bool,
    pub(crate) reuse_port: bool,
    pub(crate) v6_only: bool,
    /// A close is a reset.
    pub(crate) abortive: bool,
    pub(crate) receive_buffer: usize,
    pub(crate) send_buffer: usize,
    pub(crate) broadcast: bool,
    /// Sends are split into datagrams of this size; zero is off.
    pub(crate) segment: u16,
    pub(crate) coalesce: bool,
    pub(crate) timestamps: bool,
    pub(crate) drop_count: bool,
    pub(crate) pass_credentials: bool,
    ip: [IpOptions; 2],
}

/// Options that each internet protocol has separately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IpOptions {
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) multicast_ttl: u8,
    pub(crate) report_tos: bool,
    pub(crate) report_local: bool,
    /// Errors are reported to unconnected sockets too.
    pub(crate) report_errors: bool,
}

impl Options {
    pub(crate) fn new(link: &Link) -> Self {
        Self {
            reuse_address: false,
            reuse_port: false,
            v6_only: false,
            abortive: false,
            receive_buffer: link.receive_buffer as usize,
            send_buffer: link.send_buffer as usize,
            broadcast: false,
            segment: 0,
            coalesce: false,
            timestamps: false,
            drop_count: false,
            pass_credentials: false,
            ip: [IpOptions::new(); 2],
        }
    }

    pub(crate) fn ip(&self, ip: Ip) -> &IpOptions {
        &self.ip[index(ip)]
    }

    /// Sets an option. Memberships are stored elsewhere.
    pub(crate) fn set(&mut self, domain: Domain, option: SocketOption) -> Result<(), Errno> {
        match option {
            SocketOption::ReuseAddress(on) => self.reuse_address = on,
            SocketOption::ReusePort(on) => self.reuse_port = on,
            // A bind takes a free port, which a connect may use too.
            SocketOption::NoDelay(_)
            | SocketOption::BindAddressNoPort(_)
            | SocketOption::IncomingCpu(_) => {}
            SocketOption::Linger(time) => self.abortive = time == Some(Duration::ZERO),
            SocketOption::V6Only(on) => {
                known(domain, Ip::V6)?;
                self.v6_only = on;
            }
            // As on Linux: doubled, for overhead, and not less than a minimum.
            SocketOption::RecvBuffer(bytes) => self.receive_buffer = (2 * bytes).max(2304),
            SocketOption::SendBuffer(bytes) => self.send_buffer = (2 * bytes).max(4608),
            SocketOption::Broadcast(on) => self.broadcast = on,
            SocketOption::Timestamps(on) => self.timestamps = on,
            SocketOption::DropCount(on) => self.drop_count = on,
            SocketOption::SegmentSize(size) => self.segment = size,
            SocketOption::Coalesce(on) => self.coalesce = on,
            SocketOption::PassCredentials(on) => self.pass_credentials = on,
            _ => return self.set_ip(domain, option),
        }
        Ok(())
    }

    /// Options of one protocol.
    fn set_ip(&mut self, domain: Domain, option: SocketOption) -> Result<(), Errno> {
        match option {
            SocketOption::MulticastTtl(ip, ttl) => self.of(domain, ip)?.multicast_ttl = ttl,
            SocketOption::Ttl(ip, ttl) => self.of(domain, ip)?.ttl = ttl,
            SocketOption::Tos(ip, tos) => self.of(domain, ip)?.tos = tos,
            SocketOption::RecvTos(ip, on) => self.of(domain, ip)?.report_tos = on,
            SocketOption::PacketInfo(ip, on) => self.of(domain, ip)?.report_local = on,
            SocketOption::RecvErrors(ip, on) => self.of(domain, ip)?.report_errors = on,
            // There is one interface, and its MTU is not limited.
            SocketOption::MulticastInterfaceV4(_) => known(domain, Ip::V4)?,
            SocketOption::MulticastInterfaceV6(_) => known(domain, Ip::V6)?,
            // The interface is the loopback: it receives what it sends.
            SocketOption::MulticastLoop(ip, _) => known(domain, ip)?,
            SocketOption::DontFragment(ip, _) => known(domain, ip)?,
            _ => return Err(Errno::NOPROTOOPT),
        }
        Ok(())
    }

    /// The value of an option. Errors and drops are stored elsewhere.
    pub(crate) fn query(&self, domain: Domain, query: SocketQuery) -> Result<u32, Errno> {
        Ok(match query {
            SocketQuery::RecvBuffer => self.receive_buffer as u32,
            SocketQuery::SendBuffer => self.send_buffer as u32,
            SocketQuery::Broadcast => self.broadcast.into(),
            SocketQuery::Ttl(ip) => known(domain, ip).map(|()| self.ip(ip).ttl.into())?,
            SocketQuery::Tos(ip) => known(domain, ip).map(|()| self.ip(ip).tos.into())?,
            SocketQuery::Error | SocketQuery::Drops => 0,
        })
    }

    /// The options of a protocol, if the family of the socket has it.
    fn of(&mut self, domain: Domain, ip: Ip) -> Result<&mut IpOptions, Errno> {
        known(domain, ip)?;
        Ok(&mut self.ip[index(ip)])
    }
}

impl IpOptions {
    const fn new() -> Self {
        Self {
            tos: 0,
            ttl: 64,
            multicast_ttl: 1,
            report_tos: false,
            report_local: false,
            report_errors: false,
        }
    }
}

/// IPv6 sockets have IPv4, but not the reverse.
fn known(domain: Domain, ip: Ip) -> Result<(), Errno> {
    match (domain, ip) {
        (Domain::Inet6, _) | (Domain::Inet, Ip::V4) => Ok(()),
        (Domain::Inet, Ip::V6) => Err(Errno::NOPROTOOPT),
        (Domain::Unix, _) => Err(Errno::OPNOTSUPP),
    }
}

fn index(ip: Ip) -> usize {
    match ip {
        Ip::V4 => 0,
        Ip::V6 => 1,
    }
}
