//! The server examples, such as gRPC and the reverse proxy, run as processes.

use crate::programs;

use programs::{Program, examples};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;

fn example(name: &str, driver: &str, arguments: &[&str]) -> Command {
    let mut program = Command::new(examples().join(name));
    program.args(arguments).env("ANNULUS_DRIVER", driver);
    program
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

#[test]
fn grpc_client_is_answered_and_the_server_exits_on_a_signal() {
    const ANSWERS: &str = "hello, you\nhello, you (1 of 3)\nhello, you (2 of 3)\nhello, you (3 of 3)\n\
        hello, you and them\nhello, you\nhello, them\n";
    for driver in ["auto", "epoll"] {
        let mut server = Program::start(&mut example("grpc", driver, &["server", "127.0.0.1:0"]));
        let origin = format!("http://{}", server.listens(""));
        let asked = example("grpc", driver, &["client", &origin, "you", "them"]).output().unwrap();
        assert!(asked.status.success(), "{}", text(&asked));
        assert_eq!(text(&asked), ANSWERS);
        server.ends_by("TERM");
        let refused = example("grpc", driver, &["client", &origin, "you"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "the listener is still open");
    }
}

/// Responds to one request with the head of that request.
fn upstream() -> (String, thread::JoinHandle<io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let answers = move || {
        let (mut stream, _) = listener.accept()?;
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", head.len());
        stream.write_all(&[answer.as_bytes(), &head].concat())
    };
    (origin, thread::spawn(answers))
}

#[test]
fn reverse_proxy_forwards_a_request_and_exits_on_a_signal() {
    for driver in ["auto", "epoll"] {
        let (origin, upstream) = upstream();
        let mut proxy =
            Program::start(&mut example("reverse_proxy", driver, &["127.0.0.1:0", &origin]));
        let address = proxy.listens("");
        let mut client = TcpStream::connect(&address).unwrap();
        client.write_all(b"GET /there HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\r\n\r\nGET /there HTTP/1.1\r\n"), "{answer}");
        assert!(answer.to_lowercase().contains("\r\nx-forwarded-for: 127.0.0.1\r\n"), "{answer}");
        upstream.join().unwrap().unwrap();
        proxy.ends_by("TERM");
        assert!(TcpStream::connect(&address).is_err(), "the listener is still open");
    }
}

/// Returns true if the kernel will probe the connection from the server's end, which timer kind 2
/// in `/proc/net/tcp` shows.
fn is_probed(server: SocketAddrV4, client: SocketAddrV4) -> bool {
    let hex = |address: SocketAddrV4| {
        format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port())
    };
    let ends = [hex(server), hex(client)];
    let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
    connections.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 5 && words[1..3] == ends && words[5].starts_with("02:")
    })
}

/// The servers probe their clients, because a client that vanishes would otherwise hold its
/// connection forever.
#[test]
fn every_server_probes_silent_clients() {
    let any = "127.0.0.1:0";
    for (name, arguments, prefix) in [
        ("hyper", &[any][..], ""),
        ("axum", &[any], ""),
        ("axum_guest", &[any], ""),
        ("axum_tls", &[any], "https://"),
        ("https", &[any], "https://"),
        ("all_cores", &[any, "/nothing"], ""),
        ("grpc", &["server", any], ""),
        ("reverse_proxy", &[any, "http://127.0.0.1:9"], ""),
    ] {
        let mut server = Program::start(&mut example(name, "auto", arguments));
        let address = server.listens(prefix).parse().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let SocketAddr::V4(from) = client.local_addr().unwrap() else { panic!("not IPv4") };
        assert!(is_probed(address, from), "{name} does not probe its clients");
    }
}

#[test]
fn wrong_arguments_are_reported_with_the_usage() {
    for (name, arguments, part) in [
        ("grpc", &["client", "http://127.0.0.1:1"][..], "usage: grpc server ADDRESS"),
        ("reverse_proxy", &["127.0.0.1:0"], "usage: reverse_proxy ADDRESS"),
        ("reverse_proxy", &["127.0.0.1:0", "ftp://h/"], "the upstream must be http://host:port"),
    ] {
        let ran = example(name, "auto", arguments).output().unwrap();
        assert_eq!(ran.status.code(), Some(1), "{name}");
        assert!(text(&ran).contains(part), "{}", text(&ran));
    }
}
