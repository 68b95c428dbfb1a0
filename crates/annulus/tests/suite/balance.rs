//! Connections move from a busy shard to an idle one: which ones move, and that no byte is lost.
//! `cargo bench -p annulus --bench balance` measures the gain.

mod skewed;

use crate::common::drivers;
use annulus::Runtime;
use annulus::shards::Balance;
use annulus::sim::{Sim, run_on};
use skewed::skewed;
use std::io;
use std::time::Duration;

#[test]
fn connections_of_the_busy_shard_move_and_lose_no_byte() {
    for shards in drivers() {
        let (moves, took) = skewed(shards(2), true, 4, 0, |moves| moves >= 2);
        assert!(moves >= 2 && took.len() > 4, "{moves} moves, {} requests", took.len());
    }
}

/// Keeps connections on the shards `at`, and counts a request of each every 10 ms of virtual time
/// for two seconds. Returns the number of connections per shard at the end, and the number of
/// moves.
fn settled(shards: usize, at: &[usize]) -> (Vec<usize>, usize) {
    let sim = Sim::builder(1).build();
    let settle = async {
        let balance = Balance::new(shards);
        let mut all: Vec<_> = at.iter().map(|at| (*at, balance.connection(*at))).collect();
        let mut moves = 0;
        for _ in 0..200 {
            for (at, connection) in &mut all {
                if let Some(to) = connection.count() {
                    moves += 1;
                    (*at, *connection) = (to, balance.connection(to));
                }
            }
            annulus::time::sleep(Duration::from_millis(10)).await;
        }
        let count = |shard| all.iter().filter(|(at, _)| *at == shard).count();
        io::Result::Ok(((0..shards).map(count).collect(), moves))
    };
    run_on(&sim, Runtime::builder(), settle).unwrap()
}

#[test]
fn connections_settle_and_then_none_moves() {
    assert_eq!(settled(2, &[0; 8]), (vec![4, 4], 4));
    assert_eq!(settled(2, &[0, 0, 0, 1]), (vec![2, 2], 1));
    assert_eq!(settled(2, &[0]), (vec![1, 0], 0), "the only connection moved");
    assert_eq!(
        settled(2, &[0, 1, 0]),
        (vec![2, 1], 0),
        "a connection moved for a difference of one"
    );
    assert_eq!(settled(1, &[0; 4]), (vec![4], 0));
    assert_eq!(settled(4, &[2; 16]), (vec![4; 4], 12));
}
