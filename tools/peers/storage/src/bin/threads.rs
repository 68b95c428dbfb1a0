//! The storage contender with plain threads: file reads with blocking calls, one thread per read in
//! flight. It has no server.

use std::io;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use peer_storage::{Block, Job, Task, ended, task, whole};

fn main() -> ExitCode {
    match task(&[]) {
        Ok((Task::Reads(reads), _)) => match reads.answer(run) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => ended("threads", error),
        },
        Ok((Task::Kv(_), _)) => ended("threads", io::Error::from(io::ErrorKind::InvalidInput)),
        Err(code) => code,
    }
}

fn run(job: &Arc<Job>) -> io::Result<()> {
    let file = job.open()?;
    let worker = || {
        let (mut reader, mut block) = (job.reader(), Block::new());
        while let Some(offset) = reader.next()? {
            whole(file.read_at(&mut block.0, offset)?)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..job.depth).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}
