//! The options of sockets.

use super::link::Link;
use annulus_kernel::{Domain, Ip, SocketOption, SocketQuery};
use rustix::io::Errno;
use rustix::net::AddressFamily;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The options of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) reuse_address: bool,
    pub(crate) reuse_port: bool,
    pub(crate) v6_only: bool,
    /// Seconds, or `SocketQuery::NO_LINGER`.
    linger: u32,
    tcp: TcpOptions,
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

/// Options of TCP, which this network stores only: it loses no connection, and acknowledges at once.
#[derive(Clone, Copy, Debug)]
struct TcpOptions {
    no_delay: bool,
    quick_ack: bool,
    keep_alive: bool,
    /// Milliseconds.
    user_timeout: u32,
    /// Seconds.
    keep_alive_time: u32,
    /// Seconds.
    keep_alive_interval: u32,
    keep_alive_retries: u32,
}

/// The ranges that Linux allows, in seconds, and as a count.
const KEEP_ALIVE_SECONDS: RangeInclusive<u32> = 1..=32_767;
const KEEP_ALIVE_RETRIES: RangeInclusive<u32> = 1..=127;

/// Options that each internet protocol has separately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IpOptions {
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) multicast_ttl: u8,
    multicast_loop: bool,
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
            linger: SocketQuery::NO_LINGER,
            tcp: TcpOptions::new(),
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

    /// A close is a reset.
    pub(crate) fn is_abortive(&self) -> bool {
        self.linger == 0
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
            SocketOption::BindAddressNoPort(_) | SocketOption::IncomingCpu(_) => {}
            SocketOption::Linger(time) => {
                let seconds = |time: Duration| time.as_secs_f64().ceil() as u32;
                self.linger = time.map_or(SocketQuery::NO_LINGER, seconds);
            }
            // There is one interface, which has no name.
            SocketOption::Device(_) => return Err(Errno::OPNOTSUPP),
            SocketOption::V6Only(on) => {
                known(domain, Ip::V6)?;
                self.v6_only = on;
            }
            // As on Linux: doubled, for overhead, and not less than a minimum.
            SocketOption::RecvBuffer(bytes) => self.receive_buffer = (2 * bytes).max(2304),
            SocketOption::SendBuffer(bytes) => self.send_buffer = (2 * bytes).max(4608),
            SocketOption::KeepAlive(on) => self.tcp.keep_alive = on,
            SocketOption::Broadcast(on) => self.broadcast = on,
            SocketOption::Timestamps(on) => self.timestamps = on,
            SocketOption::DropCount(on) => self.drop_count = on,
            SocketOption::SegmentSize(size) => self.segment = size,
            SocketOption::Coalesce(on) => self.coalesce = on,
            SocketOption::PassCredentials(on) => self.pass_credentials = on,
            SocketOption::NoDelay(on) => self.tcp(domain)?.no_delay = on,
            SocketOption::QuickAck(on) => self.tcp(domain)?.quick_ack = on,
            SocketOption::UserTimeout(milliseconds) => {
                self.tcp(domain)?.user_timeout = milliseconds;
            }
            SocketOption::KeepAliveTime(seconds) => {
                self.tcp(domain)?.keep_alive_time = within(seconds, KEEP_ALIVE_SECONDS)?;
            }
            SocketOption::KeepAliveInterval(seconds) => {
                self.tcp(domain)?.keep_alive_interval = within(seconds, KEEP_ALIVE_SECONDS)?;
            }
            SocketOption::KeepAliveRetries(count) => {
                self.tcp(domain)?.keep_alive_retries = within(count, KEEP_ALIVE_RETRIES)?;
            }
            SocketOption::MulticastTtl(ip, ttl) => self.of(domain, ip)?.multicast_ttl = ttl,
            SocketOption::Ttl(ip, ttl) => self.of(domain, ip)?.ttl = ttl,
            SocketOption::Tos(ip, tos) => self.of(domain, ip)?.tos = tos,
            SocketOption::RecvTos(ip, on) => self.of(domain, ip)?.report_tos = on,
            SocketOption::PacketInfo(ip, on) => self.of(domain, ip)?.report_local = on,
            SocketOption::RecvErrors(ip, on) => self.of(domain, ip)?.report_errors = on,
            // There is one interface, and its MTU is not limited.
            SocketOption::MulticastInterfaceV4(_) => known(domain, Ip::V4)?,
            SocketOption::MulticastInterfaceV6(_) => known(domain, Ip::V6)?,
            // It is stored only: the interface is the loopback, which receives what it sends.
            SocketOption::MulticastLoop(ip, on) => self.of(domain, ip)?.multicast_loop = on,
            SocketOption::DontFragment(ip, _) => known(domain, ip)?,
            // Only pages of files are held back for, which no simulation sends; memberships are stored by the network.
            SocketOption::Cork(_)
            | SocketOption::JoinV4 { .. }
            | SocketOption::LeaveV4 { .. }
            | SocketOption::JoinV6 { .. }
            | SocketOption::LeaveV6 { .. } => return Err(Errno::NOPROTOOPT),
        }
        Ok(())
    }

    /// The value of an option. Errors and drops are stored elsewhere.
    pub(crate) fn query(&self, domain: Domain, query: SocketQuery) -> Result<u32, Errno> {
        Ok(match query {
            SocketQuery::RecvBuffer => self.receive_buffer as u32,
            SocketQuery::SendBuffer => self.send_buffer as u32,
            SocketQuery::Broadcast => self.broadcast.into(),
            SocketQuery::ReuseAddress => self.reuse_address.into(),
            SocketQuery::ReusePort => self.reuse_port.into(),
            SocketQuery::V6Only => known(domain, Ip::V6).map(|()| self.v6_only.into())?,
            SocketQuery::KeepAlive => self.tcp.keep_alive.into(),
            SocketQuery::Linger => self.linger,
            SocketQuery::Ttl(ip) => self.known_ip(domain, ip)?.ttl.into(),
            SocketQuery::Tos(ip) => self.known_ip(domain, ip)?.tos.into(),
            SocketQuery::MulticastTtl(ip) => self.known_ip(domain, ip)?.multicast_ttl.into(),
            SocketQuery::MulticastLoop(ip) => self.known_ip(domain, ip)?.multicast_loop.into(),
            SocketQuery::Domain => family(domain),
            SocketQuery::NoDelay => self.known_tcp(domain)?.no_delay.into(),
            SocketQuery::QuickAck => self.known_tcp(domain)?.quick_ack.into(),
            SocketQuery::UserTimeout => self.known_tcp(domain)?.user_timeout,
            SocketQuery::KeepAliveTime => self.known_tcp(domain)?.keep_alive_time,
            SocketQuery::KeepAliveInterval => self.known_tcp(domain)?.keep_alive_interval,
            SocketQuery::KeepAliveRetries => self.known_tcp(domain)?.keep_alive_retries,
            SocketQuery::Error | SocketQuery::Drops | SocketQuery::Protocol => 0,
            // They distinguish sockets of other code, which no simulation has.
            SocketQuery::Type | SocketQuery::Listens => return Err(Errno::OPNOTSUPP),
        })
    }

    fn known_ip(&self, domain: Domain, ip: Ip) -> Result<&IpOptions, Errno> {
        known(domain, ip).map(|()| self.ip(ip))
    }

    fn known_tcp(&self, domain: Domain) -> Result<&TcpOptions, Errno> {
        known(domain, Ip::V4).map(|()| &self.tcp)
    }

    /// The options of TCP, which every socket of the internet has here.
    fn tcp(&mut self, domain: Domain) -> Result<&mut TcpOptions, Errno> {
        known(domain, Ip::V4).map(|()| &mut self.tcp)
    }

    /// The options of a protocol, if the family of the socket has it.
    fn of(&mut self, domain: Domain, ip: Ip) -> Result<&mut IpOptions, Errno> {
        known(domain, ip)?;
        Ok(&mut self.ip[index(ip)])
    }
}

impl TcpOptions {
    /// The values that Linux begins with.
    const fn new() -> Self {
        Self {
            no_delay: false,
            quick_ack: true,
            keep_alive: false,
            user_timeout: 0,
            keep_alive_time: 7200,
            keep_alive_interval: 75,
            keep_alive_retries: 9,
        }
    }
}

impl IpOptions {
    const fn new() -> Self {
        Self {
            tos: 0,
            ttl: 64,
            multicast_ttl: 1,
            multicast_loop: true,
            report_tos: false,
            report_local: false,
            report_errors: false,
        }
    }
}

fn within(value: u32, allowed: RangeInclusive<u32>) -> Result<u32, Errno> {
    if allowed.contains(&value) { Ok(value) } else { Err(Errno::INVAL) }
}

/// The number that Linux has for a family.
fn family(domain: Domain) -> u32 {
    let family = match domain {
        Domain::Inet => AddressFamily::INET,
        Domain::Inet6 => AddressFamily::INET6,
        Domain::Unix => AddressFamily::UNIX,
    };
    family.as_raw().into()
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
