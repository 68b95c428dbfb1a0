//! `annulus echo --metrics` with a raw client, and the list of tasks at SIGUSR1.

use crate::common::{PATIENCE, Server, annulus, round_trip, serving_modes};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Starts a server for every mode that has a runtime, with metrics on a free port.
fn metrics_servers() -> impl Iterator<Item = (Vec<&'static str>, Server, String)> {
    let serving_modes = serving_modes().into_iter().filter(|way| !way.contains(&"threads"));
    serving_modes.map(|way| {
        let mut server = Server::start(&[&way[..], &["--metrics", "127.0.0.1:0"]].concat());
        let line = server.next_line();
        let address = line.strip_prefix("annulus echo: metrics at http://");
        let address = address.and_then(|rest| rest.trim_end().strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("no address of metrics: {line:?}")).into();
        (way, server, address)
    })
}

/// Sends these bytes and reads the whole answer; returns its status line, headers and body.
fn ask(address: &str, request: &[u8]) -> (String, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let (status, headers) = head.split_once("\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (status.into(), headers.to_lowercase(), body.into())
}

/// Returns the samples by name with labels.
fn samples(body: &str) -> BTreeMap<&str, f64> {
    let mut samples = BTreeMap::new();
    for line in body.lines() {
        if line.starts_with("# HELP annulus_") || line.starts_with("# TYPE annulus_") {
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
        assert!(name.starts_with("annulus_") && name.contains("{shard=\""), "{line}");
        assert!(samples.insert(name, value.parse().unwrap()).is_none(), "twice: {line}");
    }
    samples
}

#[test]
fn metrics_of_all_workers_are_served() {
    for (way, server, address) in metrics_servers() {
        let mut client = server.connect();
        round_trip(&mut client, b"hello");
        let (status, headers, body) = ask(&address, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(status, "HTTP/1.1 200 OK", "{way:?}");
        assert!(headers.contains("content-type: text/plain; version=0.0.4"), "{headers}");
        assert!(headers.contains(&format!("content-length: {}\r\n", body.len())), "{headers}");
        let samples = samples(&body);
        let workers = if way.contains(&"--workers") { 2 } else { 1 };
        let sum = |name: &str| -> f64 {
            let shards =
                (0..workers).map(|shard| samples[&*format!("{name}{{shard=\"{shard}\"}}")]);
            shards.sum()
        };
        assert_eq!(sum("annulus_up"), f64::from(workers), "{way:?}");
        // The client, and the connection of this request.
        assert_eq!(sum("annulus_streams"), 2.0, "{way:?}: {body}");
        assert!(sum("annulus_turns_total") >= 2.0 && sum("annulus_enters_total") >= 1.0);
        assert!(sum("annulus_turn_seconds_count") >= 1.0, "turns are not measured: {body}");
        assert_eq!(server.stop().code, Some(0), "{way:?}");
    }
}

#[test]
fn trace_of_all_workers_is_served() {
    for (way, server, address) in metrics_servers() {
        round_trip(&mut server.connect(), b"hello");
        let (status, headers, body) = ask(&address, b"GET /trace HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(status, "HTTP/1.1 200 OK", "{way:?}");
        assert!(headers.contains("content-type: application/json"), "{headers}");
        let document: serde_json::Value =
            serde_json::from_str(&body).expect("the trace is not JSON");
        let events = document["traceEvents"].as_array().expect("the trace has no events");
        let of = |kind: &str, name: &str| {
            let is = |event: &&serde_json::Value| event["ph"] == kind && event["name"] == name;
            events.iter().filter(is).count()
        };
        assert_eq!(of("M", "thread_name"), if way.contains(&"--workers") { 2 } else { 1 });
        assert!(of("X", "turn") >= 1 && of("C", "completions 0") >= 1, "{way:?}: {body}");
        assert_eq!(server.stop().code, Some(0), "{way:?}");
    }
}

#[test]
fn invalid_requests_are_refused_and_the_next_is_answered() {
    let (_, server, address) = metrics_servers().next().unwrap();
    let long = [b"GET /metrics HTTP/1.1\r\nA: ", &[b'a'; 9000][..], b"\r\n\r\n"].concat();
    let refusals: [(&[u8], &str); 6] = [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        (
            b"PUT /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 405 Method Not Allowed",
        ),
        (b"hello\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"\xff\xfe\x00\x01 / HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        (&long, "HTTP/1.1 431 Request Header Fields Too Large"),
        (&[b'a'; 9000], "HTTP/1.1 431 Request Header Fields Too Large"),
    ];
    for (request, expected) in refusals {
        let (status, headers, body) = ask(&address, request);
        assert_eq!(status, expected);
        assert!(headers.contains("connection: close") && body.ends_with('\n'), "{headers}");
    }
    let (status, headers, body) = ask(&address, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(status.ends_with("200 OK") && body.is_empty() && !headers.contains("length: 0\r"));
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn silent_and_endless_clients_do_not_block_other_requests() {
    let (_, server, address) = metrics_servers().next().unwrap();
    // More than the limit of connections.
    let silent: Vec<_> = (0..300).map(|_| TcpStream::connect(&address).unwrap()).collect();
    // A head that arrives byte by byte, and is never complete.
    let mut slow = TcpStream::connect(&address).unwrap();
    b"GET /metrics".iter().for_each(|byte| slow.write_all(&[*byte]).unwrap());
    // A request without an end is cut off.
    let mut endless = TcpStream::connect(&address).unwrap();
    while endless.write_all(&[b'a'; 4096]).is_ok() {}
    let (status, _, _) = ask(&address, b"GET /metrics HTTP/1.1\r\n\r\n");
    assert_eq!(status, "HTTP/1.1 200 OK");
    // Stopping does not wait for these clients.
    assert_eq!(server.stop().code, Some(0));
    drop((silent, slow));
}

#[test]
fn metrics_port_in_use_is_reported_at_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for driver in ["auto", "epoll"] {
        let args = ["echo", "--listen", "127.0.0.1:0", "--driver", driver, "--metrics", &address];
        annulus(args).fails_with(1, &["--metrics", &address, "in use", "choose another port"]);
    }
    let workers = ["echo", "--listen", "127.0.0.1:0", "--workers", "2", "--metrics", &address];
    annulus(workers).fails_with(1, &["--metrics", &address, "in use"]);
}

#[test]
fn metrics_without_a_runtime_are_a_usage_error() {
    let args = ["echo", "--driver", "threads", "--metrics", "127.0.0.1:0"];
    annulus(args).fails_with(2, &["--metrics", "--driver threads", "leave one of them out"]);
    annulus(["echo", "--metrics", "nonsense"]).fails_with(2, &["--metrics", "nonsense"]);
}

#[test]
fn sigusr1_prints_what_every_task_waits_for() {
    for (way, mut server, _) in metrics_servers() {
        let mut client = server.connect();
        round_trip(&mut client, b"hello");
        server.signal(Signal::USR1);
        let workers = if way.contains(&"--workers") { 2 } else { 1 };
        let mut tasks = Vec::new();
        for worker in 0..workers {
            let head = server.next_line();
            let count = head.strip_prefix(&format!("annulus echo: worker {worker}: "));
            let count = count.and_then(|rest| rest.strip_suffix(" tasks\n")?.parse().ok());
            let count: usize = count.unwrap_or_else(|| panic!("{way:?}: {head:?}"));
            tasks.extend((0..count).map(|_| server.next_line()));
        }
        let waits = |what: &str| {
            let found = |task: &&String| task.contains("tasks.rs:") && task.contains(what);
            assert!(tasks.iter().any(|task| found(&task)), "{way:?}: no '{what}': {tasks:?}");
        };
        waits("waits to accept on descriptor ");
        waits("waits to receive on descriptor ");
        assert!(tasks.iter().all(|task| task.starts_with("  task spawned at ")), "{tasks:?}");
        round_trip(&mut client, b"it goes on");
        assert_eq!(server.stop().code, Some(0), "{way:?}");
    }
}
