//! Frames, lines and delimiters over streams whose bytes arrive in pieces of every size.

use crate::common::{pair, pattern, touch};
use annulus::io::{AsyncRecv, AsyncSend, AsyncStream, FromTokio};
use annulus::net::{TcpStream, UnixStream};
use annulus::spawn;
use annulus::task::JoinHandle;
use annulus::time::{sleep, timeout};
use futures_util::io::BufReader;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, BufStream, ReadBuf};
use tokio_util::compat::{FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};

/// A reader that returns the next piece at each read. An empty piece is a temporary end of the
/// stream.
struct Pieces(std::vec::IntoIter<&'static [u8]>);

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        buf.put_slice(self.0.next().unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

/// Returns the length of a frame: a length in two bytes, followed by that many bytes.
fn length(bytes: &[u8]) -> io::Result<Option<usize>> {
    Ok(bytes.first_chunk().map(|length| 2 + usize::from(u16::from_be_bytes(*length))))
}

fn frame(len: usize) -> Vec<u8> {
    let mut frame = u16::try_from(len).unwrap().to_be_bytes().to_vec();
    frame.extend(pattern(len));
    frame
}

/// Sends bytes in pieces of many sizes, some after a pause, then ends the stream.
fn send_in_pieces(mut stream: TcpStream, bytes: Vec<u8>) -> JoinHandle<io::Result<()>> {
    spawn(async move {
        let (mut rest, mut sizes) =
            (&bytes[..], [1, 2, 3, 700, 17, 4096, 9001].into_iter().cycle());
        while !rest.is_empty() {
            let size = sizes.next().unwrap().min(rest.len());
            let (piece, behind) = rest.split_at(size);
            stream.send(piece.to_vec()).await?;
            if size % 2 == 1 {
                sleep(Duration::from_micros(30)).await;
            }
            rest = behind;
        }
        stream.shutdown().await
    })
}

pub(crate) async fn frames_arrive_whole() -> io::Result<()> {
    let (client, mut server) = pair().await?;
    let lens = [0, 1, 255, 256, 3, 4097, 60_000, 0, 12, 8191];
    let sender = send_in_pieces(client, lens.into_iter().flat_map(frame).collect());
    for len in lens {
        let got = server.read_frame(65_537, length).await?.expect("the stream ended too early");
        assert!(*got == frame(len), "a frame of {len}");
    }
    assert!(server.read_frame(65_537, length).await?.is_none());
    sender.await.expect("the task panicked")
}

pub(crate) async fn dropped_reads_of_frames_lose_none() -> io::Result<()> {
    let (client, mut server) = pair().await?;
    let lens = [40, 0, 3000, 255, 20_000, 7, 7, 7];
    let sender = send_in_pieces(client, lens.into_iter().flat_map(frame).collect());
    let mut waits = [0, 10, 40, 200, 1000].into_iter().map(Duration::from_micros).cycle();
    for len in lens {
        let got = loop {
            if let Some(got) = touch(server.read_frame(65_537, length)) {
                break got;
            }
            if let Ok(got) = timeout(waits.next().unwrap(), server.read_frame(65_537, length)).await
            {
                break got;
            }
        };
        assert!(*got?.expect("the stream ended too early") == frame(len), "a frame of {len}");
    }
    sender.await.expect("the task panicked")
}

/// Every connection holds part of a frame, and together these parts exceed the pool's buffers. The
/// remaining bytes are still received.
pub(crate) async fn incomplete_frames_block_no_stream() -> io::Result<()> {
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for len in 3000..3030 {
        let (mut client, mut server) = pair().await?;
        client.send(frame(len)[..1000].to_vec()).await?;
        assert!(server.fill_at_least(500).await?.len() <= 1000);
        assert!(touch(server.read_frame(10_000, length)).is_none());
        servers.push(spawn(async move { server.read_frame(10_000, length).await }));
        clients.push((client, len));
    }
    for (client, len) in &mut clients {
        client.send(frame(*len)[1000..].to_vec()).await?;
    }
    for (server, (_client, len)) in servers.into_iter().zip(&clients) {
        assert!(
            *server.await.expect("the task panicked")?.expect("the stream ended too early")
                == frame(*len)
        );
    }
    Ok(())
}

/// A refused frame stays in the stream, so that the program can inspect it.
pub(crate) async fn bad_frames_are_refused() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    client.send(frame(500)).await?;
    let error = server.read_frame(501, length).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert_eq!(error.to_string(), "a frame of 502 bytes is above the limit of 501");
    let endless = |_: &[u8]| Ok(None);
    let error = server.read_frame(100, endless).await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("a frame of unknown length, with "), "{text}");
    assert!(text.ends_with("is above the limit of 100"), "{text}");
    let error = server.read_frame(100, |_| Ok(Some(0))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let refused = |_: &[u8]| Err(io::Error::other("no such command"));
    assert_eq!(server.read_frame(100, refused).await.unwrap_err().to_string(), "no such command");
    assert!(
        *server.read_frame(502, length).await?.expect("the stream ended too early") == frame(500)
    );
    client.send(frame(500)[..300].to_vec()).await?;
    client.shutdown().await?;
    let error = server.read_frame(502, length).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(error.to_string(), "the stream ended after 300 of 502 bytes");
    assert_eq!(server.recv_exact(299).await?.len(), 299);
    let error = server.read_frame(502, length).await.unwrap_err();
    assert_eq!(error.to_string(), "the stream ended after 1 bytes of a frame");
    Ok(())
}

pub(crate) async fn lines_arrive_whole() -> io::Result<()> {
    let (client, mut server) = pair().await?;
    let long = "ä".repeat(4000);
    let text = format!("first\r\n\n{long}\nan end without a line's");
    let sender = send_in_pieces(client, text.into_bytes());
    let mut lines = (&mut server).lines(8001);
    assert_eq!(lines.next_line().await?.as_deref(), Some("first"));
    assert_eq!(lines.next_line().await?.as_deref(), Some(""));
    assert_eq!(lines.next_line().await?, Some(long));
    let mut rest = String::new();
    assert_eq!(server.read_line(&mut rest, 100).await?, 23);
    assert_eq!(rest, "an end without a line's");
    assert_eq!(server.read_line(&mut rest, 100).await?, 0);
    sender.await.expect("the task panicked")
}

pub(crate) async fn bad_lines_are_refused() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    client.send(b"0123456789\nnot \xff text\nok\n").await?;
    client.shutdown().await?;
    let mut lines = server.lines(10);
    let error = lines.next_line().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(error.to_string().ends_with("is above the limit of 10"), "{error}");
    assert_eq!(lines.get_mut().skip_until(b'\n').await?, 11, "the refused line was consumed");
    let mut lines = lines.into_inner().lines(11);
    let error = lines.next_line().await.unwrap_err();
    assert!(error.to_string().starts_with("a line of 10 bytes is not UTF-8"), "{error}");
    assert_eq!(lines.next_line().await?.as_deref(), Some("ok"));
    assert!(lines.next_line().await?.is_none());
    Ok(())
}

