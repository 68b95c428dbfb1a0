//! `annulus load`: its figures, and its errors with faulty servers.

use crate::common::{
    ANNULUS, Finished, Scratch, Server, annulus, drivers, finish, free_address, runtime_drivers,
    serve,
};
use annulus_load::clock;
use annulus_load::recording::Recording;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Answers each read with the received bytes, modified by `change`.
fn answer(mut stream: TcpStream, change: impl Fn(&mut Vec<u8>)) {
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let mut reply = buffer[..count].to_vec();
        change(&mut reply);
        if stream.write_all(&reply).is_err() {
            return;
        }
    }
}

fn load(address: SocketAddr, args: &[&str]) -> Finished {
    load_only(address, &[&["--warm-up", "0.05"], args].concat())
}

fn load_only(address: SocketAddr, args: &[&str]) -> Finished {
    let address = address.to_string();
    let short = ["load", &address, "--duration", "0.2", "--json", "-"];
    annulus(short.iter().chain(args))
}

/// Runs three clients with a faulty server. Asserts exit status 1, and that the message and the
/// JSON contain the kind of failure. A second run, without reconnecting, counts at most one failure
/// per client.
#[track_caller]
fn assert_failure_kind(kind: &str, talk: fn(TcpStream), args: &[&str]) {
    let address = serve(talk);
    let finished = load(address, &[&["--connections", "3", "--length", "1000"], args].concat());
    finished.fails_with(1, &[kind, &address.to_string(), "connection "]);
    let json = finished.json();
    assert!(json["errors"][kind].as_u64().is_some_and(|count| count >= 1), "{json}");
    let timeout = args.get(1).unwrap_or(&"5");
    // Each call has its own directory, because tests run in parallel in one process.
    let scratch = Scratch::new(&format!("load-once-{}", address.port()));
    let file = scratch.path("load.toml");
    let text = format!(
        "target = \"{address}\"\nconnections = 3\nlength = 1000\nreconnect = false\n\
         duration = 0.2\nwarm-up = \"50ms\"\nreply-timeout = \"{timeout}\"\n"
    );
    std::fs::write(&file, text).unwrap();
    let json = annulus(["load", &file, "--json", "-"]).json();
    assert!(json["errors"][kind].as_u64().is_some_and(|count| (1..=3).contains(&count)), "{json}");
}

