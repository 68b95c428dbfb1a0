//! Calls that need a descriptor when none is free. This test has its own binary, because it
//! lowers the process's limit on open files.
#![allow(unsafe_code)]

mod common;

use annulus::io::raw_os_error;
use annulus::pipe::pipe;
use annulus::process::Command;
use annulus::{DriverChoice, Runtime};
use common::run_on;

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