pub(crate) async fn memory_of_the_caller_is_filled() -> io::Result<()> {
    let (client, mut server) = pair().await?;
    let text = pattern(50_000);
    let mut sent = text.clone();
    sent.extend(b"key=value;rest");
    let sender = send_in_pieces(client, sent);
    let mut head = vec![0; 20_000];
    server.read_exact(&mut head).await?;
    assert!(head == text[..20_000]);
    assert_eq!(server.read(&mut []).await?, 0);
    let mut byte = [0];
    assert_eq!((server.read(&mut byte).await?, byte[0]), (1, text[20_000]));
    let mut rest = vec![0; 29_999];
    server.read_exact(&mut rest).await?;
    assert!(rest == text[20_001..]);
    let error = server.recv_until(b'=', 3).await.unwrap_err();
    assert!(error.to_string().starts_with("a part of "), "{error}");
    let mut part = b">".to_vec();
    assert_eq!(server.read_until(b'=', &mut part, 4).await?, 4);
    assert_eq!(part, b">key=");
    assert_eq!(server.skip_until(b';').await?, 6);
    let mut end = Vec::new();
    let error = server.read_to_end(&mut end, 3).await.unwrap_err();
    assert!(error.to_string().ends_with("is above the limit of 3"), "{error}");
    assert_eq!(end, b"res");
    assert_eq!((server.read_to_end(&mut end, 1).await?, &*end), (1, &b"rest"[..]));
    let error = server.read_exact(&mut byte).await.unwrap_err();
    assert_eq!(error.to_string(), "the stream ended after 0 of 1 bytes");
    sender.await.expect("the task panicked")
}

/// Echoes each frame as it arrives.
async fn echo_frames(mut stream: impl AsyncStream) -> io::Result<()> {
    while let Some(frame) = stream.read_frame(10_000, length).await? {
        stream.send(frame).await?;
    }
    stream.shutdown().await
}

