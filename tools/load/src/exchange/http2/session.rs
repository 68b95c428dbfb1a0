use super::filter::FrameFilter;
use super::grpc::{GrpcFailure, StreamReply};
use super::requests::NextRequest;
use crate::exchange::Answer;
use crate::expected::{BodyCheck, Expected};
use crate::fault::{Fault, FaultKind};
use crate::outcome::Outcome;
use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream};
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Error, Reason};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The flow-control windows of one stream and of the whole connection.
const WINDOW_BYTES: [u32; 2] = [1 << 20, 16 << 20];
/// The maximum size of the headers of a reply.
const MAX_HEADER_LIST_BYTES: u32 = 64 << 10;

/// The maximum number of streams that a server may refuse in a row without answering any. h2 opens
/// up to a hundred streams before it has received the server's limit.
const MAX_CONSECUTIVE_REFUSALS: usize = 200;

/// The result of a stream: the number of its request, and the reply.
type StreamResult = (usize, Result<(StreamReply, ReplyDetails), Error>);

struct ReplyDetails {
    /// What is wrong with the body; `None` if it is as expected.
    wrong_body: Option<Vec<u8>>,
    /// The values of the `set-cookie` headers.
    cookies: Vec<Vec<u8>>,
}

/// One HTTP/2 connection, and the requests sent on it.
pub(super) struct Session {
    pipe: Pipe,
    filter: FrameFilter,
    sender: SendRequest<Bytes>,
    connection: Connection<Pipe, Bytes>,
    streams: FuturesUnordered<Pin<Box<dyn Future<Output = StreamResult>>>>,
    /// Number of requests given to this connection, which is also the number of the next request.
    sent: usize,
    /// The numbers of all requests without a reply, in the order of the client's pipeline.
    unanswered: VecDeque<usize>,
    /// Requests that wait for a stream, with their numbers.
    waiting: VecDeque<(usize, NextRequest)>,
    /// The cookies that replies have set since the last `take_cookies`.
    cookies: Vec<Vec<u8>>,
    /// What is wrong with the last wrong body. Empty if no body was wrong since the last
    /// `take_wrong_body`.
    wrong_body: Vec<u8>,
    /// The numbers of requests that the server has not processed.
    refused: Vec<usize>,
    /// Streams refused since the last answer.
    consecutive_refusals: usize,
    /// Whether the server accepts no further requests.
    is_draining: bool,
    wake_flag: Arc<WakeFlag>,
}

/// Set when h2 must be polled again.
#[derive(Debug, Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

