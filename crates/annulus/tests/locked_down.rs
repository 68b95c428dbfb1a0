//! A locked-down runtime: its ring accepts only the operations that annulus uses, no other ring can
//! be created, and annulus works as usual. Tests that install the filter run in child processes,
//! because it cannot be removed.
#![allow(unsafe_code)]

mod common;

use annulus::fs::{AlignedBuf, File};
use annulus::net::TcpStream;
use annulus::shards::Shards;
use annulus::sim::{Sim, run_on as simulate_on};
use annulus::time::timeout;
use annulus::{Builder, DriverChoice, DriverKind, Runtime, spawn};
use annulus_ring::{Ring, SetupFlags};
use annulus_skip::skip;
use common::rerun::{self, rerun};
use common::{echo, pair, pattern, receive, run_on};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::process::Command;
use std::time::Duration;

/// `IORING_REGISTER_PERSONALITY`: lets entries run with this process's credentials.
const PERSONALITY: u32 = 9;

fn assert_passes(mut test: Command) {
    if annulus_ring::Features::detect().is_err() {
        return skip!("io_uring is blocked here");
    }
    rerun::assert_passes(test.env_remove("ANNULUS_DRIVER"));
}

fn locked(choice: DriverChoice) -> Builder {
    Runtime::builder().driver(choice).locked_down(true)
}

/// An operation that a program defines, and that a locked-down ring refuses.
struct Nop;

// SAFETY: the entry refers to no memory and no descriptor.
unsafe impl annulus::uring::Operation for Nop {
    type Output = io::Result<u32>;

    fn entry(&mut self) -> annulus::uring::Entry {
        annulus::uring::Entry::default()
    }

    fn complete(self, result: io::Result<u32>) -> io::Result<u32> {
        result
    }
}

/// Echoes vectored sends, cancels a connect, lets a timer fire and half-closes.
async fn everything() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    spawn(echo(server));
    client.send_vectored([pattern(70_000), pattern(3)]).await?;
    let expected = [pattern(70_000), pattern(3)].concat();
    assert!(receive(&mut client, expected.len()).await? == expected);
    let refused = TcpStream::connect_timeout("127.0.0.1:1", Duration::from_millis(20)).await;
    assert!(refused.is_err());
    assert!(timeout(Duration::from_millis(2), client.recv()).await.is_err());
    client.shutdown().await?;
    assert!(client.recv().await?.is_none());
    assert_eq!(annulus::task::spawn_blocking(|| 7).await?, 7);
    let error = annulus::uring::submit(Nop).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
    Ok(())
}

/// Reads a file, on a thread: the ring accepts no file operations.
async fn reads_a_file() -> io::Result<()> {
    let file = File::open("/proc/self/exe").await?;
    let (read, buf) = file.read_exact_at(AlignedBuf::new(4096, 4096)?, 0).await;
    read?;
    assert_eq!(buf[..4], *b"\x7fELF");
    Ok(())
}

/// Starts reads of more empty pipes than there are file threads, and drops them. Other file calls
/// still work.
async fn waits_for_pipes() -> io::Result<()> {
    let file = File::open("/proc/self/exe").await?;
    let pipes = (0..6).map(|_| io::pipe()).collect::<io::Result<Vec<_>>>()?;
    for (reader, _writer) in &pipes {
        let mut reader = File::open(format!("/dev/fd/{}", reader.as_raw_fd())).await?;
        let read = timeout(Duration::from_millis(2), reader.read(vec![0; 8]));
        assert!(read.await.is_err(), "a read of the empty pipe returned");
    }
    timeout(Duration::from_secs(20), file.sync_all()).await.expect("the sync hangs")
}

/// Returns the descriptors of this process's rings.
fn rings() -> Vec<RawFd> {
    let mut rings = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let target = std::fs::read_link(entry.path());
        if target.is_ok_and(|path| path.to_string_lossy().contains("[io_uring]")) {
            rings.push(entry.file_name().to_string_lossy().parse().unwrap());
        }
    }
    rings
}

/// Registers this process's credentials with a ring.
fn register_personality(ring: RawFd) -> Result<i64, i32> {
    let none = std::ptr::null::<u8>();
    // SAFETY: the kernel reads no memory for this registration.
    let answer = unsafe { libc::syscall(libc::SYS_io_uring_register, ring, PERSONALITY, none, 0) };
    if answer >= 0 { Ok(answer) } else { Err(io::Error::last_os_error().raw_os_error().unwrap()) }
}

#[test]
fn an_echo_works_and_forbidden_operations_are_refused() {
    assert_passes(rerun!(locked_ring));
}