pub(crate) async fn one_function_serves_all_streams() -> io::Result<()> {
    let (tcp_client, tcp_server) = pair().await?;
    let (unix_client, unix_server) = UnixStream::pair()?;
    let mut servers =
        vec![spawn(echo_frames(tcp_server)), spawn(echo_frames(Box::new(unix_server)))];
    let mut clients: Vec<Box<dyn AsyncStream>> = vec![Box::new(tcp_client), Box::new(unix_client)];
    // Streams of other crates, such as TLS sessions, work too: over a stream of this crate, and
    // within the program.
    let (client, server) = pair().await?;
    servers.push(spawn(echo_frames(FromTokio::new(BufStream::with_capacity(100, 100, server)))));
    let by_futures = BufReader::with_capacity(100, client.compat());
    clients.push(Box::new(FromTokio::new(by_futures.compat())));
    let (client, server) = tokio::io::duplex(1000);
    servers.push(spawn(echo_frames(FromTokio::new(server))));
    clients.push(Box::new(FromTokio::new(client)));
    for mut client in clients {
        let frames = [frame(3), frame(9_998)].concat();
        client.write_all(&frames).await?;
        client.flush().await?;
        client.shutdown().await?;
        let mut got = Vec::new();
        client.read_to_end(&mut got, 20_000).await?;
        assert!(got == frames);
    }
    for server in servers {
        server.await.expect("the task panicked")?;
    }
    let mut ahead = FromTokio::new(&b"a line\nand more"[..]);
    assert_eq!(ahead.read_line(&mut String::new(), 10).await?, 7);
    assert_eq!(ahead.into_parts(), (&b""[..], b"and more".to_vec()));
    // After an end, the next read tries again, since more bytes may follow.
    let mut grows = FromTokio::new(Pieces(vec![&b"one"[..], b"", b"more"].into_iter()));
    let mut memory = [0; 8];
    for wanted in [3, 0, 4, 0] {
        assert_eq!(grows.read(&mut memory).await?, wanted);
    }
    // So does a read of a whole message, which keeps the part that it has.
    let mut grows = FromTokio::new(Pieces(vec![&b"\0\x03on"[..], b"", b"", b"e", b""].into_iter()));
    let error = grows.read_frame(100, length).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    let error = grows.recv_exact(5).await.unwrap_err();
    assert_eq!(error.to_string(), "the stream ended after 4 of 5 bytes");
    assert_eq!(grows.read_frame(100, length).await?.as_deref(), Some(&b"\0\x03one"[..]));
    assert!(grows.read_frame(100, length).await?.is_none());
    let mut written = Vec::new();
    written.write_all(b"a vector ").await?;
    AsyncSend::send(&mut written, "for tests").await?;
    assert_eq!(written, b"a vector for tests");
    Ok(())
}

/// Reads a frame of 50 bytes, but only 18 arrive before the peer ends or resets the connection. The
/// task's budget is 1.
async fn read_a_part(mut from: impl AsyncRecv, end: impl FnOnce()) -> io::Result<ErrorKind> {
    assert_eq!(from.fill_at_least(18).await?.len(), 18);
    end();
    for first in [1, 19] {
        let length = |bytes: &[u8]| Ok((bytes.len() >= first).then_some(50));
        let (mut reading, mut polls) = (pin!(from.read_frame(1000, length)), 0);
        let read = poll_fn(|cx| {
            polls += 1;
            assert!(polls < 1000, "the read is polled forever");
            reading.as_mut().poll(cx)
        });
        let error = read.await.expect_err("an incomplete frame was read");
        if first == 19 {
            return Ok(error.kind());
        }
    }
    unreachable!("the second read returns")
}

pub(crate) async fn a_partial_frame_before_the_end_is_an_error() -> io::Result<()> {
    for split in [false, true] {
        for resets in [false, true] {
            let (mut client, server) = pair().await?;
            client.send(vec![1; 18]).await?;
            let end = || if resets { client.abort() } else { drop(client) };
            let kind = match split {
                false => read_a_part(server, end).await?,
                true => read_a_part(server.into_split().0, end).await?,
            };
            let expected =
                if resets { ErrorKind::ConnectionReset } else { ErrorKind::UnexpectedEof };
            assert_eq!(kind, expected);
        }
    }
    let (mut client, server) = UnixStream::pair()?;
    client.send(vec![1; 18]).await?;
    assert_eq!(read_a_part(server, || drop(client)).await?, ErrorKind::UnexpectedEof);
    Ok(())
}
