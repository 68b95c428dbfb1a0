//! How much throughput and latency two shards gain when connections move from the busy shard to the
//! idle one. Needs two cores; rounds alternate between balanced and unbalanced.

#[path = "../tests/suite/balance/skewed.rs"]
mod skewed;

use annulus::shards::{Pinning, Shards};
use annulus::time::Instant;
use skewed::skewed;
use std::time::Duration;

const ROUNDS: usize = 6;
const CLIENTS: u64 = 8;
/// Rounds of work per request: about 30 µs.
const WORK: u64 = 100_000;
const SLICE: Duration = Duration::from_secs(1);

fn main() {
    println!("round, balanced: requests per second, p50, p99, moves");
    for round in 0..ROUNDS {
        for balanced in [false, true] {
            let began = Instant::now();
            let is_enough = move |_| began.elapsed() > SLICE;
            let shards = Shards::new(2).pinning(Pinning::Each);
            let (moves, mut took) = skewed(shards, balanced, CLIENTS, WORK, is_enough);
            let rate = took.len() as f64 / began.elapsed().as_secs_f64();
            took.sort_unstable();
            let [p50, p99] = [50, 99].map(|percent| took[took.len() * percent / 100]);
            println!("{round}, {balanced}: {rate:.0}/s, {p50:.1?}, {p99:.1?}, {moves} moves");
        }
    }
}
