//! futures-io's traits over the public API alone, without unsafe or boxing: `poll_fill_buf` shows the lease itself.

mod common;

use annulus::net::TcpStream;
use annulus::{Lease, spawn};
use common::{echo, pair, pattern, run};
use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A stream with the rest of the lease that is being read.
struct Compat {
    stream: TcpStream,
    lease: Option<Lease>,
}

impl AsyncBufRead for Compat {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.lease.as_ref().is_none_or(|lease| lease.is_empty()) {
            this.lease = ready!(this.stream.poll_recv(cx))?;
        }
        Poll::Ready(Ok(this.lease.as_deref().unwrap_or_default()))
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        if let Some(lease) = &mut self.get_mut().lease {
            lease.advance(amount);
        }
    }
}

impl AsyncRead for Compat {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let available = ready!(self.as_mut().poll_fill_buf(cx))?;
        let len = available.len().min(buf.len());
        buf[..len].copy_from_slice(&available[..len]);
        self.consume(len);
        Poll::Ready(Ok(len))
    }
}

impl AsyncWrite for Compat {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_shutdown(cx)
    }
}

async fn write_all(compat: &mut Compat, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = poll_fn(|cx| Pin::new(&mut *compat).poll_write(cx, bytes)).await?;
        bytes = &bytes[count..];
    }
    poll_fn(|cx| Pin::new(&mut *compat).poll_flush(cx)).await
}

#[test]
fn bytes_go_round_through_the_traits() {
    run(async {
        let (client, server) = pair().await?;
        spawn(echo(server));
        let mut compat = Compat { stream: client, lease: None };
        let sent = pattern(100_000);
        write_all(&mut compat, &sent).await?;
        let mut got = Vec::new();
        let mut buf = [0; 777];
        while got.len() < 50_000 {
            let len = poll_fn(|cx| Pin::new(&mut compat).poll_read(cx, &mut buf)).await?;
            got.extend_from_slice(&buf[..len]);
        }
        poll_fn(|cx| Pin::new(&mut compat).poll_close(cx)).await?;
        loop {
            let len = {
                let available = poll_fn(|cx| match Pin::new(&mut compat).poll_fill_buf(cx) {
                    Poll::Ready(Ok(bytes)) => Poll::Ready(Ok(bytes.to_vec())),
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    Poll::Pending => Poll::Pending,
                })
                .await?;
                got.extend_from_slice(&available);
                available.len()
            };
            if len == 0 {
                break;
            }
            Pin::new(&mut compat).consume(len);
        }
        assert!(got == sent);
        Ok(())
    });
}

#[test]
fn writes_are_bounded_until_the_peer_reads() {
    run(async {
        let (client, server) = pair().await?;
        let mut compat = Compat { stream: client, lease: None };
        let chunk = [7; 64 * 1024];
        let mut accepted = 0;
        // Until the socket and the bound are full: the write must then wait.
        loop {
            let step =
                poll_fn(|cx| Poll::Ready(Pin::new(&mut compat).poll_write(cx, &chunk))).await;
            match step {
                Poll::Ready(count) => accepted += count?,
                Poll::Pending => {
                    let before = accepted;
                    annulus::time::sleep(std::time::Duration::from_millis(5)).await;
                    let again =
                        poll_fn(|cx| Poll::Ready(Pin::new(&mut compat).poll_write(cx, &chunk)))
                            .await;
                    if let Poll::Ready(count) = again {
                        accepted += count?;
                    }
                    if accepted == before {
                        break;
                    }
                }
            }
            assert!(accepted < 64 << 20, "nothing held the writer up");
        }
        let mut server = server;
        let mut got = 0;
        while got < accepted {
            got += server.recv().await?.unwrap().len();
        }
        Ok(())
    });
}
