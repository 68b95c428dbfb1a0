//! A worker: its file, what it writes there, and what it read.

use annulus::fs::OpenOptions;
use annulus_lab::file::Cycles;
use anyhow::{Result, ensure};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// In each stretch of this many bytes the cycle's number stands, so that no part of an older cycle is taken for this one's.
const STRETCH: usize = 4096;

/// One of those at work. Its memory is there, and its file, before anything is measured.
pub(super) struct Worker {
    path: PathBuf,
    cycles: u64,
    written: Vec<u8>,
    read: Vec<u8>,
}

impl Worker {
    pub(super) fn new(folder: &Path, number: u64, cell: Cycles) -> Result<Worker> {
        let noise = |at: u64| ((at + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        let written: Vec<u8> = (0..cell.bytes).map(noise).collect();
        let read = written.clone();
        let path = folder.join(format!("worker-{number}"));
        fs::write(&path, &written)?;
        Ok(Worker { path, cycles: cell.cycles, written, read })
    }

    /// All cycles, each call made there and then.
    pub(super) fn run_plain(mut self) -> Result<Worker> {
        for cycle in 0..self.cycles {
            self.stamp(cycle);
            let mut options = File::options();
            let file =
                options.read(true).write(true).create(true).truncate(false).open(&self.path)?;
            file.write_all_at(&self.written, 0)?;
            file.read_exact_at(&mut self.read, 0)?;
            drop(file);
            self.check(cycle)?;
        }
        Ok(self)
    }

    /// All cycles, each call awaited.
    pub(super) async fn run_as_task(mut self) -> Result<Worker> {
        let options = OpenOptions::new().read(true).write(true).create(true);
        for cycle in 0..self.cycles {
            self.stamp(cycle);
            let file = options.open(&self.path).await?;
            let (written, bytes) = file.write_all_at(std::mem::take(&mut self.written), 0).await;
            (_, self.written) = (written?, bytes);
            let (read, bytes) = file.read_exact_at(std::mem::take(&mut self.read), 0).await;
            (_, self.read) = (read?, bytes);
            drop(file);
            self.check(cycle)?;
        }
        Ok(self)
    }

    pub(super) fn clean_up(self) -> Result<()> {
        Ok(fs::remove_file(&self.path)?)
    }

    fn stamp(&mut self, cycle: u64) {
        for stretch in self.written.chunks_mut(STRETCH) {
            let length = stretch.len().min(8);
            stretch[..length].copy_from_slice(&cycle.to_le_bytes()[..length]);
        }
    }

    fn check(&self, cycle: u64) -> Result<()> {
        let path = self.path.display();
        ensure!(
            self.read == self.written,
            "cycle {cycle} of {path}: what was read was not written"
        );
        Ok(())
    }
}
