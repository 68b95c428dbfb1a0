//! A slow device must not stall the runtime. The test uses a real file system on a device that is
//! throttled to 2 MiB/s.
//!
//! It needs root, a loop device, `mkfs.ext4`, and a control group that limits block devices. If one
//! of these is missing, the test says so and is skipped. To measure how much the network latency
//! grows, in microseconds, run `cargo test --release -p annulus --test slow_device -- --ignored
//! --nocapture`.

#[path = "slow_device/disk.rs"]
mod disk;

use annulus::fs::{File, OpenOptions, Policy};
use annulus::net::TcpListener;
use annulus::time::sleep;
use annulus::{Runtime, spawn};
use annulus_skip::skip;
use disk::Disk;
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Number of bytes that a sync has to write: about one second of the device's time.
const DIRTY: usize = 2 * 1024 * 1024;
const TICK: Duration = Duration::from_millis(1);

/// Counts ticks of another task while a file is written and synced.
async fn ticks_beside_a_sync(path: &Path) -> io::Result<u64> {
    let ticks = Rc::new(Cell::new(0));
    let counted = ticks.clone();
    let ticker = spawn(async move {
        loop {
            sleep(TICK).await;
            counted.set(counted.get() + 1);
        }
    });
    let file = File::create(path).await?;
    file.write_all_at(vec![7; DIRTY], 0).await.0?;
    let before = ticks.get();
    file.sync_all().await?;
    let during = ticks.get() - before;
    ticker.abort();
    Ok(during)
}

#[test]
fn a_long_sync_blocks_tasks_only_if_inline() {
    let disk = match Disk::new() {
        Ok(disk) => disk,
        Err(missing) => return skip!("{missing}"),
    };
    let run = |policy, name: &str| {
        let mut runtime = Runtime::builder().file_policy(policy).build().unwrap();
        runtime.block_on(ticks_beside_a_sync(&disk.path().join(name))).unwrap()
    };
    assert_eq!(run(Policy::Inline, "inline"), 0, "a task ran beside an inline sync");
    let beside = run(Policy::Adaptive, "adaptive");
    assert!(beside > 50, "{beside} ticks of a millisecond beside a sync of about a second");
    let beside = run(Policy::Offload, "offload");
    assert!(beside > 50, "{beside} ticks");
}

/// Reads of data that is not in memory go off the loop automatically.
#[test]
fn cold_reads_block_no_task() {
    let disk = match Disk::new() {
        Ok(disk) => disk,
        Err(missing) => return skip!("{missing}"),
    };
    let path = disk.path().join("cold");
    std::fs::write(&path, vec![1; DIRTY]).unwrap();
    disk.forget(&path);
    let mut runtime = Runtime::builder().build().unwrap();
    let missed = runtime
        .block_on(async {
            let file = OpenOptions::new().read(true).open(&path).await?;
            let (read, _) = file.read_at(vec![0; 4096], 0).await;
            read?;
            let cold = annulus::counters().unwrap();
            let (read, _) = file.read_at(vec![0; 4096], 0).await;
            read?;
            let warm = annulus::counters().unwrap();
            Ok::<_, io::Error>((cold.file_misses, warm.file_misses))
        })
        .unwrap();
    assert_eq!(missed, (1, 1), "not only the first read missed the page cache");
}

/// The duration of a slice, and the policies of the slices. `None` is a server that writes nothing.
const SLICE: Duration = Duration::from_secs(1);
const SLICES: [Option<Policy>; 3] = [None, Some(Policy::Adaptive), Some(Policy::Inline)];

/// Serves one connection of pings, while writing and syncing a file over and over.
fn serve(policy: Option<Policy>, file: PathBuf, ready: mpsc::Sender<SocketAddr>) {
    let builder = Runtime::builder().file_policy(policy.unwrap_or_default());
    let served: io::Result<()> = builder.build().unwrap().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        ready.send(listener.local_addr()?).expect("the client waits for it");
        let (mut stream, _) = listener.accept().await?;
        if policy.is_some() {
            spawn(async move {
                let file = File::create(&file).await?;
                let mut piece = vec![7; 64 * 1024];
                for turn in 0.. {
                    let (written, back) = file.write_at(piece, turn % 64 * 65_536).await;
                    written?;
                    piece = back;
                    if turn % 4 == 3 {
                        file.sync_data().await?;
                    }
                }
                Ok::<(), io::Error>(())
            });
        }
        while let Some(lease) = stream.recv().await? {
            stream.send(lease).await?;
        }
        Ok(())
    });
    served.unwrap();
}

/// Returns the 99th percentile of pings, in microseconds.
#[allow(clippy::disallowed_methods, reason = "the client of a measurement has a clock of its own")]
fn p99_beside(policy: Option<Policy>, file: PathBuf) -> f64 {
    let (ready, address) = mpsc::channel();
    let server = thread::spawn(move || serve(policy, file, ready));
    let mut stream = TcpStream::connect(address.recv().unwrap()).unwrap();
    stream.set_nodelay(true).unwrap();
    let (begin, mut times) = (std::time::Instant::now(), Vec::new());
    while begin.elapsed() < SLICE {
        let began = std::time::Instant::now();
        stream.write_all(&[1; 64]).unwrap();
        stream.read_exact(&mut [0; 64]).unwrap();
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    drop(stream);
    server.join().unwrap();
    times.sort_by(f64::total_cmp);
    times[times.len() * 99 / 100]
}

#[test]
#[ignore = "a measurement, and no test: it asserts nothing about time"]
fn latency_beside_a_slow_device() {
    let disk = Disk::new().unwrap();
    println!("p99 of pings, µs: without files | adaptive | inline");
    for _ in 0..5 {
        let row = SLICES.map(|policy| p99_beside(policy, disk.path().join("beside")));
        println!("{:.0} | {:.0} | {:.0}", row[0], row[1], row[2]);
    }
}
