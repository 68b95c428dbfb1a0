//! NOP throughput with the `io-uring` crate: entries pushed as one slice, completions read by one
//! iterator. The contract is in ../../README.md.

use io_uring::{IoUring, opcode, squeue};
use std::io::{self, BufRead, Error, ErrorKind};
use std::process::ExitCode;

/// Minimum number of operations between two readings of the clock.
const STRIDE: u64 = 4096;
const MAX_ENTRIES: u32 = 32_768;

fn main() -> ExitCode {
    let done = io::stdin().lock().lines().try_for_each(|line| answer(&line?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("io-uring-nop: {error}");
            ExitCode::from(if error.kind() == ErrorKind::InvalidInput { 2 } else { 1 })
        }
    }
}

fn answer(question: &str) -> io::Result<()> {
    let (entries, window) = parse(question).ok_or_else(|| {
        let usage = format!("`{question}` is not ENTRIES SECONDS, with 1 to {MAX_ENTRIES} entries");
        Error::new(ErrorKind::InvalidInput, usage)
    })?;
    let mut ring = set_up(entries)?;
    let nops = vec![opcode::Nop::new().build(); entries as usize];
    burst(&mut ring, &nops, window / 5)?;
    let (operations, elapsed, cpu) = burst(&mut ring, &nops, window)?;
    println!(r#"{{"operations":{operations},"ns":{elapsed},"cpu_ns":{cpu}}}"#);
    Ok(())
}

fn parse(question: &str) -> Option<(u32, u64)> {
    let (entries, seconds) = question.split_once(' ')?;
    let entries = entries.parse().ok().filter(|entries| (1..=MAX_ENTRIES).contains(entries))?;
    let seconds: f64 = seconds.parse().ok().filter(|s| (0.0..3600.0).contains(s))?;
    Some((entries, (seconds * 1e9) as u64))
}

/// Sets up a ring with the flags of the newest kernel, or without these flags if they are refused.
/// The crate does not use a registered ring descriptor, so the kernel looks the descriptor up in
/// each enter.
fn set_up(entries: u32) -> io::Result<IoUring> {
    let newest = IoUring::builder()
        .setup_cqsize(entries)
        .setup_submit_all()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_no_sqarray()
        .build(entries);
    newest.or_else(|_| IoUring::builder().setup_cqsize(entries).build(entries))
}

/// Runs turns for at least this many nanoseconds; returns operations, time and CPU time.
fn burst(ring: &mut IoUring, nops: &[squeue::Entry], window: u64) -> io::Result<(u64, u64, u64)> {
    let (cpu, start) = (now(libc::CLOCK_PROCESS_CPUTIME_ID)?, now(libc::CLOCK_MONOTONIC)?);
    let mut operations = 0;
    loop {
        let next = operations + STRIDE;
        while operations < next {
            operations += turn(ring, nops)?;
        }
        let elapsed = now(libc::CLOCK_MONOTONIC)? - start;
        if elapsed >= window {
            return Ok((operations, elapsed, now(libc::CLOCK_PROCESS_CPUTIME_ID)? - cpu));
        }
    }
}

fn turn(ring: &mut IoUring, nops: &[squeue::Entry]) -> io::Result<u64> {
    // SAFETY: a NOP refers to no memory.
    unsafe { ring.submission().push_multiple(nops) }.map_err(Error::other)?;
    ring.submit()?;
    let mut answers = 0;
    for completion in ring.completion() {
        if completion.result() < 0 {
            return Err(Error::from_raw_os_error(-completion.result()));
        }
        answers += 1;
    }
    if answers == nops.len() as u64 {
        Ok(answers)
    } else {
        Err(Error::other("completions are missing"))
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
