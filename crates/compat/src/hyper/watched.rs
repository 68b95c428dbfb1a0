//! The activity of a connection as seen from outside of hyper: whether anything on the connection is under way.

use crate::OnThread;
use annulus::io::{AsyncRecv, AsyncSend};
use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::Service;
use hyper::{Request, Response};
use pin_project_lite::pin_project;
use std::cell::Cell;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// The activity that the stream and the service of a connection have seen.
#[derive(Default)]
pub(super) struct State {
    /// Requests that were passed to the service.
    begun: Cell<u64>,
    /// Responses whose bodies have ended.
    answered: Cell<u64>,
    /// Bytes were read that no request has begun with.
    has_unparsed: Cell<bool>,
    /// A response has ended, or bytes were written, after the last flush. hyper flushes the stream when it holds nothing itself.
    has_unflushed: Cell<bool>,
    /// The last request has a body, and hyper does not show whether it was read to its end.
    has_body: Cell<bool>,
}

impl State {
    /// Whether hyper holds nothing that matters: it waits for the first byte of the next request.
    pub(super) fn is_idle(&self) -> bool {
        let is_busy = self.has_unparsed.get() || self.has_unflushed.get() || self.has_body.get();
        !is_busy && !self.is_handling()
    }

    /// How many responses have ended.
    pub(super) fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// Whether a response has not ended.
    fn is_handling(&self) -> bool {
        self.begun.get() != self.answered.get()
    }

    fn begin(self: &Rc<Self>, has_body: bool) -> Unanswered {
        self.begun.set(self.begun.get() + 1);
        self.has_unparsed.set(false);
        self.has_body.set(has_body);
        Unanswered(self.clone())
    }
}

/// A response that has not ended.
struct Unanswered(Rc<State>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.answered.set(self.0.answered.get() + 1);
        self.0.has_unflushed.set(true);
    }
}

/// A stream whose reads and writes are noted. It is `Send`, as hyper asks of a stream that may be upgraded.
pub(super) struct Watched<T>(OnThread<Noted<T>>);

struct Noted<T> {
    stream: T,
    state: Rc<State>,
    /// The bytes that hyper had read and not used: they come first.
    prefix: Bytes,
}

impl<T> Watched<T> {
    pub(super) fn new(stream: T, state: Rc<State>) -> Self {
        Self(OnThread::new(Noted { stream, state, prefix: Bytes::new() }))
    }
}

impl<T: Unpin> Watched<T> {
    fn noted(&mut self) -> io::Result<&mut Noted<T>> {
        Ok(self.0.try_mut()?)
    }
}

impl<T: AsyncRecv + AsyncSend + Unpin> Watched<T> {
    /// Lets these bytes come first.
    pub(super) fn put_back(&mut self, unused: Bytes) -> io::Result<()> {
        let prefix = &mut self.noted()?.prefix;
        // The rest of the prefix was read after them.
        *prefix = match (unused.is_empty(), prefix.is_empty()) {
            (true, _) => std::mem::take(prefix),
            (false, true) => unused,
            (false, false) => [&*unused, &**prefix].concat().into(),
        };
        Ok(())
    }

    /// Whether a read would give bytes, once that is known; false at the end of the stream.
    pub(super) fn poll_has_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let this = self.noted()?;
        if !this.prefix.is_empty() {
            return Poll::Ready(Ok(true));
        }
        this.stream.poll_fill_buf(cx).map_ok(|bytes| !bytes.is_empty())
    }

    /// Ends the sending direction.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.noted()?.stream.poll_shutdown(cx)
    }
}

impl<T: AsyncRecv + Unpin> Read for Watched<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut().noted()?;
        let count = if this.prefix.is_empty() {
            ready!(super::poll_read(&mut this.stream, cx, &mut buf))?
        } else {
            let count = this.prefix.len().min(buf.remaining());
            buf.put_slice(&this.prefix[..count]);
            this.prefix.advance(count);
            count
        };
        if count > 0 {
            this.state.has_unparsed.set(true);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRecv + AsyncSend + Unpin> Write for Watched<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut().noted()?;
        this.state.has_unflushed.set(true);
        this.stream.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut().noted()?;
        ready!(this.stream.poll_flush(cx))?;
        this.state.has_unflushed.set(false);
        // hyper does not read while a request is handled, and flushes with each poll. The end is a half-close; an error ends the request.
        if this.state.is_handling()
            && let Poll::Ready(Err(error)) = this.stream.poll_fill_buf(cx)
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().noted()?.stream.poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut().noted()?;
        this.state.has_unflushed.set(true);
        this.stream.poll_write_vectored(cx, slices)
    }
}

/// A service whose requests are noted.
pub(super) struct Answering<S> {
    service: S,
    state: Rc<State>,
}

impl<S> Answering<S> {
    pub(super) fn new(service: S, state: Rc<State>) -> Self {
        Self { service, state }
    }
}

impl<S, B> Service<Request<Incoming>> for Answering<S>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
{
    type Response = Response<Answer<B>>;
    type Error = S::Error;
    type Future = Answered<S::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let response = self.state.begin(!request.body().is_end_stream());
        Answered { future: self.service.call(request), response: Some(response) }
    }
}

pin_project! {
    /// The future of a response.
    pub(super) struct Answered<F> {
        #[pin]
        future: F,
        response: Option<Unanswered>,
    }
}

impl<F, B, E> Future for Answered<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<Answer<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answered = ready!(this.future.poll(cx));
        let response = this.response.take();
        Poll::Ready(answered.map(|answer| answer.map(|body| Answer { body, response })))
    }
}

pin_project! {
    /// The body of a response.
    pub(super) struct Answer<B> {
        #[pin]
        body: B,
        response: Option<Unanswered>,
    }
}

impl<B: Body> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
