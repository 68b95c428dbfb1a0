//! Whole files to streams and from them, by our own contenders: a loop of plain calls, and `io::copy`.

use super::blocks::{Ground, PIECE, check};
use super::far::{GIVE, RIGHT, TAKE};
use super::work::Hands;
use crate::bench::moment::Moment;
use annulus::fs::OpenOptions;
use annulus::io::copy;
use annulus_lab::file::{Blocks, Burst, Pattern};
use annulus_load::clock::now;
use anyhow::{Context, Result, anyhow, ensure};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// One way between a file and the far end, used again and again.
#[derive(Clone, Debug)]
struct Way {
    far: SocketAddr,
    sends: bool,
    file: PathBuf,
    bytes: u64,
    /// Bytes that the plain loop reads and writes at a time.
    piece: usize,
    end: Duration,
}

impl Way {
    /// The file that is sent, or one of its own that is written.
    fn new(ground: &Ground, far: SocketAddr, cell: Blocks, number: u64, end: Duration) -> Way {
        let sends = cell.pattern == Pattern::Send;
        let name = if sends { "blocks".to_owned() } else { format!("received-{number}") };
        let file = ground.path.with_file_name(name);
        Way { far, sends, file, bytes: ground.bytes, piece: cell.bytes as usize, end }
    }

    /// Each call made there and then; how many files have gone.
    fn run_plain(&self) -> Result<u64> {
        let mut files = 0;
        while files == 0 || now() < self.end {
            let mut stream = TcpStream::connect(self.far)?;
            if self.sends {
                stream.write_all(TAKE)?;
                self.pump(&mut File::open(&self.file)?, &mut stream)?;
                stream.shutdown(Shutdown::Write)?;
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer)?;
                self.settle(&answer)?;
            } else {
                stream.write_all(GIVE)?;
                let mut options = File::options();
                let options = options.write(true).create(true).truncate(false);
                self.pump(&mut stream, &mut options.open(&self.file)?)?;
            }
            files += 1;
        }
        Ok(files)
    }

    fn pump(&self, from: &mut impl Read, to: &mut impl Write) -> Result<()> {
        let (mut piece, mut left) = (vec![0; self.piece], self.bytes);
        loop {
            let count = from.read(&mut piece)?;
            if count == 0 {
                ensure!(left == 0, "{left} of {} bytes are missing", self.bytes);
                return Ok(());
            }
            to.write_all(&piece[..count])?;
            left = left.checked_sub(count as u64).context("more than the file has")?;
        }
    }

    /// By `io::copy`; how many files have gone.
    async fn run_as_task(self) -> Result<u64> {
        let mut files = 0;
        while files == 0 || now() < self.end {
            let mut stream = annulus::net::TcpStream::connect(self.far).await?;
            let copied = if self.sends {
                stream.send(TAKE).await?;
                let mut file = annulus::fs::File::open(&self.file).await?;
                let copied = copy(&mut file, &mut stream).await?;
                stream.shutdown().await?;
                let answer = stream.recv().await?;
                self.settle(answer.as_deref().unwrap_or_default())?;
                copied
            } else {
                stream.send(GIVE).await?;
                let options = OpenOptions::new().write(true).create(true);
                copy(&mut stream, &mut options.open(&self.file).await?).await?
            };
            ensure!(copied == self.bytes, "{copied} of {} bytes", self.bytes);
            files += 1;
        }
        Ok(files)
    }

    fn settle(&self, answer: &[u8]) -> Result<()> {
        ensure!(answer == RIGHT, "the far end did not get what was sent");
        Ok(())
    }

    /// Asserts that what was received is what the far end gave.
    fn check(&self) -> Result<()> {
        let mut file = File::open(&self.file)?;
        let mut piece = vec![0; PIECE as usize];
        for start in (0..self.bytes).step_by(PIECE as usize) {
            let piece = &mut piece[..PIECE.min(self.bytes - start) as usize];
            file.read_exact(piece)?;
            check(piece, start)?;
        }
        Ok(())
    }
}

/// Moves files for as long as a slice is, and each way one at least.
pub(super) fn answer(
    hands: &mut Hands,
    ground: &Ground,
    far: SocketAddr,
    cell: Blocks,
    slice: Duration,
) -> Result<Burst> {
    let (before, began) = (hands.paths(), Moment::now());
    let way = |number| Way::new(ground, far, cell, number, began.wall + slice);
    let ways: Vec<Way> = (0..cell.depth).map(way).collect();
    let files = match hands {
        Hands::Threads => in_threads(&ways)?,
        Hands::Tasks(runtime) => runtime.block_on(in_tasks(ways.clone()))??,
    };
    let spent = Moment::now() - began;
    ways.iter().try_for_each(Way::check)?;
    Ok(Burst {
        operations: files,
        bytes: files * ground.bytes,
        ns: spent.wall.as_nanos() as u64,
        cpu_ns: spent.cpu.as_nanos() as u64,
        paths: hands.paths().since(before),
        latency: None,
    })
}

fn in_threads(ways: &[Way]) -> Result<u64> {
    thread::scope(|scope| {
        let start = |way| thread::Builder::new().spawn_scoped(scope, move || Way::run_plain(way));
        let threads = ways.iter().map(start).collect::<Result<Vec<_>, _>>();
        let threads = threads.context("cannot start so many threads: ask for less --depth")?;
        threads.into_iter().map(|t| t.join().expect("a worker does not panic")).sum()
    })
}

async fn in_tasks(ways: Vec<Way>) -> Result<u64> {
    let tasks: Vec<_> = ways.into_iter().map(|way| annulus::spawn(way.run_as_task())).collect();
    let mut files = 0;
    for task in tasks {
        files += task.await.map_err(|error| anyhow!("{error}"))??;
    }
    Ok(files)
}
