//! The servers end cleanly when asked: with status 0, and without leaving anything that would
//! hinder the next server.

use super::examples;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Starts a server. Returns its process and the address that it reports.
fn serve(name: &str, arguments: &[&str], driver: &str) -> (Child, String) {
    let mut command = Command::new(examples().join(name));
    command.args(arguments).env("ANNULUS_DRIVER", driver).stderr(Stdio::piped());
    let mut server = command.spawn().expect("the example does not start");
    let mut lines = BufReader::new(server.stderr.take().expect("not piped")).lines();
    let address = lines.find_map(|line| {
        let line = line.expect("not UTF-8");
        line.strip_prefix("listening on ").map(str::to_owned)
    });
    // Reads the rest of the output to the end, so that the server does not wait for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    (server, address.unwrap_or_else(|| panic!("{name} does not report its address")))
}

/// Waits until a process catches a signal. A shard may do so only after the line with its address.
fn catches(process: &Child, signal: Signal) {
    let status = format!("/proc/{}/status", process.id());
    let is_caught = || {
        let text = std::fs::read_to_string(&status).expect("the server is not running");
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.expect("no set of caught signals").trim(), 16)
            .expect("not in hexadecimal");
        caught & 1 << (signal.as_raw() - 1) != 0
    };
    while !is_caught() {
        std::thread::yield_now();
    }
}

/// Starts a server, connects a client unless it is a UDP server, stops the server with a signal,
/// and checks that it exits with status 0 and leaves nothing behind.
fn ends(name: &str, arguments: &[&str]) {
    for (driver, signal) in [("auto", Signal::TERM), ("auto", Signal::INT), ("epoll", Signal::TERM)]
    {
        let (mut server, address) = serve(name, arguments, driver);
        let is_udp = address.starts_with("udp:") || name == "dns";
        let path = address.strip_prefix("unix:");
        let number = address.trim_start_matches("udp://");
        let (mut tcp, mut unix) = (None, None);
        match path {
            Some(path) => {
                unix = Some(UnixStream::connect(path).expect("the server does not listen"))
            }
            None if is_udp => {}
            None => tcp = Some(TcpStream::connect(number).expect("the server does not listen")),
        }
        catches(&server, signal);
        let pid = Pid::from_raw(server.id() as i32).expect("the process number is zero");
        kill_process(pid, signal).expect("the server is not running");
        let status = server.wait().expect("not a child of this process");
        assert_eq!(status.code(), Some(0), "{name} on {driver}: {signal:?}: {status}");
        drop((tcp.take(), unix.take()));
        match path {
            Some(path) => {
                assert!(
                    !std::fs::exists(path).expect("the path cannot be checked"),
                    "{path} was not removed"
                )
            }
            None if is_udp => drop(UdpSocket::bind(number).expect("the port is still in use")),
            None => drop(TcpListener::bind(number).expect("the port is still in use")),
        }
    }
}

#[test]
fn every_server_ends_cleanly() {
    let any = "127.0.0.1:0";
    for name in ["echo", "udp_echo", "redis", "static_files", "chat", "shards", "shutdown"] {
        ends(name, &[any]);
    }
    ends("proxy", &[any, "127.0.0.1:9"]);
    ends("dns", &[any, "127.0.0.1:9"]);
    let path = std::env::temp_dir().join(format!("annulus-ends-{}", std::process::id()));
    ends("unix_echo", &[path.to_str().expect("not UTF-8")]);
}

/// Returns true if the kernel will probe the server's end of a connection, which is the second kind
/// of timer in `/proc/net/tcp`.
fn is_probed(server: SocketAddr, client: SocketAddr) -> bool {
    let hex = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => {
            format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port())
        }
        IpAddr::V6(_) => unreachable!("an address of IPv4"),
    };
    let connections =
        std::fs::read_to_string("/proc/net/tcp").expect("/proc/net/tcp cannot be read");
    let ends = [hex(server), hex(client)];
    connections.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 5 && words[1..3] == ends && words[5].starts_with("02:")
    })
}

/// Otherwise, a client that vanishes silently would hold its place forever.
#[test]
fn every_server_probes_silent_clients() {
    let target = TcpListener::bind("127.0.0.1:0").expect("no port is free");
    let to = target.local_addr().expect("the listener has no address");
    for name in ["echo", "redis", "static_files", "chat", "shards", "shutdown", "proxy"] {
        for driver in ["auto", "epoll"] {
            let arguments = ["127.0.0.1:0", &to.to_string()];
            let arguments = if name == "proxy" { &arguments[..] } else { &arguments[..1] };
            let (mut server, address) = serve(name, arguments, driver);
            let address = address.parse().expect("not an address");
            let client = TcpStream::connect(address).expect("the server does not listen");
            let from = client.local_addr().expect("the client has no address");
            // A server that enables probes does so at the accept; otherwise, the test would wait
            // forever.
            let is_on = (0..30_000).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                is_probed(address, from)
            });
            assert!(is_on, "{name} on {driver} does not probe its clients");
            if name == "proxy" {
                let (_connection, from) = target.accept().expect("the proxy does not connect");
                assert!(is_probed(from, to), "the proxy does not probe its target");
            }
            server.kill().and_then(|()| server.wait()).expect("the server is not running");
        }
    }
}

#[test]
fn datagrams_are_answered_from_the_address_that_received_them() {
    let query = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x01\0\x01";
    for (name, arguments) in
        [("udp_echo", ["0.0.0.0:0"].as_slice()), ("dns", &["0.0.0.0:0", "127.0.0.1:9"])]
    {
        for driver in ["auto", "epoll"] {
            let (mut server, address) = serve(name, arguments, driver);
            let port = address.rsplit(':').next().and_then(|port| port.parse().ok());
            let client = UdpSocket::bind("127.0.0.1:0").expect("no port is free");
            client
                .set_read_timeout(Some(Duration::from_secs(30)))
                .expect("the timeout cannot be set");
            let asked =
                SocketAddr::from(([127, 0, 0, 2], port.expect("the server printed no port")));
            client.send_to(query, asked).expect("the query was not sent");
            let from = client.recv_from(&mut [0; 64]).map(|(_, from)| from);
            server.kill().and_then(|()| server.wait()).expect("the server is not running");
            assert_eq!(from.expect("no answer arrived"), asked, "{name} on {driver}");
        }
    }
}
