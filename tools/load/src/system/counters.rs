//! The network counters of the kernel.

use std::fs;

/// Counters of the network namespace: of all programs in it, and of both ends of connections within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Segments of TCP that were sent again.
    pub(crate) retransmits: u64,
    /// Datagrams that were dropped as a socket's receive buffer was full.
    pub(crate) dropped_datagrams: u64,
    /// Connects that were dropped as a listener's backlog was full.
    pub(crate) dropped_connects: u64,
}

impl Counters {
    /// The counters since the machine started; `None` if the kernel does not show them to this process.
    pub(crate) fn read() -> Option<Counters> {
        let read = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}")).ok();
        // There is no such file without IPv6.
        let snmp6 = read("snmp6").unwrap_or_default();
        Counters::parse(&read("snmp")?, &read("netstat")?, &snmp6)
    }

    fn parse(snmp: &str, netstat: &str, snmp6: &str) -> Option<Counters> {
        let single = |name| {
            snmp6.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        Some(Counters {
            retransmits: column(snmp, "Tcp:", "RetransSegs")?,
            dropped_datagrams: column(snmp, "Udp:", "RcvbufErrors")?
                + single("Udp6RcvbufErrors").unwrap_or_default(),
            dropped_connects: column(netstat, "TcpExt:", "ListenOverflows")?,
        })
    }

    /// The counts after `earlier`.
    pub(super) fn since(self, earlier: Counters) -> Counters {
        Counters {
            retransmits: self.retransmits.wrapping_sub(earlier.retransmits),
            dropped_datagrams: self.dropped_datagrams.wrapping_sub(earlier.dropped_datagrams),
            dropped_connects: self.dropped_connects.wrapping_sub(earlier.dropped_connects),
        }
    }
}

/// The value of a column, which a line of names and the next line have at the same place.
fn column(text: &str, prefix: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(prefix));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|word| word == name)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    const SNMP: &str = "Ip: Forwarding\nIp: 1\nTcp: MaxConn RetransSegs InErrs\nTcp: -1 17 0\n\
                        Udp: InErrors RcvbufErrors\nUdp: 9 5\nUdpLite: RcvbufErrors\nUdpLite: 99\n";
    const NETSTAT: &str = "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 0 3\n";

    #[test]
    fn counters_are_found_by_their_names() {
        let found = Counters::parse(SNMP, NETSTAT, "Ip6In 1\nUdp6RcvbufErrors    \t2\n").unwrap();
        assert_eq!(
            (found.retransmits, found.dropped_datagrams, found.dropped_connects),
            (17, 7, 3)
        );
        assert_eq!(Counters::parse(SNMP, "", ""), None);
        assert_eq!(Counters::parse("Tcp: RetransSegs\nTcp:\n", NETSTAT, ""), None);
    }

    #[test]
    fn a_datagram_for_a_full_buffer_is_counted() {
        let Some(before) = Counters::read() else {
            return println!("skipped: the kernel does not show its counters");
        };
        let (receiver, sender) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let address = receiver.local_addr().unwrap();
        let counted = (0..100_000).any(|_| {
            sender.send_to(&[0; 60_000], address).unwrap();
            Counters::read().unwrap().since(before).dropped_datagrams > 0
        });
        assert!(counted, "60 KB were sent 100,000 times and never read");
    }
}
