//! A file that is sent after a queued head: both are sent at once, in one send. The head is sent
//! alone if the file cannot be read at once.
#![allow(unsafe_code)]

use crate::common;
use annulus_skip::skip;

use annulus::fs::{File, OpenOptions, Policy};
use annulus::io::copy_range;
use annulus::net::TcpStream;
use annulus::task::yield_now;
use annulus::time::timeout;
use annulus::{DriverChoice, Runtime, counters, spawn};
use common::{pair, pattern, receive, receives_are_armed_once, run_on, touch};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A file for one test, removed at its end.
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

/// Opens a file that is read on the loop. By default, a device that was slow lately, as on a busy
/// machine, is read off the loop.
async fn open(path: impl AsRef<Path>) -> io::Result<File> {
    OpenOptions::new().read(true).policy(Policy::Inline).open(path).await
}

/// Time limit of each test body. It only turns a hang into a failure.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs a body on each driver that works on this machine.
fn on_each_driver(body: impl AsyncFn() -> io::Result<()>) {
    for driver in [DriverChoice::Epoll, DriverChoice::Uring] {
        match Runtime::builder().driver(driver).build() {
            Ok(_) => run_on(Runtime::builder().driver(driver), async {
                timeout(DEADLINE, body()).await?
            }),
            Err(_) => skip!("{driver} is blocked here"),
        }
    }
}

/// Returns the number of bytes that the kernel has accepted but not sent yet.
fn unsent(stream: &TcpStream) -> i32 {
    let mut count = 0;
    // SAFETY: the call writes an integer, and the descriptor is open.
    let outcome = unsafe { libc::ioctl(stream.as_raw_fd(), SIOCOUTQNSD, &raw mut count) };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
    count
}

const SIOCOUTQNSD: libc::Ioctl = 0x894B;

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";

#[test]
fn a_head_leaves_with_the_pages() {
    on_each_driver(async || {
        let text = pattern(40_000);
        let scratch = Scratch::new(&text)?;
        let file = open(&scratch.0).await?;
        let (mut client, mut server) = pair().await?;
        for _ in 0..10 {
            touch(client.send(HEAD)).expect("the send waited")?;
            let before = counters().expect("not in a runtime");
            assert_eq!(copy_range(&file, .., &mut client).await?, 40_000);
            let after = counters().expect("not in a runtime");
            assert_eq!(
                after.direct_sends - before.direct_sends,
                1,
                "the head was not sent directly"
            );
            assert_eq!(after.sqes, before.sqes, "an entry was submitted");
            assert_eq!(unsent(&client), 0);
            assert!(receive(&mut server, HEAD.len() + 40_000).await? == [HEAD, &text].concat());
        }
        Ok(())
    });
}

#[test]
fn a_head_leaves_with_a_few_bytes_in_one_send() {
    let most = if receives_are_armed_once() { 1 } else { 2 };
    on_each_driver(async || {
        let text = pattern(12_000);
        let scratch = Scratch::new(&text)?;
        let file = open(&scratch.0).await?;
        let (mut client, mut server) = pair().await?;
        for round in 0..10 {
            let before = counters().expect("not in a runtime");
            touch(client.send(HEAD)).expect("the send waited")?;
            let copied = match round % 3 {
                0 => touch(copy_range(&file, .., &mut client)),
                1 => touch(copy_range(&file, ..12_000, &mut client)),
                _ => touch(copy_range(&file, ..1 << 40, &mut client)),
            };
            assert_eq!(copied.expect("the copy waited although the file is in memory")?, 12_000);
            client.drain().await?;
            let after = counters().expect("not in a runtime");
            assert_eq!(after.direct_sends, before.direct_sends);
            // The first rounds also start receives. If receives are single, every round starts one.
            let sent = after.sqes - before.sqes;
            assert!(round < 2 || (1..=most).contains(&sent), "{sent} entries instead of one send");
            assert!(receive(&mut server, HEAD.len() + 12_000).await? == [HEAD, &text].concat());
        }
        Ok(())
    });
}

#[test]
fn a_file_that_has_grown_or_shrunk_is_sent_as_it_is() {
    on_each_driver(async || {
        let scratch = Scratch::new(&pattern(100))?;
        let file = open(&scratch.0).await?;
        let (mut client, mut server) = pair().await?;
        for len in [100, 5000, 0, 90_000, 20_000, 7] {
            std::fs::write(&scratch.0, pattern(len))?;
            assert_eq!(copy_range(&file, .., &mut client).await?, len as u64);
            assert_eq!(
                unsent(&client),
                0,
                "{len}: bytes are unsent, which may only happen before Linux 6.5"
            );
            assert!(receive(&mut server, len).await? == pattern(len));
        }
        Ok(())
    });
}

/// Number of bytes: more than the socket buffers of both ends hold.
const MUCH: usize = 12_000_000;

