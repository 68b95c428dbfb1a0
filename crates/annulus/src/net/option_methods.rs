//! The options of sockets. A row here makes a method of the options that make a socket, and setter and getter of the socket; what is set is a
//! row of the table in `annulus_kernel`'s `option.rs`, which says what simulated sockets have, too.
//!
//! `options!(setters: tcp ip)` makes methods of options with a field `socket` of [`SocketSettings`](super::settings::SocketSettings),
//! `options!(methods: tcp ip)` setters and getters of a socket with a field `handle` that is a [`Socket`](super::socket::Socket), and
//! `options!(getters: bind)` getters alone. A row has the documentation of an option, the names of getter and setter, its type, and
//! the option of the kernel, with what makes its number of a value, and the reverse.

use std::time::Duration;

/// The options by group.
macro_rules! options {
    ($how:ident: $($group:ident)+) => { $(options!(@$group $how);)+ };
    // Sizes of the kernel's buffers, which all sockets have.
    (@buffer $how:ident) => {
        option_rows! { plain $how
            /// Bytes that the kernel may hold for the socket until they are received (`SO_RCVBUF`), as it counts them. Linux limits
            /// it to `net.core.rmem_max`, and doubles it for its overhead. TCP sizes its buffer by itself unless this is set.
            recv_buffer / set_recv_buffer: usize = SocketOption::RecvBuffer, of_size, size;
            /// Bytes that the kernel may hold until they have left, or a peer on this machine has received them (`SO_SNDBUF`), as it
            /// counts them. Linux limits it to `net.core.wmem_max`, and doubles it for its overhead.
            send_buffer / set_send_buffer: usize = SocketOption::SendBuffer, of_size, size;
        }
    };
    // Options of TCP.
    (@tcp $how:ident) => {
        option_rows! { plain $how
            /// Whether small sends leave at once (`TCP_NODELAY`). On by default: otherwise an answer in several small sends waits
            /// for the peer's delayed acknowledgement, 40 ms.
            nodelay / set_nodelay: bool = SocketOption::NoDelay, u32::from, is_on;
            /// How long sent bytes may stay unacknowledged before the connection fails with `TimedOut` (`TCP_USER_TIMEOUT`), to
            /// the millisecond: at least one, and at most 24 days, which stand for longer times. `None`, the default, leaves it to
            /// the system, which takes some 15 minutes.
            user_timeout / set_user_timeout: Option<Duration> = SocketOption::UserTimeout, of_time, time;
        }
    };
    // An option of TCP that only a connection has.
    (@quickack $how:ident) => {
        option_rows! { plain $how
            /// Whether what is received is acknowledged at once (`TCP_QUICKACK`). The kernel decides again for itself after some
            /// time: set it after each receive that is to be acknowledged.
            quickack / set_quickack: bool = SocketOption::QuickAck, u32::from, is_on;
        }
    };
    // Options of IPv4 and IPv6, set for each protocol that the socket has.
    (@ip $how:ident) => {
        option_rows! { ip $how
            /// The most hops of what is sent (`IP_TTL`, `IPV6_UNICAST_HOPS`). 64 by default.
            ttl / set_ttl: u8 = SocketOption::Ttl, u32::from, byte;
            /// Service class and congestion notification of what is sent (`IP_TOS`, `IPV6_TCLASS`), eight bits. On TCP the kernel
            /// sets the two bits of the notification.
            tos / set_tos: u8 = SocketOption::Tos, u32::from, byte;
        }
    };
    // Options of a socket that is bound to an address.
    (@bind $how:ident) => {
        option_rows! { plain $how
            /// Whether several sockets may bind the same address, as multicast receivers do, and a restarted server may bind while
            /// old connections are in TIME_WAIT (`SO_REUSEADDR`). On by default for TCP listeners, else off.
            reuse_address / set_reuse_address: bool = SocketOption::ReuseAddress, u32::from, is_on;
            /// Whether an IPv6 socket is for IPv6 only (`IPV6_V6ONLY`). The system's setting by default: usually IPv4 peers are
            /// allowed, with addresses such as `::ffff:192.0.2.1`. An error for an IPv4 address.
            only_v6 / set_only_v6: bool = SocketOption::V6Only, u32::from, is_on;
        }
    };
    // An option of sockets that share a port.
    (@share $how:ident) => {
        option_rows! { plain $how
            /// Whether several sockets may share the port: the kernel distributes connections or peers over them (`SO_REUSEPORT`).
            /// Off by default.
            reuse_port / set_reuse_port: bool = SocketOption::ReusePort, u32::from, is_on;
        }
    };
    // Options of datagrams to many.
    (@broadcast $how:ident) => {
        option_rows! { plain $how
            /// Whether sends to broadcast addresses are allowed (`SO_BROADCAST`). Off by default.
            broadcast / set_broadcast: bool = SocketOption::Broadcast, u32::from, is_on;
        }
    };
    // The same, of a protocol.
    (@multicast $how:ident) => {
        option_rows! { ip $how
            /// Whether members of a group on this host receive what this socket sends to it. On by default.
            multicast_loop / set_multicast_loop: bool = SocketOption::MulticastLoop, u32::from, is_on;
            /// The most hops of a multicast datagram. One by default: it stays in the local network.
            multicast_ttl / set_multicast_ttl: u8 = SocketOption::MulticastTtl, u32::from, byte;
        }
    };
    // A network interface, of options that make a socket.
    (@device setters) => {
        /// The socket sends and receives by this network interface only, such as `eth0` (`SO_BINDTODEVICE`). Needs the capability
        /// `CAP_NET_RAW` before Linux 5.7, and to change it. A name that no interface can have, or has, is an error when the
        /// socket is made.
        pub fn bind_device(mut self, name: &str) -> Self {
            self.socket.bind_device(name.into());
            self
        }
    };
    // The same, of a socket.
    (@device methods) => {
        /// Binds the socket to a network interface, such as `eth0`, or to none (`SO_BINDTODEVICE`): it sends and receives by this one only.
        ///
        /// # Errors
        /// `InvalidInput` for a name that no interface can have; an error of the system for one that none has, or without the
        /// capability `CAP_NET_RAW` (to bind an unbound socket Linux 5.7 needs none). `Unsupported` under a simulated kernel.
        pub fn bind_device(&self, name: Option<&str>) -> io::Result<()> {
            self.handle.bind_device(name)
        }

        /// The network interface that the socket is bound to.
        ///
        /// # Errors
        /// After the runtime's end; `Unsupported` under a simulated kernel.
        pub fn device(&self) -> io::Result<Option<String>> {
            self.handle.device()
        }
    };
    // Probes of idle TCP connections.
    (@keepalive setters) => {
        /// Probes idle connections, as it says (`SO_KEEPALIVE`). Off by default. Values that Linux does not have are an error when
        /// the socket is made.
        pub fn keepalive(mut self, keepalive: KeepAlive) -> Self {
            self.socket.keep_alive(keepalive);
            self
        }
    };
    // Methods of every socket.
    (@error methods) => {
        /// The error that the kernel keeps for the socket, which is cleared (`SO_ERROR`); `None` if there is none. Errors that receives
        /// and sends return do not show here again.
        ///
        /// # Errors
        /// After the runtime's end.
        pub fn take_error(&self) -> io::Result<Option<io::Error>> {
            self.handle.take_error()
        }
    };
}

