//! `examples/cluster.rs`, ported to tokio and the network that turmoil simulates.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};
use turmoil::net::UdpSocket;

const NODES: [&str; 5] =
    ["10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.3:7000", "10.0.0.4:7000", "10.0.0.5:7000"];
const HEARTBEAT: Duration = Duration::from_millis(50);

/// The leader of each term.
type Leaders = Rc<RefCell<BTreeMap<u64, SocketAddr>>>;

fn main() -> turmoil::Result {
    let seed = std::env::args().nth(1).unwrap_or("42".into()).parse()?;
    let millis = Duration::from_millis;
    let mut sim = turmoil::Builder::new()
        .rng_seed(seed)
        .simulation_duration(Duration::from_secs(100))
        .min_message_latency(millis(2))
        .max_message_latency(millis(22))
        .fail_rate(0.05)
        .repair_rate(0.5)
        .build();
    let nodes: [SocketAddr; 5] = NODES.map(|node| node.parse().unwrap());
    let leaders = Leaders::default();
    for (index, node) in nodes.into_iter().enumerate() {
        let leaders = leaders.clone();
        sim.host(node.ip(), move || {
            let random = fastrand::Rng::with_seed(seed ^ index as u64);
            let run = run(node, nodes, random, leaders.clone());
            async { Ok(run.await?) }
        });
    }
    sim.client("cuts", async move {
        let mut cut_off: Option<(u64, SocketAddr)> = None;
        for _ in 0..10 {
            sleep(Duration::from_secs(5)).await;
            let (term, leader) = leaders.borrow().clone().pop_last().expect("there is no leader");
            println!("{leader} leads term {term}, and is cut off");
            let others = |leader| nodes.into_iter().filter(move |node| *node != leader);
            if let Some((last, former)) = cut_off.replace((term, leader)) {
                assert!(term > last && leader != former, "the rest elected no other leader");
                others(former).for_each(|node| turmoil::repair(former.ip(), node.ip()));
            }
            others(leader).for_each(|node| turmoil::partition(leader.ip(), node.ip()));
        }
        Ok(())
    });
    sim.run()
}

#[derive(PartialEq)]
enum Role {
    Follower,
    /// A candidate, with the nodes that have voted for it.
    Candidate(BTreeSet<SocketAddr>),
    Leader,
}

/// A node. It votes once per term, for the first candidate that asks, and leads once it has a
/// majority of the votes. After some time without a leader, it becomes a candidate itself.
async fn run(
    own: SocketAddr,
    nodes: [SocketAddr; 5],
    mut random: fastrand::Rng,
    leaders: Leaders,
) -> io::Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", own.port())).await?;
    let mut buffer = [0; 64];
    let (mut term, mut vote, mut role) = (0, None, Role::Follower);
    let mut patience = || Instant::now() + HEARTBEAT * random.u32(4..12);
    let mut deadline = patience();
    loop {
        let Ok(received) = timeout_at(deadline, socket.recv_from(&mut buffer)).await else {
            if role == Role::Leader {
                deadline = Instant::now() + HEARTBEAT;
            } else {
                (term, vote, deadline) = (term + 1, Some(own), patience());
                role = Role::Candidate([own].into());
            }
            let word = if role == Role::Leader { "lead" } else { "elect me" };
            tell(&socket, &nodes, term, word).await?;
            continue;
        };
        let (length, from) = received?;
        let message = str::from_utf8(&buffer[..length]).map_err(io::Error::other)?;
        let (sent_term, word) = message.split_once(' ').ok_or(io::ErrorKind::InvalidData)?;
        let sent_term = sent_term.parse().map_err(io::Error::other)?;
        if sent_term > term {
            (term, vote, role) = (sent_term, None, Role::Follower);
        }
        match (word, &mut role) {
            _ if sent_term < term || from == own => {}
            ("elect me", Role::Follower) if vote.is_none_or(|vote| vote == from) => {
                (vote, deadline) = (Some(from), patience());
                tell(&socket, &[from], term, "yes").await?;
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

async fn tell(socket: &UdpSocket, to: &[SocketAddr], term: u64, word: &str) -> io::Result<()> {
    for &node in to {
        socket.send_to(format!("{term} {word}").as_bytes(), node).await?;
    }
    Ok(())
}
