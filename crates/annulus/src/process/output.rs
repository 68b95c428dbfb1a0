//! The output of a process, collected from both of its streams at once: it may wait for either to be read.

use crate::pipe::Receiver;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

/// A stream, and the bytes read from it.
struct Collected {
    /// `None` after the end.
    stream: Option<Receiver>,
    bytes: Vec<u8>,
}

impl Collected {
    fn new(stream: Option<Receiver>) -> Self {
        Self { stream, bytes: Vec::new() }
    }

    /// Ready at the end of the stream.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(stream) = &mut self.stream {
            match ready!(stream.poll_recv(cx))? {
                None => self.stream = None,
                Some(lease) => self.bytes.extend_from_slice(&lease),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads both streams of a process to their ends.
pub(super) async fn collect(
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let (mut stdout, mut stderr) = (Collected::new(stdout), Collected::new(stderr));
    poll_fn(|cx| {
        let first = stdout.poll(cx)?;
        let second = stderr.poll(cx)?;
        if first.is_ready() && second.is_ready() {
            Poll::Ready(io::Result::Ok(()))
        } else {
            Poll::Pending
        }
    })
    .await?;
    Ok((stdout.bytes, stderr.bytes))
}