/// Makes methods of rows.
macro_rules! option_rows {
    // Setters of options that make a socket.
    (plain setters $($(#[doc = $doc:literal])+ $name:ident / $set:ident: $type:ty = $option:expr, $to:expr, $of:expr;)+) => {$(
        $(#[doc = $doc])+
        pub fn $name(mut self, value: $type) -> Self {
            self.socket.put($option, None, $to(value));
            self
        }
    )+};
    // The same for options of a protocol.
    (ip setters $($(#[doc = $doc:literal])+ $name:ident / $set:ident: $type:ty = $option:expr, $to:expr, $of:expr;)+) => {$(
        $(#[doc = $doc])+
        pub fn $name(mut self, value: $type) -> Self {
            self.socket.put($option(annulus_kernel::Ip::V4), Some($option), $to(value));
            self
        }
    )+};
    // Setters and getters of a socket.
    (plain methods $($(#[doc = $doc:literal])+ $name:ident / $set:ident: $type:ty = $option:expr, $to:expr, $of:expr;)+) => {$(
        $(#[doc = $doc])+
        ///
        /// # Errors
        /// If the system refuses it; or after the runtime's end.
        pub fn $set(&self, value: $type) -> io::Result<()> {
            self.handle.set($option, $to(value))
        }

        #[doc = concat!("What the system has for [`", stringify!($set), "`](Self::", stringify!($set), ").")]
        ///
        /// # Errors
        /// After the runtime's end.
        pub fn $name(&self) -> io::Result<$type> {
            self.handle.query($option).map($of)
        }
    )+};
    // The same for options of a protocol.
    (ip methods $($(#[doc = $doc:literal])+ $name:ident / $set:ident: $type:ty = $option:expr, $to:expr, $of:expr;)+) => {$(
        $(#[doc = $doc])+
        ///
        /// # Errors
        /// If the system refuses it; or after the runtime's end.
        pub fn $set(&self, value: $type) -> io::Result<()> {
            self.handle.set_ip($option, $to(value))
        }

        #[doc = concat!("What the system has for [`", stringify!($set), "`](Self::", stringify!($set), ").")]
        ///
        /// # Errors
        /// After the runtime's end.
        pub fn $name(&self) -> io::Result<$type> {
            self.handle.query_ip($option).map($of)
        }
    )+};
    // Getters of a socket, of options that can be set only when it is made.
    (plain getters $($(#[doc = $doc:literal])+ $name:ident / $set:ident: $type:ty = $option:expr, $to:expr, $of:expr;)+) => {$(
        $(#[doc = $doc])+
        ///
        /// # Errors
        /// If the socket has no such option; or after the runtime's end.
        pub fn $name(&self) -> io::Result<$type> {
            self.handle.query($option).map($of)
        }
    )+};
}

pub(super) use {option_rows, options};

pub(super) fn is_on(value: u32) -> bool {
    value != 0
}

pub(super) fn byte(value: u32) -> u8 {
    value as u8
}

pub(super) fn size(value: u32) -> usize {
    value as usize
}

pub(super) fn of_size(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// A time from milliseconds; zero is the system's rule.
pub(super) fn time(value: u32) -> Option<Duration> {
    (value != 0).then(|| Duration::from_millis(value.into()))
}

/// A time in milliseconds, rounded up. Linux takes no more than an `int` of them, and takes zero for its own rule.
pub(super) fn of_time(time: Option<Duration>) -> u32 {
    const MOST: u32 = i32::MAX as u32;
    let Some(time) = time else { return 0 };
    let milliseconds = time.as_nanos().div_ceil(1_000_000).max(1);
    u32::try_from(milliseconds).unwrap_or(MOST).min(MOST)
}
