//! Data queued after a send that is assumed complete without a completion must be sent even if no
//! other event arrives. The peers are threads with sockets of the standard library, since a peer in
//! the runtime would itself cause events.

use crate::common;
use crate::conformance::mode::{Case, Mode};

use annulus::fs::{OpenOptions, Policy};
use annulus::io::{copy, copy_range};
use annulus::net::{Transmit, UdpSocket, UnixDatagram, UnixOptions};
use annulus::pipe::Sender;
use annulus::spawn;
use annulus::stats::Counters;
use annulus::task::{spawn_blocking, yield_now};
use annulus::time::timeout;
use common::{half_pair, pattern, touch};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::{self, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram as StdUnixDatagram, UnixListener};
use std::time::Duration;

/// Creates a test for each way of sending. It runs in every mode on the real kernel, including busy
/// polling, as a guest and with zero-copy sends. A body may be followed by a setting, and by a
/// check that the bytes went the intended way.
macro_rules! ways {
    ($($name:ident: $body:ident $(, with $setting:ident($value:expr))? $(, then $check:expr)?;)*) => {$(
        #[test]
        fn $name() {
            let case = Case::new(|| Box::pin($body()))$(.with(|builder| builder.$setting($value)))?$(.then($check))?;
            Mode::OF_LINUX.iter().for_each(|mode| mode.run(&case));
        }
    )*};
}

ways! {
    of_a_tcp_stream: tcp, then |mode, counters| assert_eq!(counters.zero_copy_sends > 0, mode.is_zero_copy());
    of_many_chunks: many_chunks;
    of_a_direct_write: direct_writes, then |_, counters| assert!(counters.direct_sends > 0);
    of_pages_of_a_file: pages;
    of_a_link: forwards, then |_, counters| assert_eq!(counters.spliced_bytes, 0);
    of_a_splice: forwards, with splice_threshold(Some(1)), then have_spliced;
    of_descriptors: descriptors;
    of_a_pipe: pipe;
    of_a_unix_datagram_socket: unix_datagrams;
    of_a_udp_socket: udp;
}

fn have_spliced(_: Mode, counters: &Counters) {
    assert!(counters.spliced_bytes > 0);
}

/// Queues sends without waiting while a thread reads from the peer. Returns what the thread
/// received.
async fn brought(
    read: impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static,
    queue: impl Future<Output = io::Result<()>>,
) -> io::Result<Vec<u8>> {
    let reads = spawn_blocking(read);
    yield_now().await;
    queue.await?;
    // The deadline's timer is the only other event.
    timeout(Duration::from_secs(20), reads)
        .await
        .expect("a part was never sent")
        .expect("the task panicked")
}

/// Polls a send once, which must queue it.
fn queued<T>(send: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    touch(send).expect("there is space")
}

/// Reads exactly `count` bytes.
fn read_exact(mut from: impl Read, count: usize) -> io::Result<Vec<u8>> {
    let mut got = vec![0; count];
    from.read_exact(&mut got)?;
    Ok(got)
}

/// One send carries at most 64 chunks, so 100 chunks take two sends.
async fn many_chunks() -> io::Result<()> {
    let (mut stream, peer) = half_pair().await?;
    let bytes = pattern(300);
    let got = brought(|| read_exact(peer, 300), async {
        bytes.chunks(3).try_for_each(|chunk| queued(stream.send(chunk.to_vec())))
    });
    assert!(got.await? == bytes);
    Ok(())
}

async fn tcp() -> io::Result<()> {
    let (mut stream, peer) = half_pair().await?;
    let got = brought(|| read_exact(peer, 4), async {
        queued(stream.send("a"))?;
        queued(stream.write(b"b"))?;
        queued(stream.write_vectored(&[IoSlice::new(b"c")]))?;
        queued(stream.send("d"))
    });
    assert_eq!(got.await?, b"abcd");
    Ok(())
}

/// Large writes go to the kernel at once, together with the bytes queued before them.
async fn direct_writes() -> io::Result<()> {
    let (mut stream, peer) = half_pair().await?;
    let bytes = pattern(100_000);
    let parts = [0, 1, 20_001, 20_002, 99_999, 100_000];
    let got = brought(|| read_exact(peer, 100_000), async {
        for (number, range) in parts.windows(2).enumerate() {
            let part = &bytes[range[0]..range[1]];
            if number % 2 == 0 {
                queued(stream.send(part.to_vec()))?;
            } else {
                queued(stream.write_all(part))?;
            }
        }
        Ok(())
    });
    assert!(got.await? == bytes);
    Ok(())
}

