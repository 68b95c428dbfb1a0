//! The output of a process, collected from both of its streams at once: it may wait for either to be read.

use crate::pipe::Receiver;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

/// A stream, and the bytes read from it.
struct Collected {
    name: &'static str,
    /// `None` after the end.
    stream: Option<Receiver>,
    bytes: Vec<u8>,
}

impl Collected {
    fn new(name: &'static str, stream: Option<Receiver>) -> Self {
        Self { name, stream, bytes: Vec::new() }
    }

    /// Ready at the end of the stream.
    fn poll(&mut self, cx: &mut Context<'_>, id: u32, limit: usize) -> Poll<io::Result<()>> {
        while let Some(stream) = &mut self.stream {
            match ready!(stream.poll_recv(cx))? {
                None => self.stream = None,
                Some(lease) if lease.len() > limit - self.bytes.len() => {
                    return Poll::Ready(Err(too_much(self.name, id, limit)));
                }
                Some(lease) => self.bytes.extend_from_slice(&lease),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads both streams of a process to their ends.
///
/// # Errors
/// `InvalidData` for more bytes of a stream than the limit.
pub(super) async fn collect(
    id: u32,
    (stdout, stderr): (Option<Receiver>, Option<Receiver>),
    limit: Option<usize>,
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let limit = limit.unwrap_or(usize::MAX);
    let mut stdout = Collected::new("stdout", stdout);
    let mut stderr = Collected::new("stderr", stderr);
    poll_fn(|cx| {
        let first = stdout.poll(cx, id, limit)?;
        let second = stderr.poll(cx, id, limit)?;
        if first.is_ready() && second.is_ready() {
            Poll::Ready(io::Result::Ok(()))
        } else {
            Poll::Pending
        }
    })
    .await?;
    Ok((stdout.bytes, stderr.bytes))
}

fn too_much(name: &str, id: u32, limit: usize) -> io::Error {
    let text = format!(
        "process {id} wrote more than {limit} bytes to {name}; raise Command::output_limit, or read its {name} as it comes"
    );
    io::Error::new(io::ErrorKind::InvalidData, text)
}
