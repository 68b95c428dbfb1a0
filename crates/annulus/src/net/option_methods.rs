//! Methods for socket options. A row of the table below describes one option. From it, macros
//! define a setter for types such as `ListenOptions`, and a setter and a getter for types such as
//! `TcpListener`. The numbers of the kernel's options are in `option.rs` of `annulus_kernel`.
//!
//! `options!(setters: tcp ip)` defines the setters of two groups of options. The type must have a
//! field `socket` of type [`SocketSettings`](super::socket::SocketSettings).
//! `options!(methods: tcp ip)` defines setters and getters, and `options!(getters: bind)` only
//! getters. The type must have a field `handle` that is a [`Socket`](super::socket::Socket). A row
//! has the option's documentation (what follows “Sets” or “Returns”), the names of getter and
//! setter, the type, the kernel's option, and the functions that convert a value to the kernel's
//! number and back.

use std::time::Duration;

/// The table of options, by group.
macro_rules! options {
    ($how:ident: $($group:ident)+) => { $(options!(@$group $how);)+ };
    // Sizes of the kernel's buffers, for all sockets.
    (@buffer $how:ident) => {
        option_rows! { plain $how
            /// the number of bytes that the kernel may hold for the socket until they are received
            /// (`SO_RCVBUF`), as the kernel counts them. Linux limits the value to
            /// `net.core.rmem_max`, and doubles it for its own overhead. If this is not set, TCP
            /// sizes the buffer automatically.
            recv_buffer_size / set_recv_buffer_size: usize = SocketOption::RecvBuffer, of_size, size;
            /// the number of bytes that the kernel may hold until they have left, or until a peer on
            /// this machine has received them (`SO_SNDBUF`), as the kernel counts them. Linux
            /// limits the value to `net.core.wmem_max`, and doubles it for its own overhead.
            send_buffer_size / set_send_buffer_size: usize = SocketOption::SendBuffer, of_size, size;
        }
    };
    // TCP options.
    (@tcp $how:ident) => {
        option_rows! { plain $how
            /// whether small sends leave at once (`TCP_NODELAY`). On by default, because otherwise
            /// the second of two small sends may wait 40 ms for the peer's delayed acknowledgement.
            nodelay / set_nodelay: bool = SocketOption::NoDelay, u32::from, is_on;
            /// how long sent bytes may stay unacknowledged before the connection fails with
            /// `TimedOut` (`TCP_USER_TIMEOUT`). It is rounded up to whole milliseconds, at least
            /// one, and capped at 24 days. `None`, the default, leaves it to the system, which
            /// waits for about 15 minutes.
            user_timeout / set_user_timeout: Option<Duration> = SocketOption::UserTimeout, of_time, time;
        }
    };
    // An option of TCP connections, but not of listeners.
    (@quickack $how:ident) => {
        option_rows! { plain $how
            /// whether received bytes are acknowledged at once (`TCP_QUICKACK`). The kernel may
            /// turn this off again at any time, so set it after each receive that should be
            /// acknowledged.
            quickack / set_quickack: bool = SocketOption::QuickAck, u32::from, is_on;
        }
    };
    // IPv4 and IPv6 options, set for each IP version that the socket uses.
    (@ip $how:ident) => {
        option_rows! { ip $how
            /// the maximum number of hops of sent packets (`IP_TTL`, `IPV6_UNICAST_HOPS`). 64 by
            /// default.
            ttl / set_ttl: u8 = SocketOption::Ttl, u32::from, byte;
            /// the service class and congestion notification of sent packets (`IP_TOS`,
            /// `IPV6_TCLASS`), eight bits. On TCP the kernel sets the two bits of the congestion
            /// notification.
            tos / set_tos: u8 = SocketOption::Tos, u32::from, byte;
        }
    };
    // Options for a socket that is bound to an address.
    (@bind $how:ident) => {
        option_rows! { plain $how
            /// whether several sockets may bind the same address, as multicast receivers do, and
            /// whether a restarted server may bind while old connections are in TIME_WAIT
            /// (`SO_REUSEADDR`). On by default for TCP listeners, otherwise off.
            reuse_address / set_reuse_address: bool = SocketOption::ReuseAddress, u32::from, is_on;
            /// whether an IPv6 socket is for IPv6 only (`IPV6_V6ONLY`). By default the system's
            /// setting applies, which usually allows IPv4 peers, with addresses such as
            /// `::ffff:192.0.2.1`. Fails for an IPv4 address.
            only_v6 / set_only_v6: bool = SocketOption::V6Only, u32::from, is_on;
        }
    };
    // An option of sockets that share a port.
    (@share $how:ident) => {
        option_rows! { plain $how
            /// whether several sockets may share the port. The kernel distributes connections or
            /// datagrams among them (`SO_REUSEPORT`). Off by default.
            reuse_port / set_reuse_port: bool = SocketOption::ReusePort, u32::from, is_on;
        }
    };
    (@broadcast $how:ident) => {
        option_rows! { plain $how
            /// whether sends to broadcast addresses are allowed (`SO_BROADCAST`). Off by default.
            broadcast / set_broadcast: bool = SocketOption::Broadcast, u32::from, is_on;
        }
    };
    // Multicast, set for each IP version.
    (@multicast $how:ident) => {
        option_rows! { ip $how
            /// whether group members on this host receive datagrams that this socket sends to the
            /// group. On by default.
            multicast_loop / set_multicast_loop: bool = SocketOption::MulticastLoop, u32::from, is_on;
            /// the maximum number of hops of a multicast datagram. 1 by default, so that it stays
            /// in the local network.
            multicast_ttl / set_multicast_ttl: u8 = SocketOption::MulticastTtl, u32::from, byte;
        }
    };
    // The network interface, for options that create a socket.
    (@device setters) => {
        /// Restricts the socket to this network interface, such as `eth0` (`SO_BINDTODEVICE`).
        /// Before Linux 5.7, this needs the capability `CAP_NET_RAW`. If the name is invalid or no
        /// interface has it, creating the socket fails.
        pub fn bind_device(mut self, name: &str) -> Self {
            self.socket.bind_device(name.into());
            self
        }
    };
    // The network interface of a socket.
    (@device methods) => {
        /// Restricts the socket to a network interface, such as `eth0`, or lifts the restriction
        /// (`SO_BINDTODEVICE`).
        ///
        /// # Errors
        /// `InvalidInput` for a name that no interface can have; a system error if no interface has
        /// the name, or without the capability `CAP_NET_RAW` (not needed since Linux 5.7 for a
        /// socket without an interface). `Unsupported` under a simulated kernel.
        pub fn bind_device(&self, name: Option<&str>) -> io::Result<()> {
            self.handle.bind_device(name)
        }

        /// Returns the network interface that the socket is restricted to, if any.
        ///
        /// # Errors
        /// If the runtime has ended; `Unsupported` under a simulated kernel.
        pub fn device(&self) -> io::Result<Option<String>> {
            self.handle.device()
        }
    };
    // Probing of idle TCP connections.
    (@keepalive setters) => {
        /// Probes idle connections with these settings (`SO_KEEPALIVE`). Off by default. If Linux
        /// does not support a value, creating the socket fails.
        pub fn keepalive(mut self, keepalive: KeepAlive) -> Self {
            self.socket.keep_alive(keepalive);
            self
        }
    };
    // The same on a socket.
    (@keepalive methods) => {
        /// Turns probing of the idle connection on or off (`SO_KEEPALIVE`). Off by default.
        ///
        /// # Errors
        /// `InvalidInput` for a value that Linux does not support; or if the runtime has ended.
        pub fn set_keepalive(&self, keepalive: Option<KeepAlive>) -> io::Result<()> {
            self.handle.set_keepalive(keepalive)
        }

        /// Returns the settings for probing the idle connection, or `None` if it is not probed.
        ///
        /// # Errors
        /// If the runtime has ended.
        pub fn keepalive(&self) -> io::Result<Option<KeepAlive>> {
            self.handle.keepalive()
        }
    };
    // What happens on close to bytes that the peer has not received.
    (@linger methods) => {
        /// Sets what happens on close to bytes that the kernel has and the peer has not received
        /// (`SO_LINGER`). With `None`, the default, the kernel continues to send them. With
        /// `Some(Duration::ZERO)`, it discards them and resets the connection, as
        /// [`TcpStream::abort`](crate::net::TcpStream::abort) does at once. For bytes that are
        /// still queued in the runtime, see [`Builder::linger`](crate::Builder::linger).
        ///
        /// # Errors
        /// `InvalidInput` for any other time, because the close would block the thread that long.
        /// To find out whether the peer has received everything, call
        /// [`shutdown`](crate::net::TcpStream::shutdown), then
        /// [`recv`](crate::net::TcpStream::recv) until the end of the stream. If the runtime has
        /// ended.
        pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
            self.handle.set_linger(linger)
        }

        /// Returns the setting for closing the socket: see [`set_linger`](Self::set_linger).
        ///
        /// # Errors
        /// If the runtime has ended.
        pub fn linger(&self) -> io::Result<Option<Duration>> {
            self.handle.linger()
        }
    };
    // The pending error, for every socket.
    (@error methods) => {
        /// Returns the pending error that the kernel keeps for the socket, and clears it
        /// (`SO_ERROR`). Errors that receives and sends have returned do not appear here.
        ///
        /// # Errors
        /// If the runtime has ended.
        pub fn take_error(&self) -> io::Result<Option<io::Error>> {
            self.handle.take_error()
        }
    };
}

