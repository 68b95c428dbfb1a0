//! Code written for tokio's traits runs unchanged on this crate's streams, and code for the traits
//! of futures-io runs through `tokio_util::compat`.

use crate::common::{pair, pattern, touch};
use annulus::net::{RecvHalf, SendHalf, TcpStream, UnixStream};
use annulus::spawn;
use annulus::task::JoinHandle;
use annulus::time::timeout;
use std::io;
use std::time::Duration;

/// Many times the capacity of the smallest network's buffers and of the adapters.
const LEN: usize = 200_000;

fn receive_all(mut from: RecvHalf) -> JoinHandle<io::Result<Vec<u8>>> {
    spawn(async move {
        let mut got = Vec::new();
        annulus::io::AsyncRecv::read_to_end(&mut from, &mut got, usize::MAX).await?;
        Ok(got)
    })
}

pub(crate) mod futures {
    use super::*;
    use futures_util::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, copy, copy_buf};
    use futures_util::{AsyncBufRead, AsyncRead, AsyncWrite, TryStreamExt};
    use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

    pub(crate) async fn lines_are_read_by_futures() -> io::Result<()> {
        let (client, server) = pair().await?;
        let (mut client, server) = (client.compat(), server.compat());
        let long = "x".repeat(50_000);
        let text = format!("first\nsecond\r\n{long}\nlast");
        let sent = text.clone();
        let sender = spawn(async move {
            AsyncWriteExt::write_all(&mut client, sent.as_bytes()).await?;
            AsyncWriteExt::close(&mut client).await
        });
        let lines: Vec<String> = AsyncBufReadExt::lines(server).try_collect().await?;
        assert_eq!(lines, ["first", "second", &long, "last"]);
        sender.await.expect("the task panicked")
    }

    /// Echoes received bytes, with either kind of copy.
    async fn serve<S: AsyncRead + AsyncBufRead + AsyncWrite>(
        stream: S,
        by_buffer: bool,
    ) -> io::Result<u64> {
        let (reading, mut writing) = AsyncReadExt::split(stream);
        let copied = match by_buffer {
            true => {
                let mut reading = futures_util::io::BufReader::new(reading);
                copy_buf(&mut reading, &mut writing).await?
            }
            false => copy(reading, &mut writing).await?,
        };
        writing.close().await?;
        Ok(copied)
    }

    pub(crate) async fn streams_are_split_and_copied_by_futures() -> io::Result<()> {
        for by_buffer in [false, true] {
            let (client, server) = UnixStream::pair()?;
            let server = spawn(serve(server.compat(), by_buffer));
            let sent = pattern(LEN);
            let (receiving, sending) = client.into_split();
            let (receiver, mut sending) = (receive_all(receiving), sending.compat_write());
            AsyncWriteExt::write_all(&mut sending, &sent).await?;
            AsyncWriteExt::flush(&mut sending).await?;
            AsyncWriteExt::close(&mut sending).await?;
            assert!(receiver.await.expect("the task panicked")? == sent);
            assert_eq!(server.await.expect("the task panicked")?, LEN as u64);
        }
        Ok(())
    }

    pub(crate) async fn halves_are_copied_in_place_by_futures() -> io::Result<()> {
        let (client, server) = pair().await?;
        let (receiving, sending) = server.into_split();
        let (receiving, mut sending) = (receiving.compat(), sending.compat_write());
        let mut client = client.compat();
        let server = spawn(async move {
            let copied = copy_buf(receiving, &mut sending).await?;
            AsyncWriteExt::close(&mut sending).await?;
            io::Result::Ok(copied)
        });
        let mut got = vec![0; 5];
        AsyncWriteExt::write_all(&mut client, b"hello").await?;
        AsyncReadExt::read_exact(&mut client, &mut got).await?;
        assert_eq!(got, b"hello");
        assert_eq!(
            AsyncReadExt::read(&mut client, &mut []).await?,
            0,
            "a read into no memory returned bytes"
        );
        AsyncWriteExt::close(&mut client).await?;
        assert_eq!(AsyncReadExt::read_to_end(&mut client, &mut got).await?, 0);
        assert_eq!(server.await.expect("the task panicked")?, 5);
        Ok(())
    }
}

pub(crate) mod tokio {
    use super::*;
    use ::tokio::io::{
        AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufStream,
        copy_bidirectional, copy_buf, join, split,
    };
    use std::io::IoSlice;

