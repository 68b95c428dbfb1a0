//! Peers that never read, beside clients that do, with little memory: nothing is killed, every ping is answered in about
//! the time it takes without them, and the memory goes back when they have left.
#![allow(dead_code)]

#[path = "../cli/common.rs"]
mod common;
mod crowd;
mod group;
mod pingers;

use common::{ANNULUS, Server};
use crowd::Crowd;
use group::Group;
use pingers::{Pingers, p99};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Memory that a process has.
fn resident(server: &Server) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", server.pid().as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

fn sockmem() -> String {
    let text = std::fs::read_to_string("/proc/net/sockstat").unwrap();
    text.lines().find(|l| l.starts_with("TCP:")).unwrap().to_owned()
}

#[test]
#[ignore]
fn explore() {
    let args: Vec<String> =
        std::env::var("ARGS").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let count = std::env::var("COUNT").ok().and_then(|c| c.parse().ok()).unwrap_or(1000);
    let limit: u64 = std::env::var("LIMIT").ok().and_then(|c| c.parse().ok()).unwrap_or(256);
    let program = std::env::var("PROGRAM").unwrap_or(ANNULUS.into());
    annulus_load::limits::reserve(count + 200).unwrap();
    let group = Group::new("memory", limit * MIB).unwrap();
    let all: Vec<&str> = ["echo", "--listen", "127.0.0.1:0"]
        .into_iter()
        .chain(args.iter().map(String::as_str))
        .collect();
    let server = Server::spawn(&mut group.command(&program, &all));
    eprintln!("ready: rss {} MiB group {} MiB", resident(&server) / MIB, group.usage() / MIB);
    let pingers = Pingers::start(server.address, 50);
    std::thread::sleep(Duration::from_secs(5));
    let alone = pingers.take();
    eprintln!(
        "alone: {} pings, p50 {:?} p99 {:?} max {:?}",
        alone.len(),
        alone[alone.len() / 2],
        p99(&alone),
        alone.last()
    );
    let start = Instant::now();
    let crowd = Crowd::gather(server.address, count);
    eprintln!("gathered in {:?}", start.elapsed());
    let bytes = crowd.until_blocked();
    eprintln!("blocked after {:?}, {} MiB taken", start.elapsed(), bytes / MIB);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_secs(5));
        let beside = pingers.take();
        eprintln!(
            "beside: {} pings, p50 {:?} p99 {:?} max {:?}; rss {} group {} peak {} MiB kills {}",
            beside.len(),
            beside[beside.len() / 2],
            p99(&beside),
            beside.last(),
            resident(&server) / MIB,
            group.usage() / MIB,
            group.peak() / MIB,
            group.kills()
        );
        eprintln!("{}", sockmem());
    }
    drop(crowd);
    let gone = Instant::now();
    for _ in 0..14 {
        std::thread::sleep(Duration::from_secs(5));
        let after = pingers.take();
        eprintln!(
            "{:?} after: rss {} KiB group {} MiB p99 {:?}",
            gone.elapsed(),
            resident(&server) / 1024,
            group.usage() / MIB,
            p99(&after)
        );
    }
    pingers.stop();
    let said = server.stop();
    eprintln!("{said:?}");
}
