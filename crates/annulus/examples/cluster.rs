//! A simulated cluster: five nodes elect a leader over a network that delays, loses and duplicates
//! datagrams, and that gets partitioned. Run `cargo run --release -p annulus --example cluster --
//! 42`
//!
//! The nodes are written as for real machines. The number is the seed: it determines what the
//! network does, and the same number gives the same run. The 50 seconds of virtual time take
//! milliseconds, since the time that all nodes spend waiting is skipped.

use annulus::net::UdpSocket;
use annulus::sim::{Link, Sim, run_on};
use annulus::time::{Instant, sleep, timeout_at};
use annulus::{Runtime, spawn};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

const NODES: [&str; 5] =
    ["10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.3:7000", "10.0.0.4:7000", "10.0.0.5:7000"];
const HEARTBEAT: Duration = Duration::from_millis(50);

/// The leader of each term.
type Leaders = Rc<RefCell<BTreeMap<u64, SocketAddr>>>;

fn main() -> io::Result<()> {
    let seed = std::env::args().nth(1).unwrap_or("42".into()).parse().map_err(io::Error::other)?;
    let millis = Duration::from_millis;
    let (latency, jitter, loss, duplication) = (millis(2), millis(20), 50, 50);
    let link = Link { latency, jitter, loss, duplication, ..Link::default() };
    let sim = Sim::builder(seed).link(link).build();
    run_on(&sim, Runtime::builder(), async {
        let (nodes, leaders) = (NODES.map(|node| node.parse().unwrap()), Leaders::default());
        for (index, node) in nodes.into_iter().enumerate() {
            let random = fastrand::Rng::with_seed(seed ^ index as u64);
            spawn(run(node, nodes, random, leaders.clone()));
        }
        let mut cut_off: Option<(u64, SocketAddr)> = None;
        for _ in 0..10 {
            sleep(Duration::from_secs(5)).await;
            let (term, leader) =
                leaders.borrow().clone().pop_last().expect("no leader was elected");
            println!("{leader} leads term {term}, and is cut off");
            if let Some((last, former)) = cut_off.replace((term, leader)) {
                assert!(term > last && leader != former, "the nodes did not elect another leader");
                nodes.iter().for_each(|node| sim.repair(former.ip(), node.ip()));
            }
            nodes.iter().for_each(|node| sim.partition(leader.ip(), node.ip()));
        }
        Ok(())
    })
}

#[derive(PartialEq)]
enum Role {
    Follower,
    /// A candidate, with the nodes that have voted for it.
    Candidate(BTreeSet<SocketAddr>),
    Leader,
}

/// Runs a node. It votes once per term, for the first candidate that asks, and leads once it has a
/// majority of the votes. After some time without a leader, it becomes a candidate itself.
async fn run(
    own: SocketAddr,
    nodes: [SocketAddr; 5],
    mut random: fastrand::Rng,
    leaders: Leaders,
) -> io::Result<()> {
    let socket = UdpSocket::bind(own)?;
    let (mut term, mut vote, mut role) = (0, None, Role::Follower);
    let mut patience = || Instant::now() + HEARTBEAT * random.u32(4..12);
    let mut deadline = patience();
    loop {
        let Ok(received) = timeout_at(deadline, socket.recv_from()).await else {
            if role == Role::Leader {
                deadline = Instant::now() + HEARTBEAT;
            } else {
                (term, vote, deadline) = (term + 1, Some(own), patience());
                role = Role::Candidate([own].into());
            }
            let word = if role == Role::Leader { "lead" } else { "elect me" };
            send(&socket, &nodes, term, word).await?;
            continue;
        };
        let (message, from) = received?;
        let message = str::from_utf8(&message).map_err(io::Error::other)?;
        let (sent_term, word) = message.split_once(' ').ok_or(io::ErrorKind::InvalidData)?;
        let sent_term = sent_term.parse().map_err(io::Error::other)?;
        if sent_term > term {
            (term, vote, role) = (sent_term, None, Role::Follower);
        }
        match (word, &mut role) {
            _ if sent_term < term || from == own => {}
            ("elect me", Role::Follower) if vote.is_none_or(|vote| vote == from) => {
                (vote, deadline) = (Some(from), patience());
                send(&socket, &[from], term, "yes").await?;
            }
            ("yes", Role::Candidate(votes)) => {
                votes.insert(from);
                if votes.len() > nodes.len() / 2 {
                    (role, deadline) = (Role::Leader, Instant::now());
                    let other = leaders.borrow_mut().insert(term, own);
                    assert_eq!(other, None, "two leaders in term {term}");
                }
            }
            ("lead", _) => (role, deadline) = (Role::Follower, patience()),
            _ => {}
        }
    }
}

async fn send(socket: &UdpSocket, to: &[SocketAddr], term: u64, word: &str) -> io::Result<()> {
    for &node in to {
        socket.send_to(format!("{term} {word}"), node).await?;
    }
    Ok(())
}
