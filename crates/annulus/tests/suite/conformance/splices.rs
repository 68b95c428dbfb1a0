//! Copies between two sockets that go through a kernel pipe once receives are large enough. In
//! these tests the threshold is so low that receives of any size are large enough.

use crate::common::{pair, pattern, receive};
use crate::conformance::mode::Mode;
use annulus::io::{AsyncRecv, AsyncSend, copy, copy_at_most, copy_bidirectional};
use annulus::net::{TcpStream, UnixStream};
use annulus::spawn;
use annulus::stats::Counters;
use annulus::task::JoinHandle;
use annulus::time::{sleep, timeout};
use annulus_sim::Random;
use futures_util::future::{Either, select, try_join};
use rustix::net::SendFlags;
use std::io;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::oneshot;

/// Bytes per transfer: enough that some arrive after the receives that were already armed, and go
/// through a pipe.
const LONG: usize = 2 << 20;
/// Time after which a test gives up on bytes that do not arrive.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Checks that bytes have gone through pipes.
pub(crate) fn went_through_pipes(_: Mode, counters: &Counters) {
    assert!(counters.spliced_bytes > LONG as u64 / 8, "{} bytes", counters.spliced_bytes);
}

pub(crate) fn went_by_receives(_: Mode, counters: &Counters) {
    assert_eq!(counters.spliced_bytes, 0);
}

fn proxy(mut near: TcpStream, mut far: TcpStream) -> JoinHandle<io::Result<(u64, u64)>> {
    spawn(async move { copy_bidirectional(&mut near, &mut far).await })
}

async fn send_all(to: &mut impl AsyncSend, bytes: &[u8]) -> io::Result<()> {
    for piece in bytes.chunks(50_000) {
        to.send(piece.to_vec()).await?;
    }
    Ok(())
}

/// Sends bytes at one end while receiving them at the other.
async fn pass(from: &mut impl AsyncSend, to: &mut impl AsyncRecv, bytes: &[u8]) -> io::Result<()> {
    let (_, got) = try_join(send_all(from, bytes), receive(to, bytes.len())).await?;
    assert!(got == bytes);
    Ok(())
}

pub(crate) async fn long_transfers_and_messages_take_turns() -> io::Result<()> {
    let ((mut client, near), (far, mut server)) = (pair().await?, pair().await?);
    let copied = proxy(near, far);
    let long = pattern(LONG);
    for message in [&b"a request"[..], &long, b"another"] {
        pass(&mut client, &mut server, message).await?;
        pass(&mut server, &mut client, message).await?;
    }
    client.shutdown().await?;
    assert!(server.recv().await?.is_none());
    pass(&mut server, &mut client, &long).await?;
    drop(server);
    assert!(client.recv().await?.is_none());
    let bytes = LONG as u64 + 16;
    assert_eq!(copied.await.expect("the task panicked")?, (bytes, bytes + LONG as u64));
    Ok(())
}

pub(crate) async fn unix_streams_go_through_pipes() -> io::Result<()> {
    let ((mut client, mut near), (mut far, mut server)) =
        (UnixStream::pair()?, UnixStream::pair()?);
    let copied = spawn(async move { copy_bidirectional(&mut near, &mut far).await });
    pass(&mut client, &mut server, &pattern(LONG)).await?;
    pass(&mut server, &mut client, &pattern(LONG)).await?;
    drop(server);
    assert!(client.recv().await?.is_none());
    drop(client);
    assert_eq!(copied.await.expect("the task panicked")?, (LONG as u64, LONG as u64));
    Ok(())
}

/// An urgent byte is not part of the stream. `splice` stops before it, as if nothing had arrived.
pub(crate) async fn bytes_after_an_urgent_byte_are_copied() -> io::Result<()> {
    let ((mut client, near), (far, mut server)) = (pair().await?, pair().await?);
    let copied = proxy(near, far);
    pass(&mut client, &mut server, &pattern(LONG)).await?;
    client.drain().await?;
    rustix::net::send(&client, b"!", SendFlags::OOB)?;
    let after = timeout(TIME_LIMIT, pass(&mut client, &mut server, b"after the urgent byte"));
    after.await.expect("nothing was copied after the urgent byte")?;
    drop((client, server));
    copied.await.expect("the task panicked")?;
    Ok(())
}

