//! `annulus echo --workers`: the distribution of connections, statistics, and usage errors.

use crate::common::{ANNULUS, Server, annulus, drivers, finish, noise, round_trip};
use annulus_load::affinity;
use annulus_skip::skip;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;

/// How long an answer may take before the test fails.
const ANSWER_TIMEOUT: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

fn worker_drivers() -> impl Iterator<Item = &'static str> {
    drivers().into_iter().filter(|driver| *driver != "threads")
}

fn figures(stats: &Value, name: &str) -> Vec<u64> {
    let workers = stats["workers"].as_array().unwrap();
    workers.iter().map(|worker| worker[name].as_u64().unwrap()).collect()
}

#[test]
fn connections_go_to_the_worker_with_the_fewest_and_counts_add_up() {
    for driver in worker_drivers() {
        let server = Server::start(&["--driver", driver, "--workers", "3", "--stats", "-"]);
        assert!(server.ready.contains("3 workers"), "{}", server.ready);
        let mut streams: Vec<_> = (0..12).map(|_| server.connect()).collect();
        streams.iter_mut().for_each(|stream| round_trip(stream, &noise(100)));
        streams.iter().for_each(|stream| stream.shutdown(Shutdown::Write).unwrap());
        let finished = server.stop();
        assert_eq!(finished.code, Some(0), "{finished:?}");
        let stats = finished.json();
        assert_eq!(figures(&stats, "connections"), [4, 4, 4], "{driver}: {stats}");
        assert_eq!(figures(&stats, "bytes"), [400, 400, 400], "{driver}: {stats}");
        assert_eq!((&stats["connections"], &stats["bytes"]), (&12.into(), &1200.into()));
        let enters: u64 = (0..3)
            .map(|worker| stats["workers"][worker]["counters"]["enters"].as_u64().unwrap())
            .sum();
        assert_eq!(stats["counters"]["enters"], enters, "{stats}");
    }
}

#[test]
fn the_kernel_can_distribute_connections() {
    for driver in worker_drivers() {
        for spread in ["hash", "cpu"] {
            let args = ["--driver", driver, "--workers", "3", "--spread", spread, "--stats", "-"];
            let server = Server::start(&args);
            let mut streams: Vec<_> = (0..30).map(|_| server.connect()).collect();
            streams.iter_mut().for_each(|stream| round_trip(stream, &noise(100)));
            let stats = server.stop().json();
            assert_eq!(figures(&stats, "connections").iter().sum::<u64>(), 30, "{stats}");
        }
    }
}

/// Counts the open sockets of a server.
fn sockets(server: &Server) -> usize {
    let directory = format!("/proc/{}/fd", server.pid().as_raw_nonzero());
    let links =
        fs::read_dir(directory).unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// Waits until a client has been answered, removes it from `clients`, and returns it.
fn answered(clients: &mut Vec<TcpStream>) -> TcpStream {
    let mut polled: Vec<_> =
        clients.iter().map(|client| PollFd::new(client, PollFlags::IN)).collect();
    assert_ne!(
        poll(&mut polled, Some(&ANSWER_TIMEOUT)).unwrap(),
        0,
        "no client was answered in time"
    );
    let first = polled.iter().position(|polled| !polled.revents().is_empty()).unwrap();
    clients.swap_remove(first)
}

#[test]
fn workers_together_respect_the_connection_limit() {
    let most = 4;
    for driver in drivers() {
        let ways: &[&[&str]] = match driver {
            "threads" => &[&[]],
            _ => &[&[], &["--workers", "3"], &["--workers", "3", "--spread", "hash"]],
        };
        for way in ways {
            let limit = most.to_string();
            let args = [&["--driver", driver, "--max-connections", &limit], *way].concat();
            let server = Server::start(&args);
            println!("{args:?}");
            let listeners = sockets(&server);
            let mut clients: Vec<_> = (0..60).map(|_| server.connect()).collect();
            clients.iter_mut().for_each(|client| client.write_all(b"hello").unwrap());
            let mut served = VecDeque::new();
            while !clients.is_empty() {
                let mut client = answered(&mut clients);
                client.read_exact(&mut [0; 5]).unwrap();
                served.push_back(client);
                let open = sockets(&server) - listeners;
                assert!(open <= most, "{args:?}: {open} connections");
                if served.len() == most {
                    served.pop_front();
                }
            }
        }
    }
}

#[test]
fn more_workers_than_cpus_print_a_warning() {
    let cpu = affinity::allowed().unwrap()[0].to_string();
    let server = Server::start(&["--workers", "3", "--pin", &cpu]);
    assert!(server.ready.contains("3 workers, 1 CPU)"), "{}", server.ready);
    round_trip(&mut server.connect(), b"all the same");
    let finished = server.stop();
    assert_eq!(finished.code, Some(0));
    for part in ["warning: more workers (3) than CPUs (1)", "they share"] {
        assert!(finished.stderr.contains(part), "'{part}' is not in: {}", finished.stderr);
    }
    assert!(finished.stderr.lines().all(|line| line.chars().count() <= 80), "{}", finished.stderr);
}

#[test]
fn a_locked_down_server_has_a_ring_per_worker() {
    if !drivers().contains(&"uring") {
        return skip!("the uring driver does not work here");
    }
    let server =
        Server::start(&["--workers", "3", "--locked-down", "--driver", "uring", "--stats", "-"]);
    let mut streams: Vec<_> = (0..6).map(|_| server.connect()).collect();
    streams.iter_mut().for_each(|stream| round_trip(stream, &noise(100_000)));
    let stats = server.stop().json();
    for worker in stats["workers"].as_array().unwrap() {
        assert_eq!((&worker["driver"], &worker["connections"]), (&"uring".into(), &2.into()));
    }
}

#[test]
fn a_port_in_use_is_not_shared() {
    let server = Server::start(&["--workers", "2", "--spread", "hash"]);
    let address = server.address.to_string();
    for spread in ["hash", "least-connections"] {
        let finished =
            annulus(["echo", "--listen", &address, "--workers", "2", "--spread", spread]);
        finished.fails_with(1, &[&address, "in use"]);
    }
}

#[test]
fn too_low_open_file_limit_for_the_workers_is_reported() {
    let script =
        format!("ulimit -n 200 && exec {ANNULUS} echo --workers 100 --max-connections 100");
    finish(Command::new("sh").args(["-c", &script])).fails_with(1, &["limit is 200", "ulimit"]);
}

#[test]
fn invalid_values_are_refused() {
    for (args, parts) in [
        (&["--workers", "0"][..], &["'0'", "--workers", "1..=1024"][..]),
        (&["--workers", "1025"], &["'1025'", "1..=1024"]),
        (&["--spread", "evenly"], &["`evenly`", "least-connections, hash, cpu"]),
        (&["--pin", "0,1"], &["2 CPUs", "1 worker", "--workers"]),
        (&["--pin", "zero"], &["'zero'", "--pin"]),
        (&["--workers", "2", "--driver", "threads"], &["--workers", "threads", "leave one"]),
    ] {
        annulus([&["echo"], args].concat()).fails_with(2, parts);
    }
    let nowhere = annulus(["echo", "--workers", "2", "--pin", "0,100000"]);
    nowhere.fails_with(1, &["CPU 100000", "may use"]);
}
