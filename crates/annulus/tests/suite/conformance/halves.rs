//! `io::split`, on streams of this crate and on streams that the runtime does not know.

use crate::common::piecewise::Piecewise;
use crate::common::{pair, pattern, receive, touch};
use annulus::io::{AsyncRecv, AsyncSend, split};
use annulus::net::TcpStream;
use annulus::spawn;
use annulus::task::yield_now;
use std::io;

/// Sends everything in one task, and receives it in another by each way to receive in turn.
async fn both_ways<S: AsyncRecv + AsyncSend + 'static>(
    stream: S,
    peer: TcpStream,
) -> io::Result<S> {
    let sent = pattern(100_000);
    let (mut reader, mut writer) = split(stream);
    let (mut peer_reader, mut peer_writer) = peer.into_split();
    let bytes = sent.clone();
    let sending = spawn(async move {
        for part in bytes.chunks(997) {
            writer.write_all(part).await?;
            yield_now().await;
        }
        writer.send(b"end".to_vec()).await?;
        writer.flush().await?;
        io::Result::Ok(writer)
    });
    let bytes = sent.clone();
    let peer_sending = spawn(async move {
        for part in bytes.chunks(3001) {
            peer_writer.write_all(part).await?;
        }
        peer_writer.shutdown().await
    });
    let len = sent.len() + 3;
    let peer_receiving = spawn(async move { receive(&mut peer_reader, len).await });
    let (mut got, mut memory) = (Vec::new(), [0; 100]);
    for way in (0..5).cycle() {
        match way {
            0 => {
                let Some(lease) = reader.recv().await? else { break };
                got.extend_from_slice(&lease);
            }
            1 if sent.len() - got.len() >= 700 => {
                got.extend_from_slice(&reader.recv_exact(700).await?);
            }
            2 => {
                let n = sent.len().saturating_sub(got.len()).min(9000);
                let shown = reader.fill_at_least(n).await?;
                assert!(shown.len() >= n, "{} of {n} bytes", shown.len());
                let taken = shown.len() / 2;
                got.extend_from_slice(&shown[..taken]);
                reader.consume(taken);
            }
            3 => {
                let shown = reader.fill_buf().await?;
                let taken = shown.len().min(10);
                got.extend_from_slice(&shown[..taken]);
                reader.consume(taken);
                // A dropped wait loses nothing.
                _ = touch(reader.fill_at_least(1_000_000));
            }
            _ => {
                let count = reader.read(&mut memory).await?;
                got.extend_from_slice(&memory[..count]);
            }
        }
    }
    assert!(got == sent, "{} bytes", got.len());
    // The end stays, also for a peek.
    assert!(reader.fill_buf().await?.is_empty() && reader.recv().await?.is_none());
    peer_sending.await.expect("the task panicked")?;
    let at_peer = peer_receiving.await.expect("the task panicked")?;
    assert!(at_peer == [&sent[..], b"end"].concat(), "{} bytes", at_peer.len());
    let writer = sending.await.expect("the task panicked")?;
    assert!(writer.is_pair_of(&reader));
    Ok(reader.unsplit(writer))
}

pub(crate) async fn halves_of_any_stream_work_independently() -> io::Result<()> {
    let (stream, peer) = pair().await?;
    both_ways(stream, peer).await?;
    for most in [1, 1000, 20_000] {
        let (stream, peer) = pair().await?;
        both_ways(Piecewise(stream, most), peer).await?;
    }
    Ok(())
}

/// Bytes that the reading half has shown stay in the stream.
pub(crate) async fn an_unsplit_stream_keeps_shown_bytes() -> io::Result<()> {
    let (stream, mut peer) = pair().await?;
    let (mut reader, writer) = split(stream);
    peer.send("first second").await?;
    assert!(reader.fill_at_least(12).await?.starts_with(b"first second"));
    reader.consume(6);
    let mut stream = reader.unsplit(writer);
    assert_eq!(&*stream.recv_exact(6).await?, b"second");
    let (reader, _writer) = split(stream);
    let (_reader, writer) = split(peer);
    assert!(!reader.is_pair_of(&writer));
    Ok(())
}

/// The stream closes with the second half, and the writing half does not close its direction.
pub(crate) async fn the_last_half_closes_the_stream() -> io::Result<()> {
    let (stream, mut peer) = pair().await?;
    let (mut reader, writer) = split(stream);
    assert!(touch(peer.recv()).is_none(), "nothing was sent");
    drop(writer);
    peer.send("still received").await?;
    assert_eq!(&*reader.recv_exact(14).await?, b"still received");
    // By now, the peer would have seen an end.
    for _ in 0..10 {
        yield_now().await;
    }
    assert!(touch(peer.recv()).is_none(), "the stream has ended");
    drop(reader);
    assert!(peer.recv().await?.is_none());
    Ok(())
}
