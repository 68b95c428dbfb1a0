//! Buffers that are used again and again are registered with the ring.

use crate::common::pattern;
use crate::files::drops::begin;
use crate::files::mode::Mode;
use annulus::fs::{self, AlignedBuf, File, OpenOptions, Policy};
use annulus::sim::{Device, Disk, Fault, Faults, Sim, run_on};
use annulus::{DriverChoice, Runtime};
use annulus_skip::skip;
use fastrand::Rng;
use std::io;
use std::path::Path;
use std::time::Duration;

const BLOCK: usize = 4096;
const BLOCKS: usize = 64;

/// Returns the number of calls with a registered buffer so far.
fn registered() -> u64 {
    annulus::counters().expect("not in a runtime").file_registered
}

/// Returns a runtime whose calls leave the loop, or `None` without io_uring.
fn ring() -> Option<Runtime> {
    let mode = Mode { driver: DriverChoice::Uring, policy: Policy::Offload };
    let runtime = mode.runtime().ok();
    if runtime.is_none() {
        skip!("io_uring is blocked here");
    }
    runtime
}

/// Opens a file for direct I/O where the file system has it, otherwise buffered. Either way, reads
/// of a policy that leaves the loop go to the ring.
async fn open(path: &Path) -> io::Result<File> {
    let options = || OpenOptions::new().read(true).write(true);
    match options().direct(true).open(path).await {
        Ok(file) => Ok(file),
        Err(_) => options().open(path).await,
    }
}

async fn read_block(file: &File, buf: AlignedBuf, block: usize) -> io::Result<AlignedBuf> {
    let (read, buf) = file.read_exact_at(buf, (block * BLOCK) as u64).await;
    read?;
    let expected = &pattern(BLOCK * BLOCKS)[block * BLOCK..][..BLOCK];
    assert!(buf[..] == *expected, "block {block} is wrong");
    Ok(buf)
}

/// Calls a body with a file of known content.
fn with_file(runtime: &mut Runtime, name: &str, body: impl AsyncFnOnce(File) -> io::Result<()>) {
    let path =
        std::env::temp_dir().join(format!("annulus-registered-{name}-{}", std::process::id()));
    std::fs::write(&path, pattern(BLOCK * BLOCKS)).unwrap();
    let ended = runtime.block_on(async { body(open(&path).await?).await });
    std::fs::remove_file(&path).unwrap();
    ended.unwrap();
}

#[test]
fn only_a_buffer_that_is_used_again_is_registered() {
    let Some(mut runtime) = ring() else { return };
    with_file(&mut runtime, "again", async |file| {
        for block in 0..BLOCKS {
            read_block(&file, AlignedBuf::new(BLOCK, BLOCK)?, block).await?;
        }
        assert_eq!(registered(), 0);
        let mut buf = AlignedBuf::new(BLOCK, BLOCK)?;
        for block in 0..BLOCKS {
            buf = read_block(&file, buf, block).await?;
        }
        assert_eq!(registered(), BLOCKS as u64 - 8);
        Ok(())
    });
}

/// A buffer that is allocated where a registered one was freed would read into the old pages if the
/// registration remained.
#[test]
fn buffers_at_an_address_that_was_registered_have_their_own_bytes() {
    let Some(mut runtime) = ring() else { return };
    with_file(&mut runtime, "address", async |file| {
        let (mut rng, mut bufs) = (Rng::with_seed(1), Vec::new());
        for round in 0..2000 {
            if bufs.len() < 8 || rng.u32(..10) == 0 {
                // Large ones are mapped, so freed ones leave the process.
                let len = *rng.choice(&[BLOCK, 8 * BLOCK, 60 * BLOCK]).expect("a length");
                bufs.push(AlignedBuf::new(len, BLOCK)?);
            }
            if bufs.len() > 16 {
                bufs.swap_remove(rng.usize(..bufs.len()));
            }
            let mut buf = bufs.swap_remove(rng.usize(..bufs.len()));
            let block = rng.usize(..=BLOCKS - buf.len() / BLOCK);
            buf.fill(0);
            let (read, buf) = file.read_exact_at(buf, (block * BLOCK) as u64).await;
            read?;
            let expected = &pattern(BLOCK * BLOCKS)[block * BLOCK..][..buf.len()];
            assert!(buf[..] == *expected, "round {round}: block {block} is wrong");
            bufs.push(buf);
        }
        assert!(registered() > 500, "{} registered calls", registered());
        Ok(())
    });
}

