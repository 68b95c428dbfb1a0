//! A slow device must not stall the runtime. The test uses a real file system on a device that is
//! throttled to 2 MiB/s.
//!
//! It needs root, a loop device, `mkfs.ext4`, and a control group that limits block devices. If one
//! of these is missing, the test is reported as skipped. `cargo bench -p annulus --bench slow_device`
//! measures how much the network latency grows.

#[path = "slow_device/disk.rs"]
mod disk;

use annulus::fs::{File, OpenOptions, Policy};
use annulus::time::sleep;
use annulus::{Runtime, spawn};
use annulus_skip::skip;
use disk::Disk;
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::rc::Rc;
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