async fn pages() -> io::Result<()> {
    const LEN: usize = 200_000;
    let (mut stream, peer) = half_pair().await?;
    let path = std::env::current_exe()?;
    let expected = [b"a".to_vec(), read_exact(File::open(&path)?, LEN)?, b"b".to_vec()].concat();
    let file = OpenOptions::new().read(true).policy(Policy::Inline).open(path).await?;
    let got = brought(|| read_exact(peer, LEN + 2), async {
        queued(stream.send("a"))?;
        copy_range(&file, 0..LEN as u64, &mut stream).await?;
        queued(stream.send("b"))
    });
    assert!(got.await? == expected);
    Ok(())
}

/// Each piece is forwarded, after bytes that the target has already queued, and received before the
/// next one is sent. There are enough pieces that some arrive after the receives that were already
/// armed, and go through a pipe.
async fn forwards() -> io::Result<()> {
    let (mut near, mut client) = half_pair().await?;
    let (mut far, server) = half_pair().await?;
    let bytes = pattern(2 << 20);
    let read = move || {
        let mut got = read_exact(&server, 1)?;
        for piece in pattern(2 << 20).chunks(64 << 10) {
            client.write_all(piece)?;
            got.extend(read_exact(&server, piece.len())?);
        }
        Ok(got)
    };
    let got = brought(read, async {
        queued(far.send("a"))?;
        spawn(async move { copy(&mut near, &mut far).await });
        Ok(())
    });
    let got = got.await?;
    assert!(got[0] == b'a' && got[1..] == bytes);
    Ok(())
}

/// One message with descriptors is sent per turn.
async fn descriptors() -> io::Result<()> {
    let address = SocketAddr::from_abstract_name(format!("silence-{}", std::process::id()))?;
    let listener = UnixListener::bind_addr(&address)?;
    let mut stream = UnixOptions::new().descriptors(true).connect_addr(&address).await?;
    let peer = listener.accept()?.0;
    let null = || File::open("/dev/null").map(|file| vec![OwnedFd::from(file)]);
    let got = brought(|| read_exact(peer, 4), async {
        queued(stream.send("a"))?;
        queued(stream.send_with_descriptors("b", null()?))?;
        queued(stream.send_with_descriptors("c", null()?))?;
        queued(stream.write(b"d")).map(drop)
    });
    assert_eq!(got.await?, b"abcd");
    Ok(())
}

async fn pipe() -> io::Result<()> {
    let (reader, writer) = io::pipe()?;
    let mut sender = Sender::try_from(OwnedFd::from(writer))?;
    let got = brought(|| read_exact(reader, 3), async {
        queued(sender.send("a"))?;
        queued(sender.write(b"b"))?;
        queued(sender.send("c"))
    });
    assert_eq!(got.await?, b"abc");
    Ok(())
}

/// One datagram is sent per turn.
async fn unix_datagrams() -> io::Result<()> {
    let (socket, peer) = StdUnixDatagram::pair()?;
    let socket = UnixDatagram::from_std(socket)?;
    let read = move || {
        let mut got = vec![0; 5];
        got.iter_mut().try_for_each(|byte| peer.recv(std::slice::from_mut(byte)).map(drop))?;
        Ok(got)
    };
    let got =
        brought(read, async { (0..5u8).try_for_each(|byte| queued(socket.send(vec![byte]))) });
    assert_eq!(got.await?, [0, 1, 2, 3, 4]);
    Ok(())
}

/// The third datagram is large enough to go to the kernel at once if nothing were queued.
async fn udp() -> io::Result<()> {
    let peer = net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let to = peer.local_addr()?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let read = move || {
        let mut buffer = [0; 8192];
        (0..4).map(|_| peer.recv(&mut buffer).map(|_| buffer[0])).collect()
    };
    let got = brought(read, async {
        queued(socket.send_to(vec![1; 1], to))?;
        socket.try_send(&[2; 2], &Transmit::to(to))?;
        socket.try_send(&[3; 5000], &Transmit::to(to))?;
        queued(socket.send_to(vec![4; 1], to))
    });
    assert_eq!(got.await?, [1, 2, 3, 4]);
    Ok(())
}
