//! Reports the end of a stream in a later poll than the bytes before it.

use std::io;
use std::task::{Context, Poll};

/// Lets hyper answer a request before it learns that the stream has ended. hyper checks for the end
/// in the poll that reads a request, and drops a request that it has not answered yet. A client
/// such as `nc -N` shuts down its sending direction right after the request and waits for the
/// reply.
#[derive(Debug, Default)]
pub(crate) struct LateEnd {
    has_read: bool,
}

impl LateEnd {
    /// Passes on the result of a read, which is a byte count. If the stream ends right after bytes,
    /// wakes the task and returns `Pending` instead, so that the next poll reports the end.
    pub(crate) fn show(
        &mut self,
        cx: &Context<'_>,
        read: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let had_read = std::mem::replace(&mut self.has_read, matches!(read, Poll::Ready(Ok(1..))));
        if had_read && matches!(read, Poll::Ready(Ok(0))) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        read
    }
}
