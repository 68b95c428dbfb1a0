//! Memory limits under a flood: peers that send and never read, beside clients that do read, on a
//! server with little memory. No process is killed, the server's memory is bounded, every byte is
//! correct, and the memory is released afterwards. `cargo bench -p annulus-cli --bench
//! memory_flood` prints figures of a larger flood.

pub(crate) mod flooding_peers;
mod late_reader;
#[allow(dead_code, reason = "the benchmark uses more of it")]
pub(crate) mod memory_cgroup;
#[allow(dead_code, reason = "the benchmark uses more of it")]
pub(crate) mod pingers;

use crate::common::{ANNULUS, Server, drivers, finish};
use annulus_load::clock;
use flooding_peers::FloodingPeers;
use late_reader::LateReader;
use memory_cgroup::MemoryCgroup;
use pingers::{Pingers, median};
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

pub(crate) const MIB: u64 = 1 << 20;
/// The memory limit of the control group. A quarter of it is the server's own default limit.
pub(crate) const CGROUP_LIMIT_BYTES: u64 = 256 * MIB;
/// The memory limit of the flooded server. The default limit would not be reached, because streams
/// are restricted long before it.
const SERVER_LIMIT: &str = "16M";
const SERVER_LIMIT_BYTES: u64 = 16 * MIB;
/// Memory of a server in addition to [`SERVER_LIMIT_BYTES`]: its tasks, and what the allocator
/// keeps.
const MAX_OTHER_BYTES: u64 = 32 * MIB;
const MAX_RESTING_BYTES: u64 = 8 * MIB;
const LIMITED_PEERS: usize = 300;
/// Flooding peers of a server with the default limit, which may use [`MAX_DEFAULT_BYTES`]
/// meanwhile.
const DEFAULT_PEERS: usize = 500;
const MAX_DEFAULT_BYTES: u64 = 48 * MIB;
/// How many floods to try: one of them must stay below the maximum. A server that has to wait for
/// its core receives more per turn, so it may use more memory on a busy machine.
const MAX_FLOODS: usize = 4;
const SOCKET_BUFFER_BYTES: usize = 16 << 10;
const PINGERS: usize = 20;
/// The number of pings of all pingers together in one phase.
const PINGS_PER_PHASE: usize = 400;
/// How often to check for an event in another process.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long any event may take before the test fails.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a memory figure in bytes, such as `RssAnon`, from the status of the server's process.
pub(crate) fn memory(server: &Server, name: &str) -> u64 {
    let path = format!("/proc/{}/status", server.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(path).expect("cannot read the status of the server");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|rest| rest.trim_start_matches(':').trim().strip_suffix("kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()).expect("the figure is not in kB") * 1024
}

/// Returns the peak memory of a server in bytes, without the pages of its executable: how many of
/// those are resident depends on how the page cache holds the file.
fn peak_memory(server: &Server) -> u64 {
    memory(server, "VmHWM").saturating_sub(memory(server, "RssFile"))
}

/// Waits until `holds` returns true. Fails after [`WAIT_TIMEOUT`].
#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = clock::now() + WAIT_TIMEOUT;
    while !holds() {
        assert!(clock::now() < deadline, "timed out: {what}");
        sleep(POLL_INTERVAL);
    }
}

/// Creates a group for a driver's servers. If this machine does not allow it, prints why and
/// returns `None`.
fn group(driver: &str, limit: u64) -> Option<MemoryCgroup> {
    match MemoryCgroup::new(&format!("memory-{driver}"), limit) {
        Ok(group) => Some(group),
        Err(why) => {
            _ = writeln!(std::io::stderr(), "skipped: a server with little memory: {why}");
            None
        }
    }
}

fn driver_works(driver: &str) -> bool {
    drivers().contains(&driver)
}

fn serve(group: &MemoryCgroup, args: &[&str]) -> Server {
    let listen = ["echo", "--listen", "127.0.0.1:0"];
    Server::spawn(&mut group.command(ANNULUS, &[&listen, args].concat()))
}

#[test]
fn epoll_server_under_flood_stays_below_its_limit_and_serves_other_clients() {
    check_flood_is_bounded("epoll");
}

#[test]
fn uring_server_under_flood_stays_below_its_limit_and_serves_other_clients() {
    check_flood_is_bounded("uring");
}

fn check_flood_is_bounded(driver: &str) {
    let Some(group) = driver_works(driver).then(|| group(driver, CGROUP_LIMIT_BYTES)).flatten()
    else {
        return;
    };
    annulus_load::limits::reserve(2 * LIMITED_PEERS + DEFAULT_PEERS + 300)
        .expect("too few descriptors");
    let said = finish(&mut group.command(ANNULUS, &["doctor"]));
    assert!(said.stdout.contains("64 MiB"), "the limit is not a quarter of the group's: {said:?}");
    let server = flood(&group, driver);
    wait_until("the memory is released", || memory(&server, "RssAnon") <= MAX_RESTING_BYTES);
    let said = server.stop();
    assert_eq!(said.code, Some(0), "{said:?}");
    let pauses = said.json()["workers"][0]["counters"]["memory_pauses"].as_u64();
    assert!(pauses > Some(0), "{driver}: no stream was paused: {said:?}");
}

/// The default limit depends on the machine's memory, and the flood does not reach it.
#[test]
fn server_with_default_limits_and_500_flooding_peers_stays_small() {
    annulus_load::limits::reserve(2 * LIMITED_PEERS + DEFAULT_PEERS + 300)
        .expect("too few descriptors");
    for driver in ["epoll", "uring"].into_iter().filter(|driver| driver_works(driver)) {
        let is_little = |_| flood_by_default(driver) <= MAX_DEFAULT_BYTES;
        assert!((0..MAX_FLOODS).any(is_little), "{driver}: above {} MiB", MAX_DEFAULT_BYTES / MIB);
    }
}

/// Floods a server with default options and returns its peak memory.
fn flood_by_default(driver: &str) -> u64 {
    let server = Server::start(&["--driver", driver]);
    let peers =
        FloodingPeers::connect_all(server.address, DEFAULT_PEERS, Some(SOCKET_BUFFER_BYTES));
    let pingers = Pingers::start(server.address, PINGERS);
    wait_until("all peers wait", || {
        let before = peers.sent();
        pingers.next(PINGS_PER_PHASE, WAIT_TIMEOUT);
        before > 0 && peers.sent() == before
    });
    let peak = peak_memory(&server);
    println!("{driver}: {} MiB at most", peak / MIB);
    pingers.stop();
    peak
}

/// Returns a server that has been flooded, and has served its other clients meanwhile.
fn flood(group: &MemoryCgroup, driver: &str) -> Server {
    let server =
        serve(group, &["--driver", driver, "--memory-limit", SERVER_LIMIT, "--stats", "-"]);
    let pingers = Pingers::start(server.address, PINGERS);
    // The control is not flooded: its pings also take longer when the machine is busy.
    let control = serve(group, &["--driver", driver]);
    let controls = Pingers::start(control.address, PINGERS);
    let quiet = pingers.next(PINGS_PER_PHASE, WAIT_TIMEOUT);
    let late = LateReader::start(server.address);
    let peers =
        FloodingPeers::connect_all(server.address, LIMITED_PEERS, Some(SOCKET_BUFFER_BYTES));
    let mut beside = pingers.next(PINGS_PER_PHASE, WAIT_TIMEOUT);
    wait_until("all peers wait", || {
        let before = peers.sent();
        beside = pingers.next(PINGS_PER_PHASE, WAIT_TIMEOUT);
        peers.sent() == before
    });
    late.read_all();
    drop(peers);
    drop(controls.take());
    let after = pingers.next(PINGS_PER_PHASE, WAIT_TIMEOUT);
    let meanwhile = controls.take();
    let peak = peak_memory(&server);
    assert_eq!(group.kills(), 0, "{driver}: a process was killed");
    assert!(peak <= SERVER_LIMIT_BYTES + MAX_OTHER_BYTES, "{driver}: {} MiB at most", peak / MIB);
    let (before, now) = (median(&quiet), median(&after));
    let usual = before.max(median(&meanwhile));
    assert!(now <= 25 * usual, "{driver}: pings take {now:?}, and usually {usual:?}");
    println!(
        "{driver}: {} MiB at most; pings {before:?} before, {:?} beside, {now:?} after",
        peak / MIB,
        median(&beside),
    );
    pingers.stop();
    controls.stop();
    server
}
