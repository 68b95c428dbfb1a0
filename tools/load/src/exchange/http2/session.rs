//! One connection, as h2 has it.

use super::pipe::Pipe;
use crate::exchange::Answer;
use crate::fault::{Fault, Kind};
use crate::outcome::Outcome;
use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream};
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Error, Reason, RecvStream};
use http::Request;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

/// The bytes of bodies that a server may send before they are acknowledged: of one stream, and of all.
const WINDOWS: [u32; 2] = [1 << 20, 16 << 20];
/// Most bytes of the headers of a reply.
const MAX_HEADERS: u32 = 64 << 10;

/// Most streams that a server may refuse one after the other, without an answer. Before it has sent its limit, h2 opens a hundred.
const MAX_REFUSED: usize = 200;

/// The result of a stream: its request's number, and the status.
type Ended = (usize, Result<u16, Error>);

/// One connection.
pub(super) struct Session {
    pipe: Pipe,
    sender: SendRequest<Bytes>,
    connection: Connection<Pipe, Bytes>,
    streams: FuturesUnordered<Pin<Box<dyn Future<Output = Ended>>>>,
    /// How many requests were sent over this connection.
    sent: usize,
    /// The numbers of all requests without a reply, in the order of the window.
    asked: VecDeque<usize>,
    /// Requests that wait for a stream, with their numbers.
    waiting: VecDeque<(usize, Request<()>, Option<Bytes>)>,
    /// The numbers of requests that the server has not taken.
    refused: Vec<usize>,
    /// Streams refused since the last answer.
    refusals: usize,
    /// Whether the server takes no further request.
    is_refusing: bool,
    woken: Arc<Woken>,
}

/// Whether something that was polled has to be polled again.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

impl Session {
    pub(super) fn new() -> Session {
        let pipe = Pipe::default();
        let [of_a_stream, of_all] = WINDOWS;
        let mut builder = Builder::new();
        builder.initial_window_size(of_a_stream).initial_connection_window_size(of_all);
        builder.max_header_list_size(MAX_HEADERS).enable_push(false);
        let handshake = builder.handshake(pipe.clone()).now_or_never();
        let (sender, connection) =
            handshake.and_then(Result::ok).expect("a pipe takes the preface at once");
        Session {
            pipe,
            sender,
            connection,
            streams: FuturesUnordered::new(),
            sent: 0,
            asked: VecDeque::new(),
            waiting: VecDeque::new(),
            refused: Vec::new(),
            refusals: 0,
            is_refusing: false,
            woken: Arc::default(),
        }
    }

    /// Bytes have come.
    pub(super) fn receive(&self, bytes: &[u8]) {
        self.pipe.receive(bytes);
    }

    /// The server has closed its side.
    pub(super) fn close(&self) {
        self.pipe.close();
    }