impl Session {
    pub(super) fn new() -> Session {
        let pipe = Pipe::default();
        let [per_stream, per_connection] = WINDOW_BYTES;
        let mut builder = Builder::new();
        builder.initial_window_size(per_stream).initial_connection_window_size(per_connection);
        builder.max_header_list_size(MAX_HEADER_LIST_BYTES).enable_push(false);
        let handshake = builder.handshake(pipe.clone()).now_or_never();
        let (sender, connection) = handshake
            .and_then(Result::ok)
            .expect("writing the preface to the pipe blocked or failed");
        Session {
            pipe,
            filter: FrameFilter::default(),
            sender,
            connection,
            streams: FuturesUnordered::new(),
            sent: 0,
            unanswered: VecDeque::new(),
            waiting: VecDeque::new(),
            cookies: Vec::new(),
            wrong_body: Vec::new(),
            refused: Vec::new(),
            consecutive_refusals: 0,
            is_draining: false,
            wake_flag: Arc::default(),
        }
    }

    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.filter.pass(bytes, |bytes| self.pipe.receive(bytes));
    }

    /// Records that the server has closed its side.
    pub(super) fn close(&self) {
        self.pipe.receive(self.filter.partial());
        self.pipe.close();
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.pipe.take(out);
    }

    pub(super) fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    pub(super) fn take_cookies(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.cookies)
    }

    pub(super) fn take_wrong_body(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.wrong_body)
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Returns true if the connection accepts no further requests and none is in progress.
    pub(super) fn must_close(&self) -> bool {
        self.is_draining && self.streams.is_empty()
    }

    /// Removes a request that the server has not processed from the requests without a reply, and
    /// returns its position. Returns `None` if there is no such request.
    pub(super) fn pop_refused(&mut self) -> Option<usize> {
        let number = self.refused.pop()?;
        Some(self.remove(number))
    }

    /// Fails if the end of the connection cuts off replies. Requests that the server has not
    /// processed do not count.
    pub(super) fn check_closed(&self) -> Result<(), Fault> {
        match self.unanswered.len() - self.refused.len() {
            0 => Ok(()),
            requests => Err(Fault::unanswered(requests)),
        }
    }

    /// Sends a request, or queues it until a stream is available. If the connection has failed, the
    /// next call of `progress` returns the fault.
    pub(super) fn send(&mut self, request: NextRequest) {
        self.unanswered.push_back(self.sent);
        self.waiting.push_back((self.sent, request));
        self.sent += 1;
        _ = self.open_streams();
        let waker = Waker::from(Arc::clone(&self.wake_flag));
        // h2 keeps the failure, and the next poll returns it.
        _ = Pin::new(&mut self.connection).poll(&mut Context::from_waker(&waker));
    }

    /// Processes the received bytes until nothing changes.
    pub(super) fn progress(
        &mut self,
        answered: &mut impl FnMut(Answer, Option<&GrpcFailure>),
    ) -> Result<(), Fault> {
        let waker = Waker::from(Arc::clone(&self.wake_flag));
        let cx = &mut Context::from_waker(&waker);
        loop {
            self.wake_flag.0.store(false, Relaxed);
            let connection = Pin::new(&mut self.connection).poll(cx);
            while let Poll::Ready(Some((number, reply))) = Pin::new(&mut self.streams).poll_next(cx)
            {
                // The next poll of the connection acknowledges the bytes that the stream has taken.
                self.wake_flag.0.store(true, Relaxed);
                self.answer(number, reply, answered)?;
            }
            match connection {
                Poll::Ready(Err(error)) => return Err(connection_fault(&error)),
                Poll::Ready(Ok(())) => {
                    self.stop_accepting();
                    return Ok(());
                }
                Poll::Pending => {}
            }
            self.open_streams()?;
            if !self.wake_flag.0.load(Relaxed) {
                return Ok(());
            }
        }
    }

    /// Records that the server accepts no further requests, and adds the waiting ones to the
    /// refused ones.
    #[cold]
    fn stop_accepting(&mut self) {
        self.is_draining = true;
        self.refused.extend(self.waiting.drain(..).map(|(number, ..)| number));
    }

    /// Opens streams for waiting requests, as long as the server accepts them.
    ///
    /// # Errors
    /// Fails if the server has ended the connection with an error.
    fn open_streams(&mut self) -> Result<(), Fault> {
        let waker = Waker::from(Arc::clone(&self.wake_flag));
        let cx = &mut Context::from_waker(&waker);
        // Poll even if no request is waiting, to notice a `GOAWAY`.
        loop {
            match self.sender.poll_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    self.stop_accepting();
                    let is_error = error.reason().is_some_and(|reason| reason != Reason::NO_ERROR);
                    return if is_error { Err(connection_fault(&error)) } else { Ok(()) };
                }
                Poll::Pending => return Ok(()),
            }
            let Some((number, NextRequest { head, body, expected })) = self.waiting.pop_front()
            else {
                return Ok(());
            };
            let Ok((response, mut sending)) = self.sender.send_request(head, body.is_none()) else {
                self.refused.push(number);
                self.stop_accepting();
                return Ok(());
            };
            if let Some(body) = body {
                // If sending the body fails, the response reports the error.
                _ = sending.send_data(body, true);
            }
            self.wake_flag.0.store(true, Relaxed);
            self.streams.push(Box::pin(async move { (number, reply(response, expected).await) }));
        }
    }

    /// Handles the end of a stream.
    fn answer(
        &mut self,
        number: usize,
        reply: Result<(StreamReply, ReplyDetails), Error>,
        answered: &mut impl FnMut(Answer, Option<&GrpcFailure>),
    ) -> Result<(), Fault> {
        let mut failure = None;
        let reply = reply.map(|(reply, ReplyDetails { wrong_body, cookies })| {
            self.cookies.extend(cookies);
            (reply, wrong_body)
        });
        let outcome = match reply {
            Ok((StreamReply { failure: Some(grpc), .. }, _)) => {
                Outcome::Grpc(failure.insert(grpc).code)
            }
            Ok((StreamReply { status: status @ ..400, .. }, Some(found))) => {
                self.wrong_body = found;
                Outcome::WrongBody(status)
            }
            Ok((StreamReply { status, .. }, _)) => Outcome::Status(status),
            Err(error) if error.is_library() => return Err(connection_fault(&error)),
            Err(error) if is_refusal(&error) => return self.refused_stream(number),
            Err(error) if error.is_reset() => Outcome::ErrorReply,
            // The stream is above the last one that the server has processed.
            Err(error) if error.is_go_away() => {
                self.refused.push(number);
                self.stop_accepting();
                return Ok(());
            }
            // The stream was cut off by the end of the connection.
            Err(_) => {
                self.stop_accepting();
                return Ok(());
            }
        };
        self.consecutive_refusals = 0;
        let position = self.remove(number);
        answered(Answer { outcome, position }, failure.as_deref());
        Ok(())
    }

    #[cold]
    fn refused_stream(&mut self, number: usize) -> Result<(), Fault> {
        self.refused.push(number);
        self.consecutive_refusals += 1;
        if self.consecutive_refusals > MAX_CONSECUTIVE_REFUSALS {
            let text = format!(
                "HTTP/2: the server refused {} streams in a row (REFUSED_STREAM)",
                self.consecutive_refusals
            );
            return Err(Fault::new(FaultKind::STREAMS_REFUSED, text));
        }
        Ok(())
    }

    /// Removes a request from those without a reply, and moves the first one to its place. Returns
    /// the position that it had.
    fn remove(&mut self, number: usize) -> usize {
        let position = self.unanswered.iter().position(|unanswered| *unanswered == number);
        let position = position.expect("the request has already been answered");
        self.unanswered.swap(0, position);
        self.unanswered.pop_front();
        position
    }
}