/// Defines the methods for some rows of the table.
macro_rules! option_rows {
    // Setters of a type that creates sockets.
    (plain setters $(#[doc = $first:literal] $(#[doc = $doc:literal])* $name:ident / $set:ident: $type:ty = $option:expr, $to:expr, $of:expr;)+) => {$(
        #[doc = concat!(" Sets", $first)]
        $(#[doc = $doc])*
        pub fn $name(mut self, value: $type) -> Self {
            self.socket.put($option, None, $to(value));
            self
        }
    )+};
    // Setters of a type that creates sockets, for options that differ between IPv4 and IPv6.
    (ip setters $(#[doc = $first:literal] $(#[doc = $doc:literal])* $name:ident / $set:ident: $type:ty = $option:expr, $to:expr, $of:expr;)+) => {$(
        #[doc = concat!(" Sets", $first)]
        $(#[doc = $doc])*
        pub fn $name(mut self, value: $type) -> Self {
            self.socket.put($option(annulus_kernel::Ip::V4), Some($option), $to(value));
            self
        }
    )+};
    // Setters and getters of a socket.
    (plain methods $(#[doc = $first:literal] $(#[doc = $doc:literal])* $name:ident / $set:ident: $type:ty = $option:expr, $to:expr, $of:expr;)+) => {$(
        #[doc = concat!(" Sets", $first)]
        $(#[doc = $doc])*
        ///
        /// # Errors
        /// If the system refuses the value, or if the runtime has ended.
        pub fn $set(&self, value: $type) -> io::Result<()> {
            self.handle.set($option, $to(value))
        }

        #[doc = concat!("Returns the system's value of [`", stringify!($set), "`](Self::", stringify!($set), ").")]
        ///
        /// # Errors
        /// If the runtime has ended.
        pub fn $name(&self) -> io::Result<$type> {
            self.handle.query($option).map($of)
        }
    )+};
    // Setters and getters of a socket, for options that differ between IPv4 and IPv6.
    (ip methods $(#[doc = $first:literal] $(#[doc = $doc:literal])* $name:ident / $set:ident: $type:ty = $option:expr, $to:expr, $of:expr;)+) => {$(
        #[doc = concat!(" Sets", $first)]
        $(#[doc = $doc])*
        ///
        /// # Errors
        /// If the system refuses the value, or if the runtime has ended.
        pub fn $set(&self, value: $type) -> io::Result<()> {
            self.handle.set_ip($option, $to(value))
        }

        #[doc = concat!("Returns the system's value of [`", stringify!($set), "`](Self::", stringify!($set), ").")]
        ///
        /// # Errors
        /// If the runtime has ended.
        pub fn $name(&self) -> io::Result<$type> {
            self.handle.query_ip($option).map($of)
        }
    )+};
    // Getters of a socket, for options that can be set only when the socket is created.
    (plain getters $(#[doc = $first:literal] $(#[doc = $doc:literal])* $name:ident / $set:ident: $type:ty = $option:expr, $to:expr, $of:expr;)+) => {$(
        #[doc = concat!(" Returns", $first)]
        $(#[doc = $doc])*
        ///
        /// # Errors
        /// If the socket has no such option, or if the runtime has ended.
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

/// Converts milliseconds to a time. Zero means the system's default.
pub(super) fn time(value: u32) -> Option<Duration> {
    (value != 0).then(|| Duration::from_millis(value.into()))
}

/// Converts a time to milliseconds, rounded up. Linux accepts at most `i32::MAX`, and zero means
/// its own default.
pub(super) fn of_time(time: Option<Duration>) -> u32 {
    const MAX_MILLISECONDS: u32 = i32::MAX as u32;
    let Some(time) = time else { return 0 };
    let milliseconds = time.as_nanos().div_ceil(1_000_000).max(1);
    u32::try_from(milliseconds).unwrap_or(MAX_MILLISECONDS).min(MAX_MILLISECONDS)
}
