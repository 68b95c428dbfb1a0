//! Whole files to and from streams, with a loop of blocking calls and with `io::copy`.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use annulus::fs::OpenOptions;
use annulus::io::copy;
use annulus_load::clock::now;
use anyhow::{Context, Result, ensure};

use super::blocks::{Blocks, Pattern, TestFile, check, pieces};
use super::executor::Executor;
use super::peer_end::{GIVE, RIGHT, TAKE};
use crate::bench::Sample;

/// Moves files for the length of a slice, at least one per worker.
pub(super) fn answer(
    executor: &mut Executor,
    file: &TestFile,
    peer: SocketAddr,
    cell: Blocks,
    slice: Duration,
) -> Result<Sample> {
    let worker = |number, began: Duration| Worker::new(file, peer, cell, number, began + slice);
    let (moved, mut sample) = executor.measure(
        |executor, began| {
            let workers = (0..cell.depth).map(|number| worker(number, began.wall)).collect();
            executor.run(workers, Worker::run_plain, async |workers: Vec<Worker>| {
                Ok(workers.into_iter().map(Worker::run_as_task).collect())
            })
        },
        |moved: &Vec<u64>| moved.iter().sum(),
    )?;
    (0..cell.depth).try_for_each(|number| worker(number, Duration::ZERO).check())?;
    sample.set("bytes", moved.iter().sum::<u64>() as f64 * file.bytes as f64);
    Ok(sample)
}

/// A worker, which moves one file after another.
#[derive(Clone, Debug)]
struct Worker {
    peer: SocketAddr,
    sends: bool,
    file: PathBuf,
    bytes: u64,
    /// Bytes that the blocking loop moves at a time.
    piece: usize,
    end: Duration,
}

impl Worker {
    /// A worker with the file to send, or with its own file to write.
    fn new(file: &TestFile, peer: SocketAddr, cell: Blocks, number: u64, end: Duration) -> Worker {
        let sends = cell.pattern == Pattern::Send;
        let name = if sends { "blocks".to_owned() } else { format!("received-{number}") };
        let (bytes, piece) = (file.bytes, cell.bytes as usize);
        Worker { peer, sends, file: file.path.with_file_name(name), bytes, piece, end }
    }

    /// Runs with blocking calls; returns the number of files moved.
    fn run_plain(self) -> Result<u64> {
        let mut files = 0;
        while files == 0 || now() < self.end {
            let mut stream = TcpStream::connect(self.peer)?;
            if self.sends {
                stream.write_all(TAKE)?;
                self.pump(&mut File::open(&self.file)?, &mut stream)?;
                stream.shutdown(Shutdown::Write)?;
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer)?;
                Worker::settle(&answer)?;
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

    /// Runs with `io::copy`; returns the number of files moved.
    async fn run_as_task(self) -> Result<u64> {
        let mut files = 0;
        while files == 0 || now() < self.end {
            let mut stream = annulus::net::TcpStream::connect(self.peer).await?;
            let copied = if self.sends {
                stream.send(TAKE).await?;
                let mut file = annulus::fs::File::open(&self.file).await?;
                let copied = copy(&mut file, &mut stream).await?;
                stream.shutdown().await?;
                let answer = stream.recv().await?;
                Worker::settle(answer.as_deref().unwrap_or_default())?;
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

    fn settle(answer: &[u8]) -> Result<()> {
        ensure!(answer == RIGHT, "the peer end did not get what was sent");
        Ok(())
    }

    /// Checks that the received file is the one that the peer end sent.
    fn check(&self) -> Result<()> {
        let mut file = File::open(&self.file)?;
        pieces(self.bytes).try_for_each(|(start, mut piece)| {
            file.read_exact(&mut piece)?;
            check(&piece, start)
        })
    }
}
