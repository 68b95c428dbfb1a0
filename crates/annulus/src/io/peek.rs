//! The future that shows bytes.

use super::recv::AsyncRecv;
use crate::base::budget;
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
    /// An end that was shown to an earlier future is forgotten.
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
        let from = self.from.take().expect("polled after its end");
        if !std::mem::replace(&mut self.has_begun, true) {
            from.consume(0);
        }
        // Asked twice, since a borrow that is returned in one case only would last in the other, too.
        if from.poll_peek(cx, n)?.is_pending() {
            self.from = Some(from);
            return Poll::Pending;
        }
        match budget::poll_free(|| from.poll_peek(cx, n)) {
            Poll::Pending => Poll::Ready(Err(io::Error::other(
                "poll_peek was ready, and pending before anything was consumed: it must stay ready",
            ))),
            ready => ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// Is ready every other time, against the rule of the trait.
    struct Fickle(bool);

    impl AsyncRecv for Fickle {
        fn poll_peek(&mut self, _: &mut Context<'_>, _: usize) -> Poll<io::Result<&[u8]>> {
            self.0 = !self.0;
            if self.0 { Poll::Ready(Ok(b"some")) } else { Poll::Pending }
        }

        fn consume(&mut self, _: usize) {}
    }

    #[test]
    fn a_source_that_hides_what_it_has_shown_is_an_error() {
        let mut from = Fickle(false);
        let mut peek = Peek::new(&mut from, 1);
        let cx = &mut Context::from_waker(Waker::noop());
        let Poll::Ready(Err(error)) = Pin::new(&mut peek).poll(cx) else {
            panic!("pending for ever, or ready with bytes that are not shown");
        };
        assert!(error.to_string().contains("poll_peek"), "{error}");
    }
}
