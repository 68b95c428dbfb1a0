//! Measures the memory and latency of an echo server while many peers send without reading. The
//! flood is larger and longer than in the tests. Needs root and a memory control group.
//!
//! Environment variables: `COUNT` is the number of peers, `BUFFER` the size of their socket buffers
//! in bytes, `ARGS` the server's arguments, `PROGRAM` the server to run instead of the one just
//! built, and `QUIET` the length of the last phase in seconds.

#![allow(dead_code, reason = "it shares helpers with the tests and does not use all")]

#[path = "../tests/cli/common.rs"]
mod common;
#[path = "../tests/cli/memory_flood/mod.rs"]
mod memory_flood;

use common::{ANNULUS, Server};
use memory_flood::flooding_peers::FloodingPeers;
use memory_flood::memory_cgroup::MemoryCgroup;
use memory_flood::pingers::{Pingers, median, p99};
use memory_flood::{CGROUP_LIMIT_BYTES, MIB, memory};
use std::env::var;
use std::time::Duration;

/// Number of floods, with a pause after each.
const FLOOD_ROUNDS: usize = 3;
const PINGERS: usize = 50;

/// Returns the number of pages that all TCP sockets of the machine use, as text.
fn socket_pages() -> String {
    let text = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("TCP:")).unwrap_or_default();
    line.split(' ').next_back().unwrap_or_default().to_owned()
}

struct Phases<'a> {
    server: &'a Server,
    group: &'a MemoryCgroup,
    pingers: Pingers,
}

impl Phases<'_> {
    /// Pings for this many seconds, then prints latencies and memory.
    fn phase(&self, name: &str, seconds: u64) {
        drop(self.pingers.take());
        std::thread::sleep(Duration::from_secs(seconds));
        let times = self.pingers.take();
        let (middle, slow) = match times.len() {
            0 => Default::default(),
            _ => (median(&times), p99(&times)),
        };
        println!(
            "{name:>8}: {:6} pings, p50 {middle:>10.1?} p99 {slow:>10.1?} max {:>10.1?}; RSS {:4} MiB, group {:4}, TCP {} pages, kills {}",
            times.len(),
            times.last().copied().unwrap_or_default(),
            memory(self.server, "VmRSS") / MIB,
            self.group.usage() / MIB,
            socket_pages(),
            self.group.kills(),
        );
    }
}

fn main() {
    let args = var("ARGS").unwrap_or_default();
    let count = var("COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(1000);
    let buffer = var("BUFFER").ok().and_then(|bytes| bytes.parse().ok());
    let program = var("PROGRAM").unwrap_or(ANNULUS.into());
    annulus_load::limits::reserve(count + 200).expect("too few descriptors");
    let group =
        MemoryCgroup::new("figures", CGROUP_LIMIT_BYTES).expect("cannot create a control group");
    let listen = ["echo", "--listen", "127.0.0.1:0"].into_iter();
    let all: Vec<&str> = listen.chain(args.split_whitespace()).collect();
    let server = Server::spawn(&mut group.command(&program, &all));
    let pingers = Pingers::start(server.address, PINGERS);
    let phases = Phases { server: &server, group: &group, pingers };
    for _ in 0..FLOOD_ROUNDS {
        phases.phase("alone", 4);
        let peers = FloodingPeers::connect_all(server.address, count, buffer);
        (0..4).for_each(|_| phases.phase("flood", 1));
        phases.phase("beside", 6);
        println!(
            "{} MiB were sent; peak of the group: {} MiB",
            peers.sent() / MIB,
            group.peak() / MIB
        );
        drop(peers);
        phases.phase("left", 2);
    }
    phases.phase("quiet", var("QUIET").ok().and_then(|text| text.parse().ok()).unwrap_or(60));
    phases.pingers.stop();
    println!("{:?}", server.stop());
}
