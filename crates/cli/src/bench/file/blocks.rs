//! Blocks of one file: laid out, read and written by our own contenders, every one of them checked.

use super::work::Hands;
use crate::bench::moment::Moment;
use annulus::fs::{AlignedBuf, DirectPool, IoBufMut, OpenOptions};
use annulus_lab::file::{Blocks, Burst, Latency, Pattern};
use annulus_load::clock::now;
use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::{Advice, OFlags, fadvise};
use std::fs::File;
use std::io::Write;
use std::ops::DerefMut;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Each stretch of this many bytes begins with its own number.
pub(super) const STRETCH: u64 = 512;
/// What direct I/O is at most aligned to, on the devices there are.
const ALIGNMENT: usize = 4096;
/// What is laid out at a time.
pub(super) const PIECE: u64 = 1 << 20;

/// The file, and how it is used.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// Past the page cache.
    pub(super) direct: bool,
}

impl Ground {
    pub(super) fn new(folder: &Path, bytes: u64, direct: bool) -> Ground {
        Ground { path: folder.join("blocks"), bytes, direct }
    }

    /// The file that fio has: its own where we read and it writes, since it writes nothing that could be checked.
    pub(super) fn of_fio(&self, pattern: Pattern) -> Ground {
        let name = if pattern == Pattern::Mixed { "blocks-fio" } else { "blocks" };
        Ground { path: self.path.with_file_name(name), ..self.clone() }
    }

    /// Writes the whole file to the device; what is to be read past the cache is not left there.
    pub(super) fn lay_out(&self) -> Result<()> {
        let mut file = File::create(&self.path)?;
        let mut piece = vec![0; PIECE as usize];
        for start in (0..self.bytes).step_by(PIECE as usize) {
            let piece = &mut piece[..PIECE.min(self.bytes - start) as usize];
            stamp(piece, start);
            file.write_all(piece)?;
        }
        file.sync_all()?;
        if self.direct {
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    }
}

/// Writes into each stretch of a block, which begins at `offset`, which one it is.
pub(super) fn stamp(block: &mut [u8], offset: u64) {
    for (number, stretch) in (offset / STRETCH..).zip(block.chunks_mut(STRETCH as usize)) {
        stretch[..8].copy_from_slice(&number.to_le_bytes());
    }
}

/// Asserts that a block is the one that begins at `offset`.
pub(super) fn check(block: &[u8], offset: u64) -> Result<()> {
    for (number, stretch) in (offset / STRETCH..).zip(block.chunks(STRETCH as usize)) {
        ensure!(stretch[..8] == number.to_le_bytes(), "stretch {number} was read as another one");
    }
    Ok(())
}

/// One worker's way through the file.
struct Walk {
    cell: Blocks,
    /// Blocks of the file.
    blocks: u64,
    /// The next block of all, in order.
    next: Arc<AtomicU64>,
    random: u64,
    done: u64,
    end: Duration,
    took: Vec<u64>,
}

impl Walk {
    /// When the next operation begins, where, and whether it is a write; `None` when time is up.
    fn step(&mut self) -> Option<(Duration, u64, bool)> {
        let began = now();
        if began >= self.end {
            return None;
        }
        let writes = self.cell.pattern.writes(self.done);
        let block = match self.cell.pattern.is_sequential() {
            true => self.next.fetch_add(1, Ordering::Relaxed),
            false => self.draw(),
        };
        self.done += 1;
        Some((began, block % self.blocks * self.cell.bytes, writes))
    }

