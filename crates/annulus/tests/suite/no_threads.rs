//! If threads cannot be started, calls return an error that says so instead of panicking. Work that
//! needs no thread continues.

use crate::common;
use crate::common::denied;
use annulus_skip::skip;

use annulus::fs::{File, Lock, OpenOptions, Policy};
use annulus::shards::{Cause, Shards};
use annulus::{Builder, DriverChoice, Runtime};
use common::{echo, pair, receive, run_on};
use denied::deny;
use std::io;
use std::thread;

/// Runs a body on a thread that cannot start other threads.
fn without_threads(body: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(|| {
        [libc::SYS_clone, libc::SYS_clone3].into_iter().for_each(|call| deny(call, libc::EAGAIN));
        assert!(thread::Builder::new().spawn(|| ()).is_err());
        body();
    });
    thread.join().unwrap();
}

fn says_what_to_do(error: &io::Error) {
    let text = error.to_string();
    assert!(text.contains("thread") && text.contains("ulimit -u"), "{text}");
    assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "{text}");
}

#[test]
fn shards_that_cannot_start_return_an_error() {
    without_threads(|| {
        let shards = Shards::new(3);
        let ended = shards.run(async |shard| {
            assert_ne!(shard.index(), 0, "a shard started although not all could be set up");
            io::Result::Ok(())
        });
        let error = ended.unwrap_err();
        let Cause::Runtime(cause) = &error.cause else { panic!("{error}") };
        says_what_to_do(cause);
        assert!(error.shard == 1 && error.to_string().contains('3'), "{error}");
    });
}

/// Sends every file call on epoll to a thread.
fn offloading(driver: DriverChoice) -> Builder {
    Runtime::builder().driver(driver).file_policy(Policy::Offload)
}

#[test]
fn a_file_call_without_a_thread_is_an_error() {
    without_threads(|| {
        run_on(offloading(DriverChoice::Epoll), async {
            let error = File::open("/proc/self/exe").await.unwrap_err();
            says_what_to_do(&error);
            assert!(error.to_string().contains("/proc/self/exe"), "{error}");
            // Calls that need no thread work.
            OpenOptions::new().read(true).policy(Policy::Inline).open("/proc/self/exe").await?;
            let (mut client, server) = pair().await?;
            annulus::spawn(echo(server));
            client.send("to and fro").await?;
            assert_eq!(receive(&mut client, 10).await?, b"to and fro");
            Ok(())
        });
    });
}

/// Failing to try for a lock does not mean that another process holds it.
#[test]
fn a_lock_without_a_thread_is_an_error() {
    if offloading(DriverChoice::Uring).build().is_err() {
        return skip!("io_uring is blocked here");
    }
    without_threads(|| {
        run_on(offloading(DriverChoice::Uring), async {
            // The ring can open the file, but has no operation for locks.
            let file = File::open("/proc/self/exe").await?;
            says_what_to_do(&file.try_lock(Lock::Shared).await.unwrap_err());
            says_what_to_do(&file.lock(Lock::Shared).await.unwrap_err());
            Ok(())
        });
    });
}
