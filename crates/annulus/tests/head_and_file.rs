//! A head that was queued, and a file behind it: both leave at once and together, and the head alone if there are no pages.
#![allow(unsafe_code)]

mod common;

use annulus::fs::{File, OpenOptions, Policy};
use annulus::io::copy_range;
use annulus::net::TcpStream;
use annulus::{DriverChoice, Runtime, counters};
use common::{pair, pattern, receive, run_on, touch};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A file of this test's own, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(bytes: &[u8]) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("annulus-head-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).map(|()| Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a body on each driver that works here.
fn on_each_driver(body: impl AsyncFn() -> io::Result<()>) {
    for driver in [DriverChoice::Epoll, DriverChoice::Uring] {
        match Runtime::builder().driver(driver).build() {
            Ok(_) => run_on(Runtime::builder().driver(driver), body()),
            Err(_) => eprintln!("skipped on {driver}, which is blocked here"),
        }
    }
}

/// Bytes that the kernel has taken and not sent yet.
fn unsent(stream: &TcpStream) -> i32 {
    let mut count = 0;
    // SAFETY: the call writes an integer, and the descriptor is open.
    let outcome = unsafe { libc::ioctl(stream.as_raw_fd(), SIOCOUTQNSD, &raw mut count) };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
    count
}

/// `SIOCOUTQNSD`
const SIOCOUTQNSD: libc::Ioctl = 0x894B;

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

#[test]
fn a_head_leaves_with_the_pages() {
    on_each_driver(async || {
        let text = pattern(12_000);
        let scratch = Scratch::new(&text)?;
        let file = File::open(&scratch.0).await?;
        let (mut client, mut server) = pair().await?;
        for _ in 0..10 {
            touch(client.send(HEAD)).expect("it is accepted at once")?;
            let before = counters().expect("a runtime");
            assert_eq!(copy_range(&file, .., &mut client).await?, 12_000);
            let after = counters().expect("a runtime");
            assert_eq!(after.direct_sends - before.direct_sends, 1, "the head");
            assert_eq!(after.sqes, before.sqes, "nothing is sent otherwise");
            assert_eq!(unsent(&client), 0);
            assert!(receive(&mut server, HEAD.len() + 12_000).await? == [HEAD, &text].concat());
        }
        Ok(())
    });
}

#[test]
fn a_head_without_pages_does_not_wait_for_any() {
    on_each_driver(async || {
        let scratch = Scratch::new(b"")?;
        let file = File::open(&scratch.0).await?;
        let (mut client, mut server) = pair().await?;
        for _ in 0..10 {
            touch(client.send(HEAD)).expect("it is accepted at once")?;
            assert_eq!(copy_range(&file, .., &mut client).await?, 0);
            assert_eq!(unsent(&client), 0);
            assert_eq!(receive(&mut server, HEAD.len()).await?, HEAD);
        }
        Ok(())
    });
}

#[test]
fn a_file_without_pages_goes_behind_its_head_all_the_same() {
    on_each_driver(async || {
        let file = File::open("/proc/self/status").await?;
        let (mut client, mut server) = pair().await?;
        touch(client.send(HEAD)).expect("it is accepted at once")?;
        let count = copy_range(&file, .., &mut client).await?;
        drop(client);
        let all = receive(&mut server, usize::MAX).await?;
        assert!(count > 100 && all.len() as u64 == HEAD.len() as u64 + count);
        assert!(all.starts_with(&[HEAD, b"Name:"].concat()));
        Ok(())
    });
}

#[test]
fn a_head_leaves_if_the_copy_is_dropped() {
    on_each_driver(async || {
        let scratch = Scratch::new(&pattern(12_000))?;
        let file = OpenOptions::new().read(true).policy(Policy::Inline).open(&scratch.0).await?;
        let (mut client, mut server) = pair().await?;
        // Until the turn has made so many calls that the next waits for another turn.
        while let Some((read, _)) = touch(file.read_at(vec![0; 12_000], 0)) {
            read?;
        }
        touch(client.send(HEAD)).expect("it is accepted at once")?;
        assert!(touch(copy_range(&file, .., &mut client)).is_none(), "it waits for another turn");
        assert_eq!(unsent(&client), 0);
        assert_eq!(receive(&mut server, HEAD.len()).await?, HEAD);
        Ok(())
    });
}
