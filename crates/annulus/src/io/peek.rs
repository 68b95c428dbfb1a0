//! The future that shows received bytes.

use super::recv::AsyncRecv;
use crate::tasks::budget;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Shows received bytes: the future of [`AsyncRecv::fill_buf`] and [`AsyncRecv::peek`]. Dropping it
/// loses nothing.
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
    /// Whether the future has been polled. The first poll discards an end that was shown to an
    /// earlier future.
    has_begun: bool,
}

impl<'a, R: AsyncRecv> Peek<'a, R> {
    pub(super) fn new(from: &'a mut R, n: usize) -> Self {
        Self { from: Some(from), n, has_begun: false }
    }
}

impl<'a, R: AsyncRecv> Future for Peek<'a, R> {
    type Output = io::Result<&'a [u8]>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let n = self.n;
        let from = self.from.take().expect("the future was polled after it had completed");
        if !std::mem::replace(&mut self.has_begun, true) {
            from.consume(0);
        }
        // Polled twice, because a borrow that is returned in one branch would also last in the
        // other.
        if from.poll_peek(cx, n)?.is_pending() {
            self.from = Some(from);
            return Poll::Pending;
        }
        match budget::poll_free(|| from.poll_peek(cx, n)) {
            Poll::Pending => Poll::Ready(Err(io::Error::other(
                "poll_peek was ready and then pending before anything was consumed; it must stay ready",
            ))),
            ready => ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// Is ready on every other call, which violates the contract of the trait.
    struct ReadyEveryOtherCall(bool);

    impl AsyncRecv for ReadyEveryOtherCall {
        fn poll_peek(&mut self, _: &mut Context<'_>, _: usize) -> Poll<io::Result<&[u8]>> {
            self.0 = !self.0;
            if self.0 { Poll::Ready(Ok(b"some")) } else { Poll::Pending }
        }

        fn consume(&mut self, _: usize) {}
    }

    #[test]
    fn peek_at_a_source_that_does_not_stay_ready_is_an_error() {
        let mut from = ReadyEveryOtherCall(false);
        let mut peek = Peek::new(&mut from, 1);
        let cx = &mut Context::from_waker(Waker::noop());
        let Poll::Ready(Err(error)) = Pin::new(&mut peek).poll(cx) else {
            panic!("the future is pending, or ready with bytes that are no longer shown");
        };
        assert!(error.to_string().contains("poll_peek"), "{error}");
    }
}
