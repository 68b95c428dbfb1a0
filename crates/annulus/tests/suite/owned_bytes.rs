//! All kinds of owned bytes are sent and written to a file on each driver, and nothing copies them.

use crate::common;
use annulus_skip::skip;

use annulus::fs::{AlignedBuf, File, IoBuf, OpenOptions, Policy};
use annulus::io::copy;
use annulus::net::{TcpStream, UdpSocket};
use annulus::stats::Counters;
use annulus::{Chunk, DriverChoice, Lease, Runtime, SharedBytes, counters};
use bytes::{Bytes, BytesMut};
use common::{pair, pattern, receive, run_on};
use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs a body on each driver that works on this machine.
fn on_each_driver(body: impl AsyncFn() -> io::Result<()>) {
    for driver in [DriverChoice::Epoll, DriverChoice::Uring] {
        match Runtime::builder().driver(driver).build() {
            Ok(_) => run_on(Runtime::builder().driver(driver), body()),
            Err(_) => skip!("{driver} is blocked here"),
        }
    }
}

fn counted() -> Counters {
    counters().expect("not in a runtime")
}

/// A file for one test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("annulus-owned-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

const TEXT: &str = "owned bytes of one kind";

/// Sends the bytes and writes them to a file. The chunk uses the value's memory, and none of it is
/// copied.
async fn goes_everywhere<B>(made: impl Fn() -> B) -> io::Result<()>
where
    B: IoBuf + Into<Chunk>,
{
    let value = made();
    let (start, len) = (value.as_ptr(), value.bytes_init());
    let chunk: Chunk = value.into();
    assert_eq!((chunk.as_ref().as_ptr(), chunk.len()), (start, len));
    drop(chunk);
    let before = counted().copied_bytes;
    let (mut client, mut server) = pair().await?;
    client.send(made()).await?;
    assert_eq!(receive(&mut server, len).await?, TEXT.as_bytes());
    let sockets = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    sockets.0.send_to(made(), sockets.1.local_addr()?).await?;
    assert_eq!(&*sockets.1.recv().await?, TEXT.as_bytes());
    assert_eq!(counted().copied_bytes, before);
    let scratch = Scratch::new();
    let file = File::create(&scratch.0).await?;
    file.write_all_at(made(), 0).await.0?;
    file.write_all_at(made().into(), len as u64).await.0?;
    assert_eq!(std::fs::read(&scratch.0)?, TEXT.repeat(2).as_bytes());
    Ok(())
}

#[test]
fn every_kind_is_sent_and_written_without_a_copy() {
    on_each_driver(async || {
        goes_everywhere(|| TEXT).await?;
        goes_everywhere(|| TEXT.as_bytes()).await?;
        goes_everywhere(|| b"owned bytes of one kind").await?;
        goes_everywhere(|| TEXT.to_owned()).await?;
        goes_everywhere(|| TEXT.as_bytes().to_vec()).await?;
        goes_everywhere(|| Box::<[u8]>::from(TEXT.as_bytes())).await?;
        goes_everywhere(|| Box::<str>::from(TEXT)).await?;
        goes_everywhere(|| Cow::Borrowed(TEXT)).await?;
        goes_everywhere(|| Cow::<[u8]>::Owned(TEXT.into())).await?;
        goes_everywhere(|| SharedBytes::copy_of(TEXT.as_bytes())).await?;
        goes_everywhere(|| Bytes::from(TEXT)).await?;
        goes_everywhere(|| BytesMut::from(TEXT)).await?;
        goes_everywhere(|| Chunk::from(TEXT)).await?;
        goes_everywhere(|| TEXT.repeat(2).into_bytes().slice(..TEXT.len())).await
    });
}

/// A queue entry per small chunk costs more than copying it behind its neighbour.
#[test]
fn small_neighbours_in_the_queue_are_copied_together() {
    on_each_driver(async || {
        let (mut client, mut server) = pair().await?;
        let equal = |size| (vec![size; 20], if size <= 1024 { 20 * size } else { 0 });
        let mixed = (vec![1025, 10, 20, 30, 1025, 10, 1025, 0, 10], 10 + 20 + 30);
        for (sizes, copied) in [equal(1), equal(128), equal(1024), equal(1025), mixed] {
            let before = counted().copied_bytes;
            let chunks = || sizes.iter().zip(0_u8..).map(|(size, number)| vec![number; *size]);
            for chunk in chunks() {
                client.send(chunk).await?;
            }
            client.drain().await?;
            assert_eq!(counted().copied_bytes - before, copied as u64, "chunks of {sizes:?} bytes");
            let sent: Vec<u8> = chunks().flatten().collect();
            assert_eq!(receive(&mut server, sent.len()).await?, sent);
        }
        Ok(())
    });
}