#[test]
#[ignore = "run by its parent: the filter cannot be removed"]
fn locked_ring() {
    let free = Runtime::builder().driver(DriverChoice::Uring).build().unwrap();
    let [ring] = rings()[..] else { panic!("the runtime does not have exactly one ring") };
    assert!(register_personality(ring).is_ok(), "an unrestricted ring refused the registration");
    drop(free);

    let mut runtime = locked(DriverChoice::Uring).build().unwrap();
    let [ring] = rings()[..] else { panic!("the runtime does not have exactly one ring") };
    assert_eq!(register_personality(ring), Err(Errno::ACCESS.raw_os_error()));
    assert_no_further_ring();
    std::thread::spawn(assert_no_further_ring).join().unwrap();
    let handle = runtime.handle();
    let open = common::open_descriptors();
    runtime.block_on(everything()).unwrap();
    assert_eq!(common::open_descriptors(), open, "a descriptor was not closed through the ring");
    runtime.block_on(reads_a_file()).unwrap();
    // Wakes from other threads go through the ring too.
    let stopper = std::thread::spawn(move || handle.stop());
    assert!(runtime.try_block_on(std::future::pending::<()>()).is_err());
    stopper.join().unwrap();
    drop(runtime);
    falls_back();
}

fn assert_no_further_ring() {
    let error = Ring::builder().build().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()), "{error}");
}

/// Checks that the next runtime of the process gets no ring and reports why.
fn falls_back() {
    let next = Runtime::new().unwrap();
    assert_eq!(next.driver().kind, DriverKind::Epoll);
    assert!(next.driver().reason.contains("seccomp"), "{}", next.driver());
    drop(next);
    run_on(Runtime::builder(), everything());
    let text = Runtime::builder().driver(DriverChoice::Uring).build().unwrap_err().to_string();
    assert!(text.contains("io_uring_setup") && text.contains("epoll"), "{text}");
}

#[test]
fn calls_that_wait_for_a_pipe_do_not_block_files() {
    assert_passes(rerun!(locked_pipes));
}

#[test]
#[ignore = "run by its parent: the filter cannot be removed"]
fn locked_pipes() {
    run_on(locked(DriverChoice::Uring), waits_for_pipes());
}

#[test]
fn shards_are_locked_down_once_all_have_their_rings() {
    assert_passes(rerun!(locked_shards));
}

#[test]
#[ignore = "run by its parent: the filter cannot be removed"]
fn locked_shards() {
    let shards = Shards::new(3).runtime(|_| locked(DriverChoice::Uring));
    let outcome = shards.run(async |_| {
        assert_no_further_ring();
        everything().await
    });
    outcome.unwrap();
    assert_no_further_ring();
}

#[test]
fn threads_already_running_get_no_ring_either() {
    assert_passes(rerun!(locked_threads));
}

#[test]
#[ignore = "run by its parent: the filter cannot be removed"]
fn locked_threads() {
    let (locked_now, is_locked) = std::sync::mpsc::channel::<()>();
    let earlier = std::thread::spawn(move || {
        is_locked.recv().unwrap();
        assert_no_further_ring();
    });
    let runtime = locked(DriverChoice::Auto).build().unwrap();
    assert_eq!(runtime.driver().kind, DriverKind::Uring);
    locked_now.send(()).unwrap();
    earlier.join().unwrap();
}

#[test]
fn further_rings_are_denied_on_epoll_too() {
    assert_passes(rerun!(locked_epoll));
}

#[test]
#[ignore = "run by its parent: the filter cannot be removed"]
fn locked_epoll() {
    run_on(locked(DriverChoice::Epoll), everything());
    assert_no_further_ring();
}

#[test]
fn older_kernels_restrict_rings_too() {
    assert_passes(rerun!(locked_old));
}

#[test]
#[ignore = "run by its parent: the filter cannot be removed"]
fn locked_old() {
    let old = locked(DriverChoice::Uring).without(SetupFlags::DEFER_TASKRUN);
    run_on(old, everything());
}

#[test]
fn a_restricted_ring_may_send_zero_copy_if_enabled() {
    assert_passes(rerun!(locked_zero_copy));
}

#[test]
#[ignore = "run by its parent: the filter cannot be removed"]
fn locked_zero_copy() {
    run_on(locked(DriverChoice::Uring).zero_copy_threshold(Some(1)), everything());
}

#[test]
fn a_simulated_ring_is_restricted_but_the_process_is_not() {
    let sim = Sim::builder(1).build();
    let builder = Runtime::builder().locked_down(true);
    simulate_on(&sim, builder.clone(), everything()).unwrap();
    simulate_on(&sim, builder.zero_copy_threshold(Some(1)), everything()).unwrap();
    if annulus_ring::Features::detect().is_err() {
        return skip!("io_uring is blocked here");
    }
    Ring::builder().build().unwrap();
}
