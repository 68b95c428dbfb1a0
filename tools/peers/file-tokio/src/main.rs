//! File I/O with `tokio::fs`: a task per worker, all on one thread, and each call on tokio's thread
//! pool. The contract is in ../../README.md.

use std::io::{self, BufRead, Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::fs::OpenOptions;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

/// Each block of this many bytes begins with the number of its cycle.
const STRETCH: usize = 4096;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("file-tokio: {error}");
            ExitCode::from(if error.kind() == ErrorKind::InvalidInput { 2 } else { 1 })
        }
    }
}

fn run() -> io::Result<()> {
    let wrong = |what: String| Error::new(ErrorKind::InvalidInput, what);
    let mut arguments = std::env::args_os().skip(1);
    let (Some(directory), None) = (arguments.next(), arguments.next()) else {
        return Err(wrong("usage: file-tokio DIRECTORY".into()));
    };
    let runtime = Builder::new_current_thread().build()?;
    for question in io::stdin().lock().lines() {
        let question = question?;
        let numbers: Vec<u64> = question.split(' ').filter_map(|word| word.parse().ok()).collect();
        let &[workers @ (1..), cycles @ (1..), bytes @ (1..)] = numbers.as_slice() else {
            return Err(wrong(format!("`{question}` is not WORKERS CYCLES BYTES")));
        };
        answer(&runtime, Path::new(&directory), workers, cycles, bytes)?;
    }
    Ok(())
}

fn answer(
    runtime: &Runtime,
    directory: &Path,
    workers: u64,
    cycles: u64,
    bytes: u64,
) -> io::Result<()> {
    let ready = |number| Worker::new(directory, number, cycles, bytes);
    let ready = (0..workers).map(ready).collect::<io::Result<Vec<_>>>()?;
    let (cpu, start) = (now(libc::CLOCK_PROCESS_CPUTIME_ID)?, now(libc::CLOCK_MONOTONIC)?);
    let done = runtime.block_on(async {
        let tasks: Vec<_> = ready.into_iter().map(|worker| tokio::spawn(worker.run())).collect();
        let mut done = Vec::new();
        for task in tasks {
            done.push(task.await.map_err(Error::other)??);
        }
        io::Result::Ok(done)
    })?;
    let (ns, cpu_ns) =
        (now(libc::CLOCK_MONOTONIC)? - start, now(libc::CLOCK_PROCESS_CPUTIME_ID)? - cpu);
    done.iter().try_for_each(|worker| std::fs::remove_file(&worker.path))?;
    let operations = workers * cycles;
    let moved = 2 * operations * bytes;
    println!(r#"{{"operations":{operations},"bytes":{moved},"ns":{ns},"cpu_ns":{cpu_ns}}}"#);
    Ok(())
}

struct Worker {
    path: PathBuf,
    cycles: u64,
    written: Vec<u8>,
    read: Vec<u8>,
}

impl Worker {
    fn new(directory: &Path, number: u64, cycles: u64, bytes: u64) -> io::Result<Worker> {
        let noise = |at: u64| ((at + number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        let written: Vec<u8> = (0..bytes).map(noise).collect();
        let path = directory.join(format!("worker-{number}"));
        std::fs::write(&path, &written)?;
        Ok(Worker { path, cycles, read: written.clone(), written })
    }

    async fn run(mut self) -> io::Result<Worker> {
        for cycle in 0..self.cycles {
            for stretch in self.written.chunks_mut(STRETCH) {
                let length = stretch.len().min(8);
                stretch[..length].copy_from_slice(&cycle.to_le_bytes()[..length]);
            }
            let mut options = OpenOptions::new();
            let mut file = options.read(true).write(true).create(true).open(&self.path).await?;
            file.write_all(&self.written).await?;
            // Before the flush, tokio may only have buffered the write.
            file.flush().await?;
            file.rewind().await?;
            file.read_exact(&mut self.read).await?;
            drop(file);
            if self.read != self.written {
                return Err(Error::other(format!(
                    "cycle {cycle}: the bytes read are not the bytes written"
                )));
            }
        }
        Ok(self)
    }
}

fn now(clock: libc::clockid_t) -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is valid during the call, which only writes to it.
    match unsafe { libc::clock_gettime(clock, &mut time) } {
        0 => Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
        _ => Err(Error::last_os_error()),
    }
}
