//! Datagrams: `annulus echo --listen udp://…` and `annulus load udp://…`.

use crate::common::{PATIENCE, Server, annulus, noise};
use annulus_load::clock;
use annulus_skip::skip;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

/// Starts a server for TCP and for these datagrams; returns it with its UDP address.
fn start(driver: &str, listen: &str) -> (Server, SocketAddr) {
    let server = Server::start(&["--driver", driver, "--stats", "-", "--listen", listen]);
    let udp = server.udp_address();
    (server, udp)
}

#[test]
fn tcp_and_udp_are_served_at_once() {
    for driver in ["auto", "epoll"] {
        let (server, udp) = start(driver, "udp://127.0.0.1:0");
        crate::common::round_trip(&mut server.connect(), &noise(1000));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(udp).unwrap();
        for length in [0, 1, 1200, 65_507] {
            let datagram = noise(length);
            socket.send(&datagram).unwrap();
            let mut back = vec![0; 65_536];
            let received = socket.recv(&mut back).unwrap();
            assert!(back[..received] == datagram, "{length} bytes came back as {received}");
        }
        let finished = server.stop();
        assert_eq!(finished.code, Some(0), "{finished:?}");
    }
}

/// A connected socket receives only from the address to which it is connected.
#[test]
fn wildcard_udp_server_answers_from_the_address_the_client_used() {
    for driver in ["auto", "epoll"] {
        for (listen, asked) in [
            ("0.0.0.0", "127.0.0.2"),
            ("[::]", "::1"),
            ("[::]", "127.0.0.3"),
            ("[::]", "::ffff:127.0.0.4"),
        ] {
            let (server, udp) = start(driver, &format!("udp://{listen}:0"));
            let asked: IpAddr = asked.parse().unwrap();
            let any = if asked.is_ipv4() { "127.0.0.1:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.connect(SocketAddr::new(asked, udp.port())).unwrap();
            for length in [1, 1200] {
                socket.send(&noise(length)).unwrap();
                let mut back = [0; 2000];
                let received = socket.recv(&mut back);
                let received = received.unwrap_or_else(|error| panic!("{driver} {asked}: {error}"));
                assert!(back[..received] == noise(length), "{driver} {asked}");
            }
            assert_eq!(server.stop().code, Some(0));
        }
    }
}

#[test]
fn load_counts_every_datagram() {
    let (server, udp) = start("auto", "udp://127.0.0.1:0");
    let address = format!("udp://{udp}");
    let args = ["load", &address, "-c", "5", "--pipeline", "4", "-d", "0.5"];
    // No datagram is given up, however slow the machine is.
    let args = [&args[..], &["--reply-timeout", "30s"]].concat();
    let finished = annulus(args.iter().chain(&["--warm-up", "0", "-l", "128"]));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    for part in ["echoes/s", "lost         0", "corrupt      0", "5 sockets × 128 bytes"] {
        assert!(finished.stdout.contains(part), "'{part}' is not in:\n{}", finished.stdout);
    }
    let json = annulus(args.iter().chain(&["--driver", "epoll", "-l", "1", "--json", "-"])).json();
    let count = |name: &str| json["datagrams"][name].as_u64().unwrap();
    let sent = json["sent"].as_u64().unwrap();
    assert!(sent > 20 && sent == count("received") + count("lost"), "{json}");
    drop(server);
    let _bound = bind_when_released(udp);
    let finished = annulus(args);
    finished.fails_with(1, &["connect refused", &udp.to_string()]);
}

/// Binds the address of a killed server, so that nothing else gets the port. The socket is
/// connected to itself, so datagrams from other sockets are refused. Retries, because the kernel
/// closes the sockets of a ring only some time after the process has ended.
fn bind_when_released(address: SocketAddr) -> UdpSocket {
    let deadline = clock::now() + PATIENCE;
    loop {
        match UdpSocket::bind(address) {
            Ok(bound) => {
                bound.connect(address).unwrap();
                return bound;
            }
            Err(error) => assert!(clock::now() < deadline, "{error}"),
        }
    }
}

#[test]
fn invalid_values_are_refused_with_their_limits() {
    let udp = |more: &[&str]| annulus(["load", "udp://127.0.0.1:9"].iter().chain(more));
    udp(&["-l", "65508"]).fails_with(2, &["65508", "65507"]);
    udp(&["--pipeline", "0"]).fails_with(2, &["0", "1 to 1024"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = format!("udp://{}", socket.local_addr().unwrap());
    annulus(["echo", "--listen", &taken]).fails_with(1, &[&taken, "another program listens"]);
    for listen in ["udp://127.0.0.1:0", "unix:/nowhere", "unix-datagram:/nowhere"] {
        let alone = annulus(["echo", "--workers", "2", "--listen", listen]);
        alone.fails_with(2, &["--workers 2", "only TCP", "leave it out"]);
    }
    let threads = ["echo", "--driver", "threads", "--listen", "udp://127.0.0.1:0"];
    annulus(threads).fails_with(2, &["--driver threads", "one TCP address"]);
}

/// Sends a datagram with a forged source.
fn forge(source: SocketAddr, to: SocketAddr, bytes: &[u8]) -> Result<(), Errno> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
    let raw: OwnedFd = socket_with(family, kind, flags, Some(ipproto::UDP))?;
    rustix::net::bind(&raw, &SocketAddr::new(source.ip(), 0))?;
    let length = 8 + bytes.len() as u16;
    let mut datagram = Vec::new();
    for word in [source.port(), to.port(), length, 0] {
        datagram.extend(word.to_be_bytes());
    }
    datagram.extend(bytes);
    if let (IpAddr::V6(from), IpAddr::V6(to)) = (source.ip(), to.ip()) {
        // Over IPv4, the checksum is optional.
        let pseudo = [&from.octets()[..], &to.octets(), &[0, 0, 0, length as u8, 0, 0, 0, 17]];
        let sum = !ones_sum(&[&pseudo.concat()[..], &datagram].concat());
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    sendto(&raw, &datagram, SendFlags::empty(), &SocketAddr::new(to.ip(), 0)).map(drop)
}

fn ones_sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}

/// The source is the server's own address: without a check, the server would echo its own echo
/// forever.
#[test]
fn forged_own_source_is_refused_and_counted() {
    for driver in ["auto", "epoll"] {
        for (listen, to) in [
            ("udp://127.0.0.1:0", "127.0.0.1"),
            ("udp://0.0.0.0:0", "127.0.0.1"),
            ("udp://[::1]:0", "::1"),
            ("udp://[::]:0", "::1"),
            ("udp://[::]:0", "127.0.0.1"),
        ] {
            let (server, udp) = start(driver, listen);
            let to = SocketAddr::new(to.parse().unwrap(), udp.port());
            let nowhere = SocketAddr::new(to.ip(), 0);
            match forge(to, to, b"to and fro").and_then(|()| forge(nowhere, to, b"from port 0")) {
                Err(Errno::PERM | Errno::ACCESS) => {
                    return skip!("raw sockets need CAP_NET_RAW");
                }
                forged => forged.unwrap(),
            }
            let any: SocketAddr =
                if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
            let socket = UdpSocket::bind(any).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.connect(to).unwrap();
            for turn in 0..50 {
                socket.send(&noise(100 + turn)).unwrap();
                let mut back = [0; 200];
                let received = socket.recv(&mut back).unwrap();
                assert!(back[..received] == noise(100 + turn), "{listen} from {to}");
            }
            let stats = server.stop().json();
            assert_eq!((&stats["messages"], &stats["refused"]), (&50.into(), &2.into()), "{stats}");
        }
    }
}