#[test]
fn reference_counted_kinds_are_shared_and_not_copied() {
    on_each_driver(async || {
        let (arc, rc) = (Arc::<[u8]>::from(TEXT.as_bytes()), Rc::<[u8]>::from(TEXT.as_bytes()));
        goes_everywhere(|| arc.clone()).await?;
        goes_everywhere(|| rc.clone()).await?;
        let (arc, rc) = (Arc::<str>::from(TEXT), Rc::<str>::from(TEXT));
        goes_everywhere(|| arc.clone()).await?;
        goes_everywhere(|| rc.clone()).await?;
        let (arc, rc) = (Arc::new(TEXT.to_owned()), Rc::new(TEXT.to_owned()));
        goes_everywhere(|| arc.clone()).await?;
        goes_everywhere(|| rc.clone()).await?;
        let (arc, rc) = (Arc::new(arc.as_bytes().to_vec()), Rc::new(rc.as_bytes().to_vec()));
        goes_everywhere(|| arc.clone()).await?;
        goes_everywhere(|| rc.clone()).await
    });
}

#[test]
fn file_buffers_are_sent() {
    on_each_driver(async || {
        let aligned = || {
            let mut buf = AlignedBuf::new(4096, 512).expect("no memory");
            buf[..TEXT.len()].copy_from_slice(TEXT.as_bytes());
            buf.slice(..TEXT.len())
        };
        goes_everywhere(aligned).await
    });
}

#[test]
fn values_without_bytes_send_none() {
    on_each_driver(async || {
        let (mut client, mut server) = pair().await?;
        client.send(Chunk::from_owner(Vec::new())).await?;
        client.send(Chunk::from_buf(TEXT.slice(TEXT.len()..))).await?;
        client.send(Rc::<[u8]>::from([])).await?;
        client.send(Cow::Borrowed("all")).await?;
        drop(client);
        assert_eq!(receive(&mut server, 100).await?, b"all");
        Ok(())
    });
}

async fn leases(stream: &mut TcpStream, len: usize) -> io::Result<Vec<Lease>> {
    let (mut leases, mut count) = (Vec::new(), 0);
    while count < len {
        let lease = stream.recv().await?.expect("the stream ended too early");
        count += lease.len();
        leases.push(lease);
    }
    Ok(leases)
}

#[test]
fn leases_are_sent_and_written_without_a_copy() {
    on_each_driver(async || {
        let text = pattern(100_000);
        let (mut client, mut server) = pair().await?;
        let scratch = Scratch::new();
        let mut file = File::create(&scratch.0).await?;
        client.send(text.clone()).await?;
        let before = counted().copied_bytes;
        for mut lease in leases(&mut server, text.len()).await? {
            let start = lease.as_ptr();
            let chunk = Chunk::from(lease.split_to(lease.len() / 2));
            assert_eq!(chunk.as_ref().as_ptr(), start);
            server.send(chunk).await?;
            server.send(lease).await?;
        }
        let received = leases(&mut client, text.len()).await?;
        let all: Vec<u8> = received.iter().flat_map(|lease| lease.iter().copied()).collect();
        assert!(all == text);
        for lease in received {
            file.write_all(lease).await.0?;
        }
        assert!(std::fs::read(&scratch.0)? == text);
        assert_eq!(counted().copied_bytes, before);
        Ok(())
    });
}

#[test]
fn pages_of_a_file_are_sent_without_a_copy() {
    on_each_driver(async || {
        // Number of bytes: too many to be read and queued, and few enough for the socket to accept
        // at once.
        const LEN: usize = 40_000;
        let text = pattern(LEN);
        let scratch = Scratch::new();
        std::fs::write(&scratch.0, &text)?;
        let (mut client, mut server) = pair().await?;
        // The file is read on the loop, even if the device was slow lately.
        let inline = OpenOptions::new().read(true).policy(Policy::Inline);
        let mut file = inline.open(&scratch.0).await?;
        let before = counted();
        assert_eq!(copy(&mut file, &mut client).await?, LEN as u64);
        let after = counted();
        assert_eq!(after.copied_bytes, before.copied_bytes);
        // One call sends the pages and one finds the end. Nothing is read, and nothing else is
        // sent.
        assert_eq!(after.file_inline - before.file_inline, 2);
        assert_eq!(after.sqes, before.sqes);
        assert!(receive(&mut server, LEN).await? == text);
        Ok(())
    });
}
