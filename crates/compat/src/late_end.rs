//! The end of a stream, not shown in the same poll as the bytes before it.

use std::io;
use std::task::{Context, Poll};

/// Lets a reader answer what it has read before it sees the end behind it. hyper looks for the end in the same poll, and drops a request that it
/// has not answered yet; a client such as `nc -N` ends its direction right behind the request, and waits for the reply.
#[derive(Debug, Default)]
pub(crate) struct LateEnd {
    has_read: bool,
}

impl LateEnd {
    /// The result of a read, of so many bytes; in place of an end right behind bytes, a wake-up.
    pub(crate) fn show(
        &mut self,
        cx: &Context<'_>,
        read: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>> {
        let had_read = std::mem::replace(&mut self.has_read, matches!(read, Poll::Ready(Ok(1..))));
        if had_read && matches!(read, Poll::Ready(Ok(0))) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        read.map_ok(drop)
    }
}