    /// Appends what is to be sent.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.pipe.take(out);
    }

    /// Whether the connection takes no further request.
    pub(super) fn is_refusing(&self) -> bool {
        self.is_refusing
    }

    /// Whether the connection takes no further request, and none is under way.
    pub(super) fn is_last(&self) -> bool {
        self.is_refusing && self.streams.is_empty()
    }

    /// The position of a request that the server has not taken, if there is one. It is no longer one of those without a reply.
    pub(super) fn refused(&mut self) -> Option<usize> {
        let number = self.refused.pop()?;
        Some(self.remove(number))
    }

    /// Whether the end of the connection cuts replies off. Requests that the server has not taken have none.
    pub(super) fn check_closed(&self) -> Result<(), Fault> {
        match self.asked.len() - self.refused.len() {
            0 => Ok(()),
            requests => Err(Fault::unanswered(requests)),
        }
    }

    /// Sends a request, or has it wait for a stream. What fails shows when bytes come.
    pub(super) fn send(&mut self, request: Request<()>, body: Option<Bytes>) {
        self.asked.push_back(self.sent);
        self.waiting.push_back((self.sent, request, body));
        self.sent += 1;
        _ = self.open_streams();
        let waker = Waker::from(Arc::clone(&self.woken));
        // A failure is kept by h2: the next poll has it, too.
        _ = Pin::new(&mut self.connection).poll(&mut Context::from_waker(&waker));
    }

    /// Takes what has come, until nothing changes any more.
    pub(super) fn progress(&mut self, answered: &mut impl FnMut(Answer)) -> Result<(), Fault> {
        let waker = Waker::from(Arc::clone(&self.woken));
        let cx = &mut Context::from_waker(&waker);
        loop {
            self.woken.0.store(false, Relaxed);
            let connection = Pin::new(&mut self.connection).poll(cx);
            while let Poll::Ready(Some((number, status))) =
                Pin::new(&mut self.streams).poll_next(cx)
            {
                // The bytes that the stream has taken are acknowledged by the next poll of the connection.
                self.woken.0.store(true, Relaxed);
                self.answer(number, status, answered)?;
            }
            match connection {
                Poll::Ready(Err(error)) => return Err(failed(&error)),
                Poll::Ready(Ok(())) => {
                    self.refuse();
                    return Ok(());
                }
                Poll::Pending => {}
            }
            self.open_streams()?;
            if !self.woken.0.load(Relaxed) {
                return Ok(());
            }
        }
    }

    /// The server takes no further request.
    #[cold]
    fn refuse(&mut self) {
        self.is_refusing = true;
        self.refused.extend(self.waiting.drain(..).map(|(number, ..)| number));
    }

    /// Opens streams for the requests that wait, as long as the server takes them.
    ///
    /// # Errors
    /// If the server has gone away because of an error. Bytes that come show it, too.
    fn open_streams(&mut self) -> Result<(), Fault> {
        let waker = Waker::from(Arc::clone(&self.woken));
        let cx = &mut Context::from_waker(&waker);
        // Asked without a request, too: so a `GOAWAY` shows.
        loop {
            match self.sender.poll_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    self.refuse();
                    let is_error = error.reason().is_some_and(|reason| reason != Reason::NO_ERROR);
                    return if is_error { Err(failed(&error)) } else { Ok(()) };
                }
                Poll::Pending => return Ok(()),
            }
            let Some((number, request, body)) = self.waiting.pop_front() else { return Ok(()) };
            let Ok((response, mut sending)) = self.sender.send_request(request, body.is_none())
            else {
                self.refused.push(number);
                self.refuse();
                return Ok(());
            };
            if let Some(body) = body {
                // If sending the body fails, the response has the error.
                _ = sending.send_data(body, true);
            }
            self.woken.0.store(true, Relaxed);
            self.streams.push(Box::pin(async move { (number, status(response).await) }));
        }
    }

    /// A stream has ended.
    fn answer(
        &mut self,
        number: usize,
        status: Result<u16, Error>,
        answered: &mut impl FnMut(Answer),
    ) -> Result<(), Fault> {
        let outcome = match status {
            Ok(status) => Outcome::Status(status),
            Err(error) if error.is_library() => return Err(failed(&error)),
            Err(error) if is_refusal(&error) => return self.refused_stream(number),
            Err(error) if error.is_reset() => Outcome::ErrorReply,
            // Above the last stream that the server has taken.
            Err(error) if error.is_go_away() => {
                self.refused.push(number);
                self.refuse();
                return Ok(());
            }
            // Cut off by the end of the connection.
            Err(_) => {
                self.refuse();
                return Ok(());
            }
        };
        self.refusals = 0;
        let position = self.remove(number);
        answered(Answer { outcome, position });
        Ok(())
    }

    #[cold]
    fn refused_stream(&mut self, number: usize) -> Result<(), Fault> {
        self.refused.push(number);
        self.refusals += 1;
        if self.refusals > MAX_REFUSED {
            let text = format!(
                "HTTP/2: the server refused {} streams one after the other (REFUSED_STREAM)",
                self.refusals
            );
            return Err(Fault::new(Kind::STREAMS_REFUSED, text));
        }
        Ok(())
    }

    /// A request leaves those without a reply, and the oldest one takes its place; returns where it was.
    fn remove(&mut self, number: usize) -> usize {
        let position = self.asked.iter().position(|asked| *asked == number);
        let position = position.expect("a request without a reply");
        self.asked.swap(0, position);
        self.asked.pop_front();
        position
    }
}

/// Takes a whole reply; returns its status.
async fn status(response: ResponseFuture) -> Result<u16, Error> {
    let (head, mut body) = response.await?.into_parts();
    take_body(&mut body).await?;
    Ok(head.status.as_u16())
}

async fn take_body(body: &mut RecvStream) -> Result<(), Error> {
    while let Some(data) = body.data().await {
        let length = data?.len();
        // Fails if the stream has ended, which then needs no window.
        _ = body.flow_control().release_capacity(length);
    }
    body.trailers().await.map(drop)
}

/// Whether a stream ended without the server having looked at its request.
fn is_refusal(error: &Error) -> bool {
    error.is_reset() && error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM)
}

#[cold]
fn failed(error: &Error) -> Fault {
    if error.is_io() {
        return Fault::new(Kind::CLOSED_EARLY, format!("the server closed: {error}"));
    }
    if error.is_go_away() && error.is_remote() {
        return Fault::new(Kind::STREAMS_REFUSED, format!("HTTP/2: the server went away: {error}"));
    }
    let text = format!("HTTP/2: {error}; does the server speak HTTP/2 there?");
    Fault::new(Kind::MALFORMED, text)
}