#[test]
fn json_has_the_documented_keys() {
    for driver in drivers() {
        let server = Server::start(&["--driver", driver]);
        let finished = load(server.address, &["--connections", "20", "--length", "128"]);
        assert_eq!(
            (finished.code, finished.stderr.as_str()),
            (Some(0), ""),
            "{driver}: {finished:?}"
        );
        let json = finished.json();
        let (responses, seconds) =
            (json["responses"].as_u64().unwrap(), json["seconds"].as_f64().unwrap());
        assert!(responses > 20, "{driver}: {json}");
        assert_eq!(json["requests"], responses);
        assert!(seconds >= 0.2, "{json}");
        let rate = json["requests_per_second"].as_f64().unwrap();
        assert!((rate * seconds - responses as f64).abs() < 1.0, "{json}");
        assert_eq!(json["errors"].as_object().unwrap().len(), 0);
        assert!(json["client_cpu_share"].as_f64().unwrap() > 0.0);
        assert_eq!((&json["format"], &json["version"]), (&"annulus-load".into(), &1.into()));
        // A percentile without enough samples is null.
        let names = ["min", "p50", "p90", "p99", "p99.9", "p99.99", "p99.999", "max"];
        let latency = names.iter().filter_map(|name| json["latency_us"][name].as_f64());
        let latency: Vec<f64> = latency.collect();
        assert!(latency.is_sorted() && latency[0] > 0.0 && latency.len() > 2, "{json}");
        assert!(json["latency_us"]["mean"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn pipeline_and_rate_are_recorded() {
    const RATE: f64 = 2000.0;
    let (server, began) = (Server::start(&[]), clock::now());
    let finished =
        load(server.address, &["--pipeline", "16", "--rate", "2000", "-c", "4", "-l", "128"]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    let json = finished.json();
    assert_eq!(
        (json["run"]["pipeline"].as_u64(), json["run"]["rate"].as_f64()),
        (Some(16), Some(RATE))
    );
    // There are at most as many responses as messages were due since the start. After a stall, the
    // measured time may contain more responses than the rate allows.
    let due = RATE * (clock::now() - began).as_secs_f64() + 4.0;
    assert!(json["responses"].as_f64().unwrap() <= due, "{due} were due: {json}");
}

#[test]
fn large_messages_are_verified() {
    for driver in drivers() {
        let server = Server::start(&["--driver", driver]);
        let finished = load(server.address, &["-c", "3", "-l", "3000001"]);
        assert_eq!(finished.code, Some(0), "{driver}: {finished:?}");
        assert!(finished.json()["responses"].as_u64().unwrap() > 0, "{driver}: {finished:?}");
    }
}

#[test]
fn table_has_all_rows_and_fits_80_columns() {
    let server = Server::start(&[]);
    let address = server.address.to_string();
    let finished =
        annulus(["load", &address, "-c", "4", "-l", "64", "-d", "0.5", "--warm-up", "0"]);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    for part in ["requests/s", "p90", "4 connections × 64 bytes", "client CPU", "errors       none"]
    {
        assert!(finished.stdout.contains(part), "'{part}' is not in:\n{}", finished.stdout);
    }
    assert!(finished.stdout.lines().all(|line| line.chars().count() <= 80), "{}", finished.stdout);
}

#[test]
fn wrong_bytes_are_counted() {
    assert_failure_kind(
        "wrong bytes",
        |stream| answer(stream, |reply| *reply.last_mut().unwrap() ^= 1),
        &[],
    );
}

#[test]
fn missing_reply_is_counted_as_a_timeout() {
    assert_failure_kind(
        "reply timeout",
        |stream| answer(stream, Vec::clear),
        &["--reply-timeout", "200ms"],
    );
}

#[test]
fn port_without_a_server_is_a_failure_that_names_it() {
    let address = free_address();
    let finished = load(address, &[]);
    finished.fails_with(1, &["connect refused", &address.to_string(), "is the server running"]);
    assert_eq!(finished.json()["responses"], 0);
}

#[test]
fn more_clients_than_open_files_is_an_error_with_both_numbers() {
    let limited = |limits: &str, address: SocketAddr| {
        let load = format!("{ANNULUS} load {address} -c 100 -l 10 -d 0.5 --warm-up 0");
        finish(Command::new("sh").args(["-c", &format!("{limits} && exec {load}")]))
    };
    let server = Server::start(&[]);
    let finished = limited("ulimit -n 64", server.address);
    finished.fails_with(1, &["100 connections need", "limit is 64", "at most", "ulimit -Hn"]);
    let finished = limited("ulimit -Sn 32", server.address);
    assert_eq!(finished.code, Some(0), "the soft limit was not raised: {finished:?}");
}

#[test]
fn per_connection_reports_times_with_and_without_connect() {
    let server = Server::start(&[]);
    let args = ["--per-connection", "-c", "20", "-l", "16384", "--threads", "2"];
    let finished = load(server.address, &args);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    let json = finished.json();
    assert!(json["responses"].as_u64() > Some(20), "{json}");
    assert_eq!(json["run"]["schedule"], "closed loop, a new connection for each request");
    assert!(json["service_us"]["mean"].as_f64() < json["latency_us"]["mean"].as_f64(), "{json}");
}

/// Clients reconnect until the end of the run, which does not wait for the server to return.
#[test]
fn vanished_server_is_counted_and_the_run_ends_on_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, scratch) =
        (listener.local_addr().unwrap().to_string(), Scratch::new("load-gone"));
    let json = scratch.path("a.json");
    let server = thread::spawn(move || {
        let mut streams = [(); 2].map(|()| listener.accept().unwrap().0);
        drop(listener);
        let mut message = [0; 64];
        for stream in &mut streams {
            for _ in 0..10 {
                stream.read_exact(&mut message).unwrap();
                stream.write_all(&message).unwrap();
            }
        }
    });
    let args = ["-c", "2", "-l", "64", "-d", "2", "--warm-up", "0", "--json", &json];
    let finished = annulus(["load", &address].iter().chain(&args));
    server.join().unwrap();
    assert_eq!(finished.code, Some(1), "{finished:?}");
    for part in ["annulus: errors at ", &address, "connect refused ", "(connection "] {
        assert!(finished.stderr.contains(part), "{part} is not in: {finished:?}");
    }
    let recording = Recording::open(&json).unwrap();
    assert!(recording.total().answered > 0 && recording.errors["connect refused"] > 0);
    assert!(recording.seconds >= 2.0 && !recording.interrupted, "{}", recording.seconds);
    let warnings = recording.warnings.join("; ");
    assert!(warnings.contains("connections failed, or could not be opened again, "), "{warnings}");
}

/// The limits decide the exit status. A limit on errors also decides which errors are allowed.
#[test]
fn broken_limit_fails_the_exit_status() {
    let server = Server::start(&[]);
    let load = |limits: &str| {
        let limits = ["-n", "2000", "-c", "4", "-l", "64", "--fail-if", limits];
        annulus(["load", &server.address.to_string()].iter().chain(&limits))
    };
    let kept = load("p99<1m,mean<1m,errors<0.1%,rate>1");
    assert_eq!((kept.code, &*kept.stderr), (Some(0), ""), "{kept:?}");
    assert!(kept.stdout.contains("2,000: 2,000 answered\n"), "{kept:?}");
    let broken = ["the run is not within its limits: p99: ", "not below 1.000ns; rate: "];
    load("p99<1ns,errors<0.1%,rate>1M").fails_with(1, &broken);
    load("p99.99<1s").fails_with(1, &["p99.99: unknown, because it needs 100000 replies"]);
    load("p99<5").fails_with(2, &["'p99<5': a time needs a unit"]);
    // The sixth reply on each connection is wrong.
    let faulty = serve(|stream| {
        let count = std::cell::Cell::new(0);
        answer(stream, |bytes| {
            count.set(count.get() + 1);
            bytes[0] ^= u8::from(count.get() > 5);
        });
    });
    let faulty = |limits: &[&str]| {
        load_only(faulty, &[&["-c", "3", "-l", "64", "--warm-up", "0"], limits].concat())
    };
    faulty(&[]).fails_with(1, &["wrong bytes"]);
    faulty(&["--fail-if", "p99<1h"]).fails_with(1, &["wrong bytes"]);
    let allowed = faulty(&["--fail-if", "errors<=50%"]);
    assert_eq!((allowed.code, &*allowed.stderr), (Some(0), ""), "{allowed:?}");
    faulty(&["--fail-if", "errors<1%"]).fails_with(1, &["errors: ", "not below 1 %"]);
}

/// The server takes 20 ms for each reply, so two clients get 100 per second.
#[test]
fn unreachable_rate_is_a_warning_and_invalid_rates_are_refused() {
    let address = serve(|mut stream| {
        let mut message = [0; 512];
        while stream.read_exact(&mut message).is_ok() {
            thread::sleep(Duration::from_millis(20));
            if stream.write_all(&message).is_err() {
                return;
            }
        }
    });
    let args = ["-c", "2", "--warm-up", "0", "--rate", "10k"];
    let finished = load_only(address, &args);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let json = finished.json();
    assert!(json["requests_per_second"].as_f64() < Some(200.0), "{json}");
    let warnings = json["warnings"].to_string();
    assert!(
        warnings.contains("requests that were due were never sent, because their connections"),
        "{warnings}"
    );
    for (rate, parts) in [
        ("0", ["0 messages per second", "use more than 0"]),
        ("200M", ["200000000", "100000000"]),
        ("1k..2k", ["'1k..2k'", "10k"]),
        ("5x", ["'5x'", "10k"]),
    ] {
        load_only(address, &["--rate", rate]).fails_with(2, &parts);
    }
}

#[test]
fn per_connection_reports_failures() {
    let address = free_address().to_string();
    annulus(["load", &address, "--per-connection", "-d", "0.2"])
        .fails_with(1, &["connect refused ", &address, "is the server running"]);
}

/// The first reply arrives during the warm-up, and the next message is due a thousand seconds
/// later.
#[test]
fn run_without_a_response_fails() {
    let server = Server::start(&[]);
    let rare = ["-c", "1", "--rate", "0.001", "--warm-up", "1"];
    for driver in runtime_drivers() {
        let finished = load_only(server.address, &[&rare[..], &["--driver", driver]].concat());
        finished
            .fails_with(1, &["no response arrived from", &server.address.to_string(), "longer"]);
        let json = finished.json();
        assert_eq!((&json["responses"], &json["interrupted"]), (&0.into(), &false.into()));
        assert_eq!(json["warnings"][0], "no response arrived within the measured time");
    }
}

#[test]
fn run_without_replies_shows_no_latencies() {
    let address = serve(|mut stream| _ = stream.write_all(b"nothing of HTTP\r\n\r\n"));
    let url = format!("http://{address}");
    let args = ["load", &url, "-c", "1", "-d", "0.2", "--warm-up", "0"];
    let finished = annulus(args);
    finished.fails_with(1, &["malformed reply"]);
    let text = finished.stdout;
    assert!(text.contains("1 connection of HTTP/1.1") && !text.contains("latency"), "{text}");
    let json = annulus(args.iter().chain(&["--json", "-"])).json();
    assert_eq!(json["latency_us"]["mean"].to_string(), "0.0", "{json}");
}

#[test]
fn counts_of_one_have_no_plural() {
    let server = Server::start(&[]);
    let address = server.address.to_string();
    let finished = annulus(["load", &address, "-c", "1", "-n", "1", "--think", "10ms"]);
    let text = finished.stdout;
    for part in ["1 connection × 512 bytes", "of 1 group of requests"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}
