//! Listening sockets and their owners, from `/proc`.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use annulus_load::ServerAddress;

use crate::process_tree;

/// The state of a listening socket in `/proc/net/tcp`.
const TCP_LISTEN_STATE: &str = "0A";

/// The flags of a listening socket in `/proc/net/unix`.
const UNIX_LISTEN_FLAGS: &str = "00010000";

/// Returns the sorted TCP addresses at which a process, or any that it has started, listens.
/// Processes of other users are not visible.
pub(crate) fn of_tree(root: u32) -> Vec<SocketAddr> {
    let (root, others) = process_tree::of(root);
    let sockets: BTreeSet<u64> = others.into_iter().chain([root]).flat_map(sockets_of).collect();
    let own = listening().into_iter().filter(|(_, inode)| sockets.contains(inode));
    own.map(|(address, _)| address).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the process that listens at an address of this machine, if it is visible; among several,
/// the one that has started the others.
pub(crate) fn owner_of(address: &ServerAddress) -> Option<u32> {
    let inodes: BTreeSet<u64> = match address {
        ServerAddress::Inet(address) => {
            let serves = |at: SocketAddr| {
                at.port() == address.port() && (at.ip() == address.ip() || at.ip().is_unspecified())
            };
            listening().into_iter().filter(|(at, _)| serves(*at)).map(|(_, inode)| inode).collect()
        }
        ServerAddress::Unix(path) => {
            let text = fs::read("/proc/self/net/unix").unwrap_or_default();
            String::from_utf8_lossy(&text).lines().filter_map(|line| bound_in(line, path)).collect()
        }
    };
    let owners = holders(&inodes);
    // A process may share the socket with the processes that it has started.
    let started = |pid: &u32| {
        owners.iter().any(|other| other != pid && process_tree::of(*other).1.contains(pid))
    };
    owners.iter().copied().find(|pid| !started(pid))
}

/// Returns the processes that have a socket listening at this TCP port, at any address. Processes
/// of other users and other network namespaces are not visible.
pub fn owners_of_port(port: u16) -> Vec<u32> {
    let inodes: BTreeSet<u64> = listening()
        .into_iter()
        .filter(|(at, _)| at.port() == port)
        .map(|(_, inode)| inode)
        .collect();
    holders(&inodes)
}

/// Returns the processes that have one of these sockets.
fn holders(inodes: &BTreeSet<u64>) -> Vec<u32> {
    if inodes.is_empty() {
        return Vec::new();
    }
    let has = |pid: &u32| sockets_of(*pid).any(|inode| inodes.contains(&inode));
    process_tree::processes().filter(has).collect()
}

/// Returns the inodes of the sockets of a process; none if it has ended or belongs to another user.
fn sockets_of(pid: u32) -> impl Iterator<Item = u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
}

/// Returns all listening TCP sockets with their inodes.
fn listening() -> Vec<(SocketAddr, u64)> {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let text = tables.map(|table| fs::read_to_string(table).unwrap_or_default()).concat();
    text.lines().filter_map(listening_in).collect()
}

/// Parses a line like `  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000
/// 1000  0  12345 1 …`.
fn listening_in(line: &str) -> Option<(SocketAddr, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (ip, port) = fields.get(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let inode = fields.get(9)?.parse().ok()?;
    (fields[3] == TCP_LISTEN_STATE).then_some((SocketAddr::new(ip_of(ip)?, port), inode))
}

/// Parses a line like `0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/echo`.
/// Returns the inode if the socket listens at this path.
fn bound_in(line: &str, path: &Path) -> Option<u64> {
    let rest = line.strip_suffix(&*path.to_string_lossy()).filter(|rest| rest.ends_with(' '))?;
    match rest.split_whitespace().collect::<Vec<_>>()[..] {
        [_, _, _, UNIX_LISTEN_FLAGS, _, _, inode] => inode.parse().ok(),
        _ => None,
    }
}

/// Parses an address written as 32-bit words in the byte order of this machine.
fn ip_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(hex.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match hex.len() {
        8 => word(0).map(|bytes| Ipv4Addr::from(bytes).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            <[u8; 16]>::try_from(words).ok().map(|bytes| Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn listening_sockets_are_read_from_their_table() {
        let line = "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0 0 77 1 0";
        if cfg!(target_endian = "little") {
            assert_eq!(
                listening_in(line),
                Some(("127.0.0.1:8080".parse().expect("the address is invalid"), 77))
            );
            let six = line.replace("0100007F", "00000000000000000000000001000000");
            assert_eq!(
                listening_in(&six),
                Some(("[::1]:8080".parse().expect("the address is invalid"), 77))
            );
        }
        for other in [line.replace(" 0A ", " 01 "), line.replace("0100007F", "01"), String::new()] {
            assert_eq!(listening_in(&other), None);
        }
    }

    #[test]
    fn sockets_at_a_path_are_read_from_their_table() {
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01   345 /run/a b";
        let found = |line: &str, path| bound_in(line, Path::new(path));
        assert_eq!(found(line, "/run/a b"), Some(345));
        assert_eq!(found(line, "/run/a"), None);
        assert_eq!(found(&line.replace("00010000", "00000000"), "/run/a b"), None, "a connection");
        assert_eq!(found("Num       RefCount Protocol Flags    Type St Inode Path", "Path"), None);
    }

    #[test]
    fn a_listener_of_this_process_is_found_from_both_sides() {
        for ip in ["127.0.0.1", "0.0.0.0"] {
            let listener = TcpListener::bind((ip, 0)).expect("no port is free");
            let address = listener.local_addr().expect("the listener has no address");
            assert!(of_tree(std::process::id()).contains(&address), "{address}");
            let loopback = SocketAddr::new([127, 0, 0, 1].into(), address.port());
            assert!(owner_of(&loopback.into()).is_some(), "{address}");
            assert!(owners_of_port(address.port()).contains(&std::process::id()), "{address}");
        }
        for nothing in ["127.0.0.1:0", "unix:/no/such/path"] {
            assert_eq!(
                owner_of(&nothing.parse().expect("the address is invalid")),
                None,
                "{nothing}"
            );
        }
        assert_eq!(of_tree(1 << 30), []);
    }
}
