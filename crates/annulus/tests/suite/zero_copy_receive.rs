//! Receives into memory that the network stack owns. Without a device, the kernel copies the bytes
//! there (Linux 7.1), so a program sees the same leases as with one.

use crate::common;
use annulus_skip::skip;

use annulus::net::{TcpStream, UnixStream};
use annulus::{Builder, DriverChoice, Runtime, SharedBytes, ZeroCopyReceive, counters, spawn};
use annulus_kernel::process::has_capability;
use annulus_ring::Features;
use common::{echo, pair, pattern, receive, run_on};
use rustix::thread::CapabilitySet;
use std::io;

/// Size of the memory, small enough for a test to exhaust it.
const AREA_BYTES: usize = 256 * 1024;

fn builder() -> Builder {
    let memory = ZeroCopyReceive::without_device(AREA_BYTES);
    Runtime::builder().driver(DriverChoice::Uring).zero_copy_receive(Some(memory))
}

/// Returns true if this kernel has such receives and allows them.
fn is_available() -> bool {
    let has_it = Features::detect().is_ok_and(|features| features.has("deviceless receive"));
    let is_available = has_it && has_capability(CapabilitySet::NET_ADMIN);
    if !is_available {
        skip!("no zero-copy receives without a device here (Linux 7.1, CAP_NET_ADMIN)");
    }
    is_available
}

/// Returns the number of pieces received so far.
fn pieces() -> u64 {
    counters().unwrap_or_default().zero_copy_receives
}

async fn send_pattern(mut stream: TcpStream, len: usize) -> io::Result<TcpStream> {
    stream.send(pattern(len)).await?;
    stream.drain().await?;
    Ok(stream)
}

#[test]
fn dropped_leases_return_their_memory() {
    if !is_available() {
        return;
    }
    let len = 16 * AREA_BYTES;
    run_on(builder(), async move {
        let (client, mut server) = pair().await?;
        let sending = spawn(send_pattern(client, len));
        assert!(receive(&mut server, len).await? == pattern(len));
        let least = (len / rustix::param::page_size()) as u64;
        assert!(pieces() >= least, "{} pieces of {least}", pieces());
        drop(sending.await);
        assert!(server.recv().await?.is_none(), "the end of the stream was lost");
        Ok(())
    });
}

#[test]
fn leases_that_are_kept_stop_no_stream_and_do_not_change() {
    if !is_available() {
        return;
    }
    let len = 4 * AREA_BYTES;
    let kept = run_on(builder(), async move {
        let (client, mut server) = pair().await?;
        let sending = spawn(send_pattern(client, len));
        let (mut kept, mut bytes) = (Vec::new(), 0);
        while bytes < len {
            let lease = server.recv().await?.expect("the stream ended too early");
            bytes += lease.len();
            kept.push(lease.into_shared());
        }
        drop(sending.await);
        // Another stream receives while all leases are kept.
        let (mut client, server) = pair().await?;
        spawn(echo(server));
        client.send("question").await?;
        assert!(receive(&mut client, 8).await? == b"question");
        Ok(kept)
    });
    // The memory outlives the runtime.
    let kept: Vec<u8> = kept.iter().flat_map(|bytes: &SharedBytes| bytes.to_vec()).collect();
    assert!(kept == pattern(len));
}

#[test]
fn unread_pieces_of_few_bytes_share_pages() {
    if !is_available() {
        return;
    }
    run_on(builder(), async {
        // More streams and pieces than there are pages.
        let mut streams = Vec::new();
        for _ in 0..10 {
            streams.push(pair().await?);
        }
        let sent = pattern(100);
        for byte in &sent {
            for (client, server) in &mut streams {
                client.send([*byte].to_vec()).await?;
                client.drain().await?;
                // Arms the receive without taking anything.
                _ = common::touch(server.readable());
            }
            annulus::task::yield_now().await;
        }
        for (_, server) in &mut streams {
            assert!(receive(server, sent.len()).await? == sent);
        }
        assert!(pieces() > 0);
        Ok(())
    });
}

#[test]
fn sockets_that_are_not_tcp_receive_as_usual() {
    if !is_available() {
        return;
    }
    run_on(builder(), async {
        let (mut one, mut other) = UnixStream::pair()?;
        for text in ["a question", "an answer"] {
            one.send(text).await?;
            assert!(receive(&mut other, text.len()).await? == text.as_bytes());
            std::mem::swap(&mut one, &mut other);
        }
        assert_eq!(pieces(), 0);
        let listener = annulus::net::TcpListener::bind("[::1]:0")?;
        let mut client = TcpStream::connect(listener.local_addr()?).await?;
        let (mut server, _) = listener.accept().await?;
        client.send("version 6").await?;
        assert!(receive(&mut server, 9).await? == b"version 6");
        assert_eq!(pieces(), 1);
        Ok(())
    });
}

#[test]
fn kernel_or_setting_that_excludes_it_is_an_error() {
    let text = |builder: Builder| builder.build().unwrap_err().to_string();
    let epoll = text(builder().driver(DriverChoice::Epoll));
    assert!(epoll.starts_with("zero_copy_receive needs io_uring"), "{epoll}");
    let both = text(builder().locked_down(true));
    assert!(both.starts_with("zero_copy_receive cannot be combined with locked_down"), "{both}");
    let nothing = Some(ZeroCopyReceive::without_device(0));
    let nothing = text(builder().zero_copy_receive(nothing));
    assert_eq!(nothing, "zero_copy_receive of 0 bytes is out of range; use 1 to 67108864");
    let Ok(features) = Features::detect() else { return skip!("io_uring is blocked here") };
    if !features.has("deviceless receive") {
        let old = text(builder());
        assert!(old.starts_with("zero-copy receive: ") && old.contains("needs Linux 7.1"), "{old}");
        let auto = text(builder().driver(DriverChoice::Auto));
        assert!(auto.contains("needs Linux 7.1"), "{auto}");
    }
}