#[test]
fn writes_and_dropped_calls_use_registered_buffers() {
    let Some(mut runtime) = ring() else { return };
    with_file(&mut runtime, "writes", async |file| {
        let mut buf = AlignedBuf::new(BLOCK, BLOCK)?;
        for round in 0..50_u8 {
            buf.fill(round);
            buf = file.write_at(buf, BLOCK as u64).await.1;
            buf.fill(0);
            buf = file.read_at(buf, BLOCK as u64).await.1;
            assert!(buf.iter().all(|byte| *byte == round));
            if round % 10 == 9 {
                // The memory stays until the call has ended, and is unregistered afterwards.
                begin(file.read_at(buf, 0)).await;
                buf = AlignedBuf::new(BLOCK, BLOCK)?;
            }
        }
        assert!(registered() > 0);
        Ok(())
    });
}

#[test]
fn a_buffer_works_in_another_runtime_and_after_its_own() {
    let (Some(mut first), Some(mut second)) = (ring(), ring()) else { return };
    let mut kept = None;
    with_file(&mut first, "first", async |file| {
        let mut buf = AlignedBuf::new(BLOCK, BLOCK)?;
        for block in 0..20 {
            buf = read_block(&file, buf, block).await?;
        }
        assert!(registered() > 0);
        kept = Some(buf);
        Ok(())
    });
    let mut buf = kept.expect("the body has run");
    with_file(&mut second, "second", async |file| {
        for block in 0..20 {
            buf = read_block(&file, buf, block).await?;
        }
        assert_eq!(registered(), 0);
        drop(first);
        buf = read_block(&file, buf, 5).await?;
        drop(buf);
        Ok(())
    });
}

#[test]
fn more_buffers_than_the_kernel_takes_work_too() {
    let Some(mut runtime) = ring() else { return };
    with_file(&mut runtime, "many", async |file| {
        let bufs = (0..1100).map(|_| AlignedBuf::new(BLOCK, BLOCK));
        let mut bufs = bufs.collect::<io::Result<Vec<_>>>()?;
        for round in 0..11 {
            let reads = bufs.into_iter().enumerate();
            let reads = reads.map(|(at, buf)| (buf, ((at + round) % BLOCKS * BLOCK) as u64));
            bufs = Vec::new();
            for (read, buf) in file.read_many_at(reads.collect()).await {
                assert_eq!(read?, BLOCK);
                bufs.push(buf);
            }
        }
        let expected = pattern(BLOCK * BLOCKS);
        for (at, buf) in bufs.iter().enumerate() {
            assert!(buf[..] == expected[(at + 10) % BLOCKS * BLOCK..][..BLOCK], "buffer {at}");
        }
        // Three rounds of at most as many as fit.
        assert!((1..=3 * 1024).contains(&registered()), "{} registered calls", registered());
        Ok(())
    });
}

#[test]
fn buffers_that_cannot_be_pinned_work_unregistered() {
    let device = Device { read: Duration::from_micros(100), ..Device::default() };
    for (per_mille, expected) in [(0, 1..=200), (1000, 0..=0)] {
        let faults = Faults::none().with(Fault::NoMemory, per_mille);
        let sim = Sim::builder(1).disk(Disk::new(device)).faults(faults).build();
        let builder = Runtime::builder().driver(DriverChoice::Uring);
        let ran = run_on(&sim, builder, async {
            fs::write("/file", pattern(BLOCK * BLOCKS)).await?;
            let file = OpenOptions::new().read(true).direct(true).open("/file").await?;
            let mut bufs = Vec::new();
            for round in 0..200 {
                if round % 50 == 0 {
                    bufs = vec![AlignedBuf::new(BLOCK, BLOCK)?, AlignedBuf::new(BLOCK, BLOCK)?];
                }
                let buf = bufs.swap_remove(0);
                bufs.push(read_block(&file, buf, round % BLOCKS).await?);
            }
            assert!(expected.contains(&registered()), "{} registered calls", registered());
            io::Result::Ok(())
        });
        ran.unwrap();
    }
}

#[test]
fn buffers_are_registered_once_memory_can_be_pinned_again() {
    const READS: u64 = 3 * 4096;
    let sim = Sim::builder(1).build();
    let builder = Runtime::builder().driver(DriverChoice::Uring).file_policy(Policy::Offload);
    let ran = run_on(&sim, builder, async {
        fs::write("/file", pattern(BLOCK * BLOCKS)).await?;
        let file = OpenOptions::new().read(true).direct(true).open("/file").await?;
        let mut buf = AlignedBuf::new(BLOCK, BLOCK)?;
        for read in 0..READS {
            match read {
                0 => sim.set_faults(Faults::none().with(Fault::NoMemory, 1000)),
                100 => sim.set_faults(Faults::none()),
                _ => {}
            }
            buf = read_block(&file, buf, read as usize % BLOCKS).await?;
        }
        // The only refused attempt delays the next one by about 4,096 calls.
        let expected = READS - 2 * 4096..READS - 4096;
        assert!(expected.contains(&registered()), "{} registered calls", registered());
        io::Result::Ok(())
    });
    ran.unwrap();
}
