//! The future that shows bytes.

use super::recv::AsyncRecv;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Shows bytes that have come: the future of [`AsyncRecv::fill_buf`] and [`AsyncRecv::peek`]. Dropping it loses nothing.
///
/// ```
/// # annulus::run(async {
/// use annulus::io::AsyncRecv;
///
/// async fn is_tls(stream: &mut impl AsyncRecv) -> std::io::Result<bool> {
///     Ok(stream.peek(2).await?.starts_with(&[22, 3]))
/// }
/// assert!(!is_tls(&mut &b"GET / HTTP/1.1"[..]).await?);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Peek<'a, R> {
    /// `None` once ready.
    from: Option<&'a mut R>,
    n: usize,
}

impl<'a, R: AsyncRecv> Peek<'a, R> {
    pub(super) fn new(from: &'a mut R, n: usize) -> Self {
        Self { from: Some(from), n }
    }
}

impl<'a, R: AsyncRecv> Future for Peek<'a, R> {
    type Output = io::Result<&'a [u8]>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let n = self.n;
        let from = self.from.take().expect("polled after its end");
        // Asked twice, since a borrow that is returned in one case only would last in the other, too.
        if from.poll_peek(cx, n)?.is_pending() {
            self.from = Some(from);
            return Poll::Pending;
        }
        from.poll_peek(cx, n)
    }
}
