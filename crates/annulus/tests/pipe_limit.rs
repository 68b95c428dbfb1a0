//! Calls that need a descriptor when none is free, and descriptors in transit. These tests have
//! their own binary, because they lower the process's limit on open files.
#![allow(unsafe_code)]

mod common;

use annulus::io::raw_os_error;
use annulus::net::UnixOptions;
use annulus::pipe::pipe;
use annulus::process::Command;
use annulus::task::yield_now;
use annulus::{DriverChoice, Runtime};
use common::run_on;
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// Held by each test, because the limit is the process's.
static LIMIT: Mutex<()> = Mutex::new(());

/// Sets the limit and returns the previous one.
fn limit_open_files(to: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for the write of the first call and the read of the second.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, to);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}

#[test]
fn a_pipe_shutdown_without_a_descriptor_fails() {
    let _alone = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        run_on(Runtime::builder().driver(choice), async {
            let (mut sender, mut receiver) = pipe()?;
            sender.send("text").await?;
            sender.drain().await?;
            assert_eq!(receiver.recv().await?.as_deref(), Some(&b"text"[..]));
            let before = limit_open_files(0);
            let ended = sender.shutdown().await;
            let started = Command::new("true").spawn();
            limit_open_files(before);
            for error in [ended.unwrap_err(), started.unwrap_err()] {
                assert_eq!(raw_os_error(&error), Some(libc::EMFILE), "{error}");
            }
            drop(sender);
            assert!(receiver.recv().await?.is_none(), "the reader of the dropped pipe got no end");
            Ok(())
        });
    }
}

/// Gives up the capabilities of this thread for which the kernel does not limit the descriptors in
/// transit.
fn give_up_capabilities() {
    const SYS_ADMIN: u32 = 21;
    const SYS_RESOURCE: u32 = 24;
    // Version 3 of the structures, and this thread.
    let header = [0x2008_0522_u32, 0];
    let mut sets = [[0_u32; 3]; 2];
    // SAFETY: the header and the two sets have the layout of version 3, and outlive the calls.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()), 0);
        sets[0][0] &= !(1 << SYS_ADMIN | 1 << SYS_RESOURCE);
        assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()), 0);
    }
}

const MESSAGES: u8 = 6;
const DESCRIPTORS: usize = 30;

fn descriptors() -> io::Result<Vec<OwnedFd>> {
    (0..DESCRIPTORS).map(|_| File::open("/dev/null").map(OwnedFd::from)).collect()
}

/// Waits until no further message can be sent, and raises the limit.
async fn limit_is_reached(sent: &Cell<u8>, raised: u64) {
    let (mut seen, mut idle_turns) = (0, 0);
    while idle_turns < 100 {
        yield_now().await;
        idle_turns = if sent.get() == seen { idle_turns + 1 } else { 0 };
        seen = sent.get();
    }
    limit_open_files(raised);
    assert!((1..MESSAGES).contains(&seen), "{seen} messages were sent before the limit");
}

/// Sends messages on `$one` until too many descriptors are in transit, and the rest once the limit
/// has been raised. `$received` receives one message.
macro_rules! send_beyond_the_limit {
    ($one:ident, $received:expr) => {{
        let (before, sent) = (limit_open_files(100), Cell::new(0));
        let sending = async {
            for number in 0..MESSAGES {
                $one.send_with_descriptors(vec![number], descriptors()?).await?;
                $one.drain().await?;
                sent.set(number + 1);
            }
            io::Result::Ok(())
        };
        let receiving = async {
            limit_is_reached(&sent, before).await;
            for number in 0..MESSAGES {
                let (bytes, with) = $received.await?;
                assert_eq!((&bytes[..], with.len()), (&[number][..], DESCRIPTORS));
            }
            Ok(())
        };
        tokio::try_join!(sending, receiving).map(drop)
    }};
}

#[test]
fn sends_wait_while_too_many_descriptors_are_in_transit() {
    let _alone = LIMIT.lock().unwrap_or_else(PoisonError::into_inner);
    give_up_capabilities();
    let options = UnixOptions::new().descriptors(true);
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        run_on(Runtime::builder().driver(choice), async {
            let (mut one, mut other) = options.pair()?;
            send_beyond_the_limit!(one, async {
                let received = other.recv_with_descriptors().await?;
                io::Result::Ok(received.expect("the stream has ended"))
            })
        });
        run_on(Runtime::builder().driver(choice), async {
            let (one, other) = options.datagram_pair()?;
            send_beyond_the_limit!(one, async {
                let message = other.recv_message().await?;
                io::Result::Ok((message.bytes, message.descriptors))
            })
        });
    }
}