    pub(crate) async fn a_proxy_copies_both_ways_by_tokio() -> io::Result<()> {
        let (client, mut front) = pair().await?;
        let (mut back, server) = UnixStream::pair()?;
        let proxy = spawn(async move { copy_bidirectional(&mut front, &mut back).await });
        let server = spawn(async move {
            let (mut reading, mut writing) = split(server);
            let copied = ::tokio::io::copy(&mut reading, &mut writing).await?;
            writing.shutdown().await?;
            io::Result::Ok(copied)
        });
        let sent = pattern(LEN);
        let (receiving, mut sending) = client.into_split();
        let receiver = receive_all(receiving);
        AsyncWriteExt::write_all(&mut sending, &sent).await?;
        AsyncWriteExt::shutdown(&mut sending).await?;
        assert!(receiver.await.expect("the task panicked")? == sent);
        assert_eq!(server.await.expect("the task panicked")?, LEN as u64);
        assert_eq!(proxy.await.expect("the task panicked")?, (LEN as u64, LEN as u64));
        Ok(())
    }

    /// Reads a line with a length, then that many bytes, and sends them back.
    async fn serve_lengths(
        mut stream: impl AsyncReadExt + AsyncBufReadExt + AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut line = String::new();
        while AsyncBufReadExt::read_line(&mut stream, &mut line).await? > 0 {
            let mut body = vec![0; line.trim_end().parse().unwrap()];
            AsyncReadExt::read_exact(&mut stream, &mut body).await?;
            AsyncWriteExt::write_all(&mut stream, &body).await?;
            AsyncWriteExt::flush(&mut stream).await?;
            line.clear();
        }
        AsyncWriteExt::shutdown(&mut stream).await
    }

    pub(crate) async fn buffered_streams_of_tokio_serve() -> io::Result<()> {
        let (tcp_client, tcp_server) = pair().await?;
        let (unix_client, unix_server) = UnixStream::pair()?;
        let servers = [
            spawn(serve_lengths(BufStream::with_capacity(100, 100, tcp_server))),
            spawn(serve_lengths(unix_server)),
        ];
        ask(tcp_client).await?;
        let (receiving, sending) = unix_client.into_split();
        ask(join(receiving, sending)).await?;
        for server in servers {
            server.await.expect("the task panicked")?;
        }
        Ok(())
    }

    async fn ask(client: impl AsyncReadExt + AsyncWriteExt) -> io::Result<()> {
        let client = BufReader::new(client);
        let mut client = std::pin::pin!(client);
        for len in [0, 1, 99, 100, 101, 5000] {
            let (head, body) = (format!("{len}\n"), pattern(len));
            assert!(client.is_write_vectored());
            let slices = [IoSlice::new(head.as_bytes()), IoSlice::new(&body)];
            let written = client.write_vectored(&slices).await?;
            assert_eq!(written, head.len() + len, "the unsent limit takes both slices at once");
            let mut got = vec![0; len];
            client.read_exact(&mut got).await?;
            assert!(got == body, "{len} bytes");
        }
        client.shutdown().await?;
        assert_eq!(client.fill_buf().await?, b"");
        Ok(())
    }

    /// Dropped reads take nothing: the next read gets the bytes.
    pub(crate) async fn dropped_reads_of_tokio_lose_no_byte() -> io::Result<()> {
        let (client, mut server) = pair().await?;
        let sent = pattern(30_000);
        let text = sent.clone();
        let sender = spawn(send_slowly(client.into_split().1, text));
        let (mut got, mut buf) = (Vec::new(), [0; 300]);
        let mut waits = [0, 5, 40, 300].into_iter().map(Duration::from_micros).cycle();
        loop {
            touch(AsyncBufReadExt::fill_buf(&mut server)).transpose()?;
            let read = AsyncReadExt::read(&mut server, &mut buf);
            match timeout(waits.next().unwrap(), read).await {
                Err(_) => {}
                Ok(count) => match count? {
                    0 => break,
                    count => got.extend_from_slice(&buf[..count]),
                },
            }
        }
        assert!(got == sent);
        sender.await.expect("the task panicked")
    }

    async fn send_slowly(mut sending: SendHalf, text: Vec<u8>) -> io::Result<()> {
        for piece in text.chunks(701) {
            AsyncWriteExt::write_all(&mut sending, piece).await?;
            annulus::time::sleep(Duration::from_micros(50)).await;
        }
        AsyncWriteExt::shutdown(&mut sending).await
    }

    /// A writer waits while its peer does not read, and continues once it does.
    pub(crate) async fn writes_through_the_traits_are_bounded() -> io::Result<()> {
        let (mut client, mut server) = pair().await?;
        let chunk = pattern(64 << 10);
        let mut accepted = 0;
        while let Ok(written) =
            timeout(Duration::from_millis(300), AsyncWriteExt::write(&mut client, &chunk)).await
        {
            accepted += written?;
            assert!(accepted < 64 << 20, "the writer was not blocked");
        }
        let mut got = 0;
        while got < accepted {
            got += server.recv().await?.expect("the stream ended too early").len();
        }
        let copied = copy_buf(&mut &b"goes on"[..], &mut client).await?;
        assert_eq!(copied, 7);
        assert_eq!(*server.recv_exact(7).await?, *b"goes on");
        TcpStream::abort(client);
        Ok(())
    }
}
