//! Streams for libraries that require tokio's traits and `Send`.

use crate::OnThread;
use crate::late_end::LateEnd;
use annulus::net::TcpStream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

/// A stream for libraries that require tokio's traits and `Send`. Using the stream on a thread
/// other than the one that created it is an error.
#[derive(Debug)]
pub struct SendStream<S = TcpStream> {
    stream: OnThread<S>,
    end: LateEnd,
}

impl<S> SendStream<S> {
    /// Wraps a stream of this thread.
    pub fn new(stream: S) -> Self {
        Self { stream: OnThread::new(stream), end: LateEnd::default() }
    }

    /// Returns the stream.
    ///
    /// # Errors
    /// Fails on a thread other than the one that created the stream.
    pub fn try_ref(&self) -> io::Result<&S> {
        Ok(self.stream.try_ref()?)
    }

    fn pin(self: Pin<&mut Self>) -> io::Result<Pin<&mut S>>
    where
        S: Unpin,
    {
        Ok(Pin::new(self.get_mut().stream.try_mut()?))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SendStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(this.stream.try_mut()?).poll_read(cx, buf);
        this.end.show(cx, read.map_ok(|()| buf.filled().len() - before)).map_ok(drop)
    }
}

impl<S: AsyncBufRead + Unpin> AsyncBufRead for SendStream<S> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.pin()?.poll_fill_buf(cx)
    }

    fn consume(self: Pin<&mut Self>, n: usize) {
        match self.pin() {
            Ok(stream) => stream.consume(n),
            Err(wrong) => assert_eq!(n, 0, "{wrong}; there are no bytes to consume here"),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SendStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.pin()?.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pin()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pin()?.poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.try_ref().is_ok_and(AsyncWrite::is_write_vectored)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.pin()?.poll_write_vectored(cx, slices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncBufReadExt;

    struct Plain;

    impl AsyncWrite for Plain {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn is_write_vectored_follows_the_inner_stream() {
        assert!(!SendStream::new(Plain).is_write_vectored());
        assert!(SendStream::new(Vec::new()).is_write_vectored());
    }

    #[test]
    fn lines_are_read_from_the_inner_buffer() {
        annulus::run(async {
            let mut stream = SendStream::new(&b"one\ntwo\n"[..]);
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            assert_eq!((line.as_str(), *stream.try_ref()?), ("one\n", &b"two\n"[..]));
            io::Result::Ok(())
        })
        .unwrap();
    }
}