pub(crate) async fn a_stream_is_copied_to_itself() -> io::Result<()> {
    let (client, near) = pair().await?;
    let echo = spawn(async move {
        let (mut from, mut to) = near.into_split();
        copy(&mut from, &mut to).await
    });
    let (mut from_echo, mut to_echo) = client.into_split();
    pass(&mut to_echo, &mut from_echo, &pattern(LONG)).await?;
    drop(to_echo);
    assert!(from_echo.recv().await?.is_none());
    assert_eq!(echo.await.expect("the task panicked")?, LONG as u64);
    Ok(())
}

pub(crate) async fn a_limit_is_exact() -> io::Result<()> {
    let ((client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    let bytes = pattern(2 * LONG);
    let limit = LONG + 12_345;
    let (_from_near, mut to_near) = client.into_split();
    let sent = async {
        send_all(&mut to_near, &bytes).await?;
        to_near.shutdown().await
    };
    let copied = async {
        assert_eq!(copy_at_most(&mut near, &mut far, limit as u64).await?, limit as u64);
        let rest = receive(&mut near, usize::MAX).await?;
        assert!(rest == bytes[limit..], "{} bytes are left", rest.len());
        far.shutdown().await
    };
    let got = receive(&mut server, usize::MAX);
    let (_, (_, got)) = try_join(sent, try_join(copied, got)).await?;
    assert!(got == bytes[..limit], "{} bytes arrived", got.len());
    Ok(())
}

/// More bytes than the buffers of four sockets and a pipe hold by default.
fn more_than_fits() -> Vec<u8> {
    pattern(LONG).repeat(16)
}

/// Copies until nothing has moved for 40 ms, since the server does not read. Returns how many bytes
/// were copied and the kind of the error.
async fn copied_until_full(near: &mut TcpStream, far: &mut TcpStream) -> (u64, io::ErrorKind) {
    let mut copy = copy_bidirectional(near, far).idle_timeout(Duration::from_millis(40));
    let error = (&mut copy).await.expect_err("the copy ended before its timeout");
    (copy.copied().0, error.kind())
}

pub(crate) async fn copied_bytes_are_sent_by_a_dropped_stream() -> io::Result<()> {
    let ((mut client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    let bytes = more_than_fits();
    let all = bytes.clone();
    // This send fails when the proxy's end is reset.
    let sent = spawn(async move { send_all(&mut client, &all).await });
    let (copied, why) = copied_until_full(&mut near, &mut far).await;
    assert_eq!(why, io::ErrorKind::TimedOut);
    let copied = copied as usize;
    let last = async {
        // These bytes are queued after those in the pipe.
        far.send("the last words").await?;
        drop((near, far));
        Ok(())
    };
    let ((), got) = try_join(last, receive(&mut server, usize::MAX)).await?;
    assert_eq!(got.len(), copied + 14);
    assert!(got[..copied] == bytes[..copied]);
    assert_eq!(&got[copied..], b"the last words");
    // The client's send has failed, unless the buffers of this system can hold all unread bytes.
    _ = sent.await.expect("the task panicked");
    Ok(())
}

pub(crate) async fn a_copy_continues_after_a_dropped_one() -> io::Result<()> {
    let ((client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    let bytes = more_than_fits();
    let (_from_near, mut to_near) = client.into_split();
    let (full, is_full) = oneshot::channel();
    let sent = async {
        send_all(&mut to_near, &bytes).await?;
        to_near.shutdown().await
    };
    let copied = async {
        let (mut copied, _) = copied_until_full(&mut near, &mut far).await;
        full.send(()).expect("the server has ended");
        let mut patience = Duration::ZERO;
        loop {
            patience += Duration::from_micros(500);
            let mut copy = copy_bidirectional(&mut near, &mut far);
            let ended = timeout(patience, &mut copy).await;
            copied += copy.copied().0;
            if let Ok(ended) = ended {
                return ended.map(|_| copied);
            }
        }
    };
    let got = async {
        is_full.await.expect("the sender was dropped");
        let got = receive(&mut server, usize::MAX).await;
        drop(server);
        got
    };
    let (_, (copied, got)) = try_join(sent, try_join(copied, got)).await?;
    assert_eq!((copied, got.len()), (bytes.len() as u64, bytes.len()));
    assert!(got == bytes);
    Ok(())
}

pub(crate) async fn a_reset_of_the_source_is_an_error_and_not_an_end() -> io::Result<()> {
    let ((mut client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    let copied = spawn(async move { copy(&mut near, &mut far).await });
    pass(&mut client, &mut server, &pattern(LONG)).await?;
    client.abort();
    let error = copied.await.expect("the task panicked").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    Ok(())
}

pub(crate) async fn a_reset_of_the_target_ends_the_copy() -> io::Result<()> {
    let ((mut client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    let copied = spawn(async move { copy(&mut near, &mut far).await });
    pass(&mut client, &mut server, &pattern(LONG)).await?;
    let bytes = more_than_fits();
    let sent = spawn(async move { send_all(&mut client, &bytes).await });
    // More is on its way, most of it in the pipe.
    receive(&mut server, 100_000).await?;
    server.abort();
    let error = copied.await.expect("the task panicked").unwrap_err();
    let kinds = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    assert!(kinds.contains(&error.kind()), "{error}");
    // The client's send has failed, unless the buffers of this system can hold all unread bytes.
    _ = sent.await.expect("the task panicked");
    Ok(())
}

pub(crate) async fn a_connection_moves_after_the_bytes_in_its_pipe() -> io::Result<()> {
    let ((mut client, mut near), (mut far, mut server)) = (pair().await?, pair().await?);
    let bytes = more_than_fits();
    let all = bytes.clone();
    let sent = spawn(async move { send_all(&mut client, &all).await });
    let copied = copied_until_full(&mut near, &mut far).await.0 as usize;
    let moved = async {
        let mut far = TcpStream::from_parts(far.into_parts().await?)?;
        far.send("moved").await?;
        drop((near, far));
        Ok(())
    };
    let ((), got) = try_join(moved, receive(&mut server, usize::MAX)).await?;
    assert!(got[..copied] == bytes[..copied]);
    assert_eq!(&got[copied..], b"moved");
    // The client's send has failed, unless the buffers of this system can hold all unread bytes.
    _ = sent.await.expect("the task panicked");
    Ok(())
}

/// Sends pieces of any size and the end, with pauses, while another task receives to the end, with
/// pauses.
async fn talk(stream: TcpStream, bytes: Vec<u8>, seed: u64) -> io::Result<Vec<u8>> {
    let (mut from, mut to) = stream.into_split();
    let sent = spawn(async move {
        let (mut random, mut rest) = (Random::new(seed), &bytes[..]);
        while !rest.is_empty() {
            let most = random.pick(&[100, 10_000, 300_000]);
            let (piece, more) = rest.split_at(rest.len().min(1 + random.below(most) as usize));
            to.send(piece.to_vec()).await?;
            rest = more;
            pause(&mut random).await;
        }
        to.shutdown().await
    });
    let (mut random, mut got) = (Random::new(!seed), Vec::new());
    while let Some(lease) = from.recv().await? {
        got.extend_from_slice(&lease);
        pause(&mut random).await;
    }
    sent.await.expect("the task panicked")?;
    Ok(got)
}

async fn pause(random: &mut Random) {
    if random.chance(30) {
        sleep(Duration::from_micros(random.below(2000))).await;
    }
}

/// Waits for a random time of less than `most` microseconds. Without `most`, waits until more bytes
/// have gone through a pipe, which takes longer on slower machines.
async fn cut(most: Option<u64>, random: &mut Random) {
    if let Some(most) = most {
        return sleep(Duration::from_micros(random.below(most))).await;
    }
    let spliced = || annulus::counters().expect("not in a runtime").spliced_bytes;
    let before = spliced();
    while spliced() == before {
        sleep(Duration::from_micros(100)).await;
    }
}

/// Compares the bytes of both directions over copies that are dropped and restarted at any time.
pub(crate) async fn bytes_are_equal_wherever_copies_are_dropped() -> io::Result<()> {
    for seed in 0..6 {
        let ((client, mut near), (mut far, server)) = (pair().await?, pair().await?);
        let mut random = Random::new(seed + 100);
        let [up, down] = [(); 2].map(|()| pattern(random.below(2 * LONG as u64) as usize));
        let ends = [(client, up.clone(), seed), (server, down.clone(), seed + 50)];
        let [client, server] = ends.map(|(end, bytes, seed)| spawn(talk(end, bytes, seed)));
        let (mut copied, mut has_ended) = ((0, 0), false);
        while !has_ended {
            let mut copy = copy_bidirectional(&mut near, &mut far);
            let cut = cut(random.pick(&[None, Some(100), Some(3000), Some(30_000)]), &mut random);
            has_ended = match select(&mut copy, pin!(cut)).await {
                Either::Left((ended, _)) => ended.map(|_| true)?,
                Either::Right(_) => false,
            };
            copied = (copied.0 + copy.copied().0, copied.1 + copy.copied().1);
        }
        assert_eq!(copied, (up.len() as u64, down.len() as u64), "seed {seed}");
        assert!(server.await.expect("the task panicked")? == up, "seed {seed}");
        assert!(client.await.expect("the task panicked")? == down, "seed {seed}");
    }
    Ok(())
}
