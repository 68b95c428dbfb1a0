//! One connection, as h2 has it.

use super::pipe::Pipe;
use crate::exchange::{Answer, Outcome};
use crate::fault::{Fault, Kind};
use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream};
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Error, RecvStream};
use http::Request;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

/// What a server may send of a body before it is acknowledged: of one stream, and of all.
const WINDOWS: [u32; 2] = [1 << 20, 16 << 20];
/// Most bytes of the headers of a reply.
const MAX_HEADERS: u32 = 64 << 10;

/// What came of a stream: its request's number, and the status.
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
    /// Those that wait for a stream, with their numbers.
    waiting: VecDeque<(usize, Request<()>, Option<Bytes>)>,
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

    /// Whether the connection takes no further request, and none is under way.
    pub(super) fn is_last(&self) -> bool {
        self.is_refusing && self.streams.is_empty()
    }

    /// Whether the end of the connection cuts replies off.
    pub(super) fn check_closed(&self) -> Result<(), Fault> {
        match self.asked.len() {
            0 => Ok(()),
            requests => Err(Fault::unanswered(requests)),
        }
    }

    /// Sends a request, or has it wait for a stream. What fails shows when bytes come.
    pub(super) fn send(&mut self, request: Request<()>, body: Option<Bytes>) {
        self.asked.push_back(self.sent);
        self.waiting.push_back((self.sent, request, body));
        self.sent += 1;
        self.open_streams();
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
                // What it has taken is acknowledged by the next poll of the connection.
                self.woken.0.store(true, Relaxed);
                self.answer(number, status, answered)?;
            }
            match connection {
                Poll::Ready(Err(error)) => return Err(failed(&error)),
                Poll::Ready(Ok(())) => {
                    self.is_refusing = true;
                    return Ok(());
                }
                Poll::Pending => {}
            }
            self.open_streams();
            if !self.woken.0.load(Relaxed) {
                return Ok(());
            }
        }
    }

    /// Opens streams for the requests that wait, as long as the server takes them.
    fn open_streams(&mut self) {
        let waker = Waker::from(Arc::clone(&self.woken));
        let cx = &mut Context::from_waker(&waker);
        while !self.waiting.is_empty() {
            match self.sender.poll_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return self.is_refusing = true,
                Poll::Pending => return,
            }
            let Some((number, request, body)) = self.waiting.pop_front() else { return };
            let Ok((response, mut sending)) = self.sender.send_request(request, body.is_none())
            else {
                return self.is_refusing = true;
            };
            if let Some(body) = body {
                // A failure of it is one of the response.
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
            Err(error) if error.is_reset() => Outcome::ErrorReply,
            // It is sent again over another connection.
            Err(_) => {
                self.is_refusing = true;
                return Ok(());
            }
        };
        let position = self.asked.iter().position(|asked| *asked == number);
        let position = position.expect("a stream has a request");
        self.asked.swap(0, position);
        self.asked.pop_front();
        answered(Answer { outcome, position });
        Ok(())
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

#[cold]
fn failed(error: &Error) -> Fault {
    if error.is_io() {
        return Fault::new(Kind::ClosedEarly, format!("the server closed: {error}"));
    }
    let text = format!("HTTP/2: {error}; does the server speak HTTP/2 there?");
    Fault::new(Kind::Malformed, text)
}