    /// Marsaglia's xorshift64*: `random` is never zero.
    fn draw(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn note(&mut self, began: Duration) {
        self.took.push((now() - began).as_nanos() as u64);
    }

    /// Each call made there and then.
    fn run_plain(mut self, file: &File) -> Result<Walk> {
        let mut block = AlignedBuf::new(self.cell.bytes as usize, ALIGNMENT)?;
        while let Some((began, offset, writes)) = self.step() {
            if writes {
                stamp(&mut block, offset);
                file.write_all_at(&block, offset)?;
            } else {
                file.read_exact_at(&mut block, offset)?;
                check(&block, offset)?;
            }
            self.note(began);
        }
        Ok(self)
    }

    /// Each call awaited.
    async fn run_as_task<B>(mut self, file: annulus::fs::File, mut block: B) -> Result<Walk>
    where
        B: IoBufMut + DerefMut<Target = [u8]>,
    {
        while let Some((began, offset, writes)) = self.step() {
            let done;
            if writes {
                stamp(&mut block, offset);
                (done, block) = file.write_all_at(block, offset).await;
                done?;
            } else {
                (done, block) = file.read_exact_at(block, offset).await;
                done?;
                check(&block, offset)?;
            }
            self.note(began);
        }
        Ok(self)
    }
}

/// Works on the file for as long as a slice is.
pub(super) fn answer(
    hands: &mut Hands,
    ground: &Ground,
    cell: Blocks,
    slice: Duration,
) -> Result<Burst> {
    let next = Arc::new(AtomicU64::new(0));
    let (before, began) = (hands.paths(), Moment::now());
    let walk = |number: u64| Walk {
        cell,
        blocks: ground.bytes / cell.bytes,
        next: next.clone(),
        random: (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ began.wall.as_nanos() as u64 | 1,
        done: 0,
        end: began.wall + slice,
        took: Vec::new(),
    };
    let walks: Vec<Walk> = (0..cell.depth).map(walk).collect();
    let walks = match hands {
        Hands::Threads => in_threads(walks, ground),
        Hands::Tasks(runtime) => runtime.block_on(in_tasks(walks, ground))?,
    }?;
    let spent = Moment::now() - began;
    let took: Vec<u64> = walks.into_iter().flat_map(|walk| walk.took).collect();
    let operations = took.len() as u64;
    Ok(Burst {
        operations,
        bytes: operations * cell.bytes,
        ns: spent.wall.as_nanos() as u64,
        cpu_ns: spent.cpu.as_nanos() as u64,
        paths: hands.paths().since(before),
        latency: Latency::of(took),
    })
}

fn in_threads(walks: Vec<Walk>, ground: &Ground) -> Result<Vec<Walk>> {
    let flags = if ground.direct { OFlags::DIRECT } else { OFlags::empty() };
    let mut options = File::options();
    options.read(true).write(true).custom_flags(flags.bits() as i32);
    let file = options.open(&ground.path).with_context(|| refused(ground))?;
    thread::scope(|scope| {
        let start =
            |walk: Walk| thread::Builder::new().spawn_scoped(scope, || walk.run_plain(&file));
        let threads = walks.into_iter().map(start).collect::<Result<Vec<_>, _>>();
        let threads = threads.context("cannot start so many threads: ask for less --depth")?;
        threads.into_iter().map(|t| t.join().expect("a worker does not panic")).collect()
    })
}

async fn in_tasks(walks: Vec<Walk>, ground: &Ground) -> Result<Vec<Walk>> {
    let options = OpenOptions::new().read(true).write(true).direct(ground.direct);
    let file = options.open(&ground.path).await.with_context(|| refused(ground))?;
    let (depth, bytes) = (walks.len(), walks[0].cell.bytes as usize);
    // Odd sizes, and more than a pool can have, go without one.
    let pool = DirectPool::new(depth, bytes).ok().filter(|_| ground.direct);
    let mut tasks = Vec::new();
    for walk in walks {
        let file = file.try_clone()?;
        tasks.push(match pool.as_ref().and_then(DirectPool::try_take) {
            Some(block) => annulus::spawn(walk.run_as_task(file, block)),
            None => annulus::spawn(walk.run_as_task(file, AlignedBuf::new(bytes, ALIGNMENT)?)),
        });
    }
    let mut done = Vec::new();
    for task in tasks {
        done.push(task.await.map_err(|error| anyhow!("{error}"))??);
    }
    Ok(done)
}

fn refused(ground: &Ground) -> &'static str {
    if ground.direct { "cannot open the file for direct I/O here" } else { "cannot open the file" }
}