/// Returns a client whose copy of a long file was dropped while its socket was full.
async fn dropped_when_full() -> io::Result<(TcpStream, TcpStream)> {
    let scratch = Scratch::new(&pattern(MUCH))?;
    let file = open(&scratch.0).await?;
    let (mut client, server) = pair().await?;
    {
        let mut copied = pin!(copy_range(&file, .., &mut client));
        // While there is space, each turn sends a part of the file, usually 1 MiB.
        for _ in 0..1000 {
            assert!(touch(copied.as_mut()).is_none(), "the copy ended before the socket was full");
            yield_now().await;
        }
    }
    Ok((client, server))
}

/// Receives everything, which must be the beginning of the file followed by `rest`.
async fn check(mut server: TcpStream, rest: &[u8]) -> io::Result<()> {
    let all = receive(&mut server, usize::MAX).await?;
    let sent = all.len() - rest.len();
    assert!(sent > 100_000 && all[..sent] == pattern(MUCH)[..sent] && all[sent..] == *rest);
    Ok(())
}

#[test]
fn a_stream_is_usable_after_a_dropped_copy_that_waited_for_space() {
    on_each_driver(async || {
        let (mut client, server) = dropped_when_full().await?;
        client.send(" and more").await?;
        drop(client);
        check(server, b" and more").await
    });
}

#[test]
fn a_stream_ends_and_moves_after_a_dropped_copy_that_waited_for_space() {
    on_each_driver(async || {
        let (mut client, server) = dropped_when_full().await?;
        client.shutdown().await?;
        check(server, b"").await?;
        let (client, server) = dropped_when_full().await?;
        drop(client);
        check(server, b"").await?;
        let (client, server) = dropped_when_full().await?;
        let mut client = TcpStream::from_parts(client.into_parts().await?)?;
        let more = spawn(async move { client.send(" and more").await });
        check(server, b" and more").await?;
        more.await.expect("the task panicked")
    });
}

#[test]
fn a_drain_after_a_dropped_copy_does_not_wait_for_space() {
    on_each_driver(async || {
        let (mut client, server) = dropped_when_full().await?;
        touch(client.drain()).expect("the drain waited although nothing is queued")?;
        client.send(" and more").await?;
        assert!(touch(client.drain()).is_none(), "the drain returned before the queue was empty");
        let checked = spawn(check(server, b" and more"));
        client.drain().await?;
        drop(client);
        checked.await.expect("the task panicked")
    });
}

#[test]
fn a_poll_for_space_is_cancelled_once() {
    on_each_driver(async || {
        let (client, _server) = dropped_when_full().await?;
        let mut parts = pin!(client.into_parts());
        yield_now().await;
        let before = counters().expect("not in a runtime");
        for _ in 0..10 {
            assert!(
                touch(parts.as_mut()).is_none(),
                "the move did not wait for the end of the poll"
            );
        }
        yield_now().await;
        let after = counters().expect("not in a runtime");
        assert!(after.sqes - before.sqes <= 5, "{}", after.sqes - before.sqes);
        parts.await.map(drop)
    });
}

#[test]
fn a_copy_that_waits_for_space_ends_with_its_peer() {
    on_each_driver(async || {
        let scratch = Scratch::new(&pattern(MUCH))?;
        let file = open(&scratch.0).await?;
        let (mut client, server) = pair().await?;
        let copied = spawn(async move { copy_range(&file, .., &mut client).await });
        for _ in 0..100 {
            yield_now().await;
        }
        server.abort();
        let error = copied.await.expect("the task panicked").unwrap_err();
        let gone = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        assert!(gone.contains(&error.kind()), "{error}");
        Ok(())
    });
}

#[test]
fn a_head_without_pages_does_not_wait_for_pages() {
    on_each_driver(async || {
        let scratch = Scratch::new(b"")?;
        let file = open(&scratch.0).await?;
        let (mut client, mut server) = pair().await?;
        for _ in 0..10 {
            touch(client.send(HEAD)).expect("the send waited")?;
            assert_eq!(copy_range(&file, .., &mut client).await?, 0);
            assert_eq!(unsent(&client), 0);
            assert_eq!(receive(&mut server, HEAD.len()).await?, HEAD);
        }
        Ok(())
    });
}

#[test]
fn a_file_without_pages_still_follows_its_head() {
    on_each_driver(async || {
        let file = open("/proc/self/status").await?;
        let (mut client, mut server) = pair().await?;
        touch(client.send(HEAD)).expect("the send waited")?;
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
        let scratch = Scratch::new(&pattern(40_000))?;
        let file = open(&scratch.0).await?;
        let (mut client, mut server) = pair().await?;
        // Reads until the next file call has to wait for another turn.
        while let Some((read, _)) = touch(file.read_at(vec![0; 40_000], 0)) {
            read?;
        }
        touch(client.send(HEAD)).expect("the send waited")?;
        assert!(
            touch(copy_range(&file, .., &mut client)).is_none(),
            "the copy ended within its first poll"
        );
        assert_eq!(unsent(&client), 0);
        assert_eq!(receive(&mut server, HEAD.len()).await?, HEAD);
        Ok(())
    });
}
