//! Helpers shared by the models of streams and datagrams: bytes determined by their position,
//! settings from the smallest to the usual ones, and the time limit for everything.

use annulus::sim::{Sim, run_on};
use annulus::task::JoinSet;
use annulus::time::timeout;
use annulus::{Builder, DriverChoice, MemoryLimit, Runtime};
use annulus_skip::skip;
use fastrand::Rng;
use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

/// Time limit for all work of a runtime, even under emulation.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn byte(at: usize) -> u8 {
    (at * 31 % 251) as u8 ^ (at >> 10) as u8
}

pub(crate) fn bytes(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(byte).collect()
}

/// Returns random settings, from the smallest to the usual ones, and the maximum bytes per
/// direction, which is lower if a bound is small.
pub(crate) fn settings(rng: &mut Rng) -> (Builder, usize) {
    let (mut builder, mut most) = (Runtime::builder(), 400_000);
    if rng.bool() {
        let bound = *rng.choice(&[1, 100, 5000, 70_000]).expect("nothing to choose from");
        (builder, most) = (builder.unread_limit(bound), most.min(bound * 1000));
    }
    if rng.bool() {
        let bound = *rng.choice(&[1, 100, 5000, 70_000]).expect("nothing to choose from");
        (builder, most) = (builder.unsent_limit(bound), most.min(bound * 1000));
    }
    if rng.bool() {
        builder = builder.task_budget(*rng.choice(&[1, 2, 7]).expect("nothing to choose from"));
    }
    if rng.bool() {
        builder = builder
            .stream_buffer_size(4096)
            .stream_buffer_count(*rng.choice(&[1, 4, 64]).expect("nothing to choose from"));
    }
    if rng.bool() {
        builder = builder
            .datagram_buffer_size(68 * 1024)
            .datagram_buffer_count(*rng.choice(&[1, 4, 64]).expect("nothing to choose from"));
    }
    if rng.u8(..4) == 0 {
        builder = builder.memory_limit(Some(MemoryLimit::new(
            *rng.choice(&[1 << 20, 8 << 20]).expect("nothing to choose from"),
        )));
    }
    (builder, most)
}

/// Returns settings with a ring of 1, 2 or 4 entries and a memory limit that many connections
/// reach.
pub(crate) fn small_ring_settings(rng: &mut Rng) -> (Builder, usize) {
    let (builder, most) = settings(rng);
    let entries = *rng.choice(&[1, 2, 4]).expect("nothing to choose from");
    let limit = *rng.choice(&[1 << 20, 2 << 20]).expect("nothing to choose from");
    let builder = builder.sq_entries(entries).cq_entries(entries);
    (builder.memory_limit(Some(MemoryLimit::new(limit))), most)
}

/// Waits until all tasks have succeeded, up to the time limit, and then until all threads have.
pub(crate) async fn end(
    mut tasks: JoinSet<io::Result<()>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
) -> io::Result<()> {
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            ended.expect("the task panicked")?;
        }
        io::Result::Ok(())
    };
    let ended = timeout(PATIENCE, all).await;
    ended
        .unwrap_or_else(|_| Err(io::Error::other(format!("{} tasks wait forever", tasks.len()))))?;
    threads.into_iter().try_for_each(|thread| thread.join().expect("the thread panicked"))
}

/// Runs traffic with this many seeds on a driver, each with its own settings. `traffic` gets its
/// random generator and the maximum bytes per direction.
pub(crate) fn on_driver<F: Future<Output = io::Result<()>>>(
    driver: DriverChoice,
    seeds: u64,
    settings: impl Fn(&mut Rng) -> (Builder, usize),
    traffic: impl Fn(Rng, usize) -> F,
) {
    if Runtime::builder().driver(driver).build().is_err() {
        return skip!("no {driver} here");
    }
    with_seeds(seeds, settings, |seed, builder, rng, most| {
        let mut runtime = builder.driver(driver).build().unwrap();
        let ran = runtime.block_on(traffic(rng, most));
        ran.unwrap_or_else(|error| panic!("{driver}, seed {seed}: {error}"));
    });
}

/// Like [`on_driver`], but simulated.
pub(crate) fn simulated<F: Future<Output = io::Result<()>>>(
    seeds: u64,
    settings: impl Fn(&mut Rng) -> (Builder, usize),
    traffic: impl Fn(Rng, usize) -> F,
) {
    with_seeds(seeds, settings, |seed, builder, rng, most| {
        let ran = run_on(&Sim::builder(seed).build(), builder, traffic(rng, most));
        ran.unwrap_or_else(|error| panic!("simulated, seed {seed}: {error}"));
    });
}

/// Calls `run` with each seed, its settings, its random generator, and the maximum bytes per
/// direction.
fn with_seeds(
    seeds: u64,
    settings: impl Fn(&mut Rng) -> (Builder, usize),
    run: impl Fn(u64, Builder, Rng, usize),
) {
    assert!(seeds > 0, "no seed would run");
    for seed in 0..seeds {
        let mut rng = Rng::with_seed(seed);
        let (builder, most) = settings(&mut rng);
        run(seed, builder, rng, most);
    }
}
