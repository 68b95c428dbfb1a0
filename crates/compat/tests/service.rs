//! The example `all_cores`, run as a program, with and without PostgreSQL.

use crate::postgres::Postgres;
use crate::programs::{Program, examples};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

fn start(driver: &str, socket: &str) -> (Program, String) {
    let mut program = Command::new(examples().join("all_cores"));
    program.args(["127.0.0.1:0", socket, "annulus"]).env("ANNULUS_DRIVER", driver);
    let mut program = Program::start(&mut program);
    let address = program.listens("");
    (program, address)
}

/// A connection that is kept open.
struct Client(TcpStream);

impl Client {
    fn connect(address: &str) -> Self {
        Self(TcpStream::connect(address).unwrap())
    }

    /// Reads the head of a response, which may be an informational one.
    fn head(&mut self) -> String {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap()
    }

    fn answer(&mut self) -> (u16, String) {
        let head = self.head();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.0.read_exact(&mut body).unwrap();
        (head["HTTP/1.1 ".len()..][..3].parse().unwrap(), String::from_utf8(body).unwrap())
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}");
        self.0.write_all(format!("{request}\r\n\r\n{body}").as_bytes()).unwrap();
        self.answer()
    }

    fn get(&mut self, path: &str) -> (u16, String) {
        self.ask("GET", path, "")
    }
}

/// Opens connections that are spread over all shards. Returns them and the number of shards.
fn on_all_shards(address: &str) -> (Vec<Client>, usize) {
    let mut clients: Vec<_> = (0..8).map(|_| Client::connect(address)).collect();
    let mut shards = BTreeSet::new();
    for client in &mut clients {
        let (status, text) = client.get("/");
        let own = client.0.local_addr().unwrap();
        let shard = text.strip_prefix(&format!("hello, {own}, from shard ")).expect(&text);
        shards.insert(shard.trim_end().to_owned());
        assert_eq!(status, 200);
    }
    let cores = annulus::shards::cpus().unwrap().len();
    assert_eq!(shards.len(), cores.min(clients.len()), "{shards:?}");
    (clients, shards.len())
}

#[test]
fn all_shards_serve_and_a_request_in_flight_is_answered_after_the_signal() {
    for driver in ["auto", "epoll"] {
        let (program, address) = start(driver, "/nowhere/socket");
        let (mut clients, shards) = on_all_shards(&address);

        assert_eq!(clients[0].ask("PUT", "/notes/one", "text"), (200, "".into()));
        assert!(clients.iter_mut().all(|client| client.get("/notes/one") == (200, "text".into())));
        assert_eq!(clients[0].get("/notes/two").0, 404);
        let (status, text) = clients[1].get("/square/7");
        assert!(status == 503 && text.contains("/nowhere/socket: No such file"), "{status} {text}");

        let (_, metrics) = clients[0].get("/metrics");
        let counts = metrics.lines().filter(|line| line.starts_with("http_requests_total{shard="));
        let counts: Vec<u64> =
            counts.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        assert!(counts.len() == shards && counts.iter().all(|count| *count > 0), "{counts:?}");
        assert_eq!(counts.iter().sum::<u64>(), 2 * clients.len() as u64 + 4);
        for shard in 0..shards {
            assert!(metrics.contains(&format!("annulus_tasks_alive{{shard=\"{shard}\"}} ")));
        }

        // The handler waits for the request body.
        let mut slow = Client::connect(&address);
        let head =
            "PUT /notes/late HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4";
        slow.0.write_all(format!("{head}\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(slow.head(), "HTTP/1.1 100 Continue\r\n\r\n");
        program.signal("TERM");
        for client in &mut clients {
            assert_eq!(client.0.read(&mut [0]).unwrap(), 0, "an idle connection was not closed");
        }
        // Wait until the program has closed its listener. It cannot have exited, because it waits
        // for the slow request.
        while TcpStream::connect(&address).is_ok() {}
        slow.0.write_all(b"text").unwrap();
        assert_eq!(slow.answer(), (200, "".into()));
        program.ends();
    }
}

#[test]
fn each_shard_queries_postgres() {
    let Some(server) = Postgres::start() else { return };
    let (program, address) = start("auto", server.socket().to_str().unwrap());
    let (mut clients, _) = on_all_shards(&address);
    for number in [7_i64, -7, i32::MAX.into()] {
        for client in &mut clients {
            let squared = (200, (number * number).to_string());
            assert_eq!(client.get(&format!("/square/{number}")), squared);
        }
    }
    program.ends_by("TERM");
}