/// Receives a whole reply and checks its body.
async fn reply(
    response: ResponseFuture,
    expected: Option<Rc<Expected>>,
) -> Result<(StreamReply, ReplyDetails), Error> {
    let (head, mut body) = response.await?.into_parts();
    let cookies = head.headers.get_all("set-cookie").iter();
    let cookies = cookies.map(|value| value.as_bytes().to_vec()).collect();
    let mut check = expected.as_deref().map(|expected| (expected, BodyCheck::new(expected)));
    let mut take =
        |bytes: &[u8]| check.iter_mut().for_each(|(expected, check)| check.take(expected, bytes));
    while let Some(data) = body.data().await {
        let data = data?;
        take(&data);
        let length = data.len();
        // The call fails only if more is released than was received.
        _ = body.flow_control().release_capacity(length);
    }
    let trailers = body.trailers().await?;
    let wrong_body = check.and_then(|(expected, check)| check.finish(expected).err());
    let reply = StreamReply::new(head.status, &head.headers, trailers.as_ref());
    Ok((reply, ReplyDetails { wrong_body, cookies }))
}

/// Returns true if the stream ended before the server processed its request.
fn is_refusal(error: &Error) -> bool {
    error.is_reset() && error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM)
}

#[cold]
fn connection_fault(error: &Error) -> Fault {
    if error.is_io() {
        return Fault::new(FaultKind::CLOSED_EARLY, format!("the server closed: {error}"));
    }
    if error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
        let text = format!("HTTP/2: the server sent more small frames than are accepted: {error}");
        return Fault::new(FaultKind::MALFORMED, text);
    }
    if error.is_go_away() && error.is_remote() {
        return Fault::new(
            FaultKind::STREAMS_REFUSED,
            format!("HTTP/2: the server went away: {error}"),
        );
    }
    let text = format!("HTTP/2: {error}; does the server speak HTTP/2 there?");
    Fault::new(FaultKind::MALFORMED, text)
}

#[derive(Debug, Default)]
struct PipeBuffers {
    received: Vec<u8>,
    /// Number of received bytes that have been read.
    read: usize,
    is_closed: bool,
    written: Vec<u8>,
}

/// An in-memory byte stream. A clone is another handle to the same buffers: h2 reads and writes one
/// handle, and the session fills and drains the buffers through the other.
/// [`receive`](Pipe::receive) and [`close`](Pipe::close) wake nothing, so h2 must be polled after
/// them.
#[derive(Clone, Debug, Default)]
pub(super) struct Pipe(Rc<RefCell<PipeBuffers>>);

impl Pipe {
    /// Appends bytes to be read.
    pub(super) fn receive(&self, bytes: &[u8]) {
        let mut buffers = self.0.borrow_mut();
        let read = std::mem::take(&mut buffers.read);
        buffers.received.drain(..read);
        buffers.received.extend_from_slice(bytes);
    }

    /// Marks the end of the bytes to be read.
    pub(super) fn close(&self) {
        self.0.borrow_mut().is_closed = true;
    }

    /// Moves the written bytes to `out`.
    pub(super) fn take(&self, out: &mut Vec<u8>) {
        out.append(&mut self.0.borrow_mut().written);
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffers = self.0.borrow_mut();
        let unread = &buffers.received[buffers.read..];
        if unread.is_empty() && !buffers.is_closed {
            return Poll::Pending;
        }
        let count = unread.len().min(buf.remaining());
        buf.put_slice(&unread[..count]);
        buffers.read += count;
        if buffers.read == buffers.received.len() {
            // Free the memory, so that an idle connection holds none.
            (buffers.received, buffers.read) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().written.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = &mut self.0.borrow_mut().written;
        slices.iter().for_each(|slice| written.extend_from_slice(slice));
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
