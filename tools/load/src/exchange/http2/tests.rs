//! Tests against an h2 server that runs next to the exchange, over the same kind of pipe.

use super::requests::NextRequest;
use super::session::Pipe;
use super::*;
use crate::exchange::http::{Http, HttpRequest};
use crate::fault::FaultKind;
use crate::mix::{DataRows, Mix, Template};
use crate::outcome::Outcome;
use bytes::Bytes;
use futures_util::FutureExt;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use proptest::prelude::*;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A request that the server has not answered.
type OpenRequest = (Request<RecvStream>, SendResponse<Bytes>);

/// A server in the same thread.
struct Server {
    pipe: Pipe,
    connection: Connection<Pipe, Bytes>,
    open: Vec<OpenRequest>,
}

impl Server {
    /// Creates a server that has received the first bytes of its client.
    fn new(first: &[u8], streams: u32) -> Server {
        let pipe = Pipe::default();
        pipe.receive(first);
        let mut builder = Builder::new();
        builder.max_concurrent_streams(streams);
        let connection = builder.handshake(pipe.clone()).now_or_never().unwrap().unwrap();
        Server { pipe, connection, open: Vec::new() }
    }

    /// Processes received bytes, and returns the bytes to send.
    fn poll(&mut self, received: &[u8]) -> Vec<u8> {
        self.pipe.receive(received);
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(open))) = self.connection.poll_accept(&mut cx) {
            self.open.push(open);
        }
        let mut out = Vec::new();
        self.pipe.take(&mut out);
        out
    }

    /// Answers an open request with a status and a body of `length` bytes.
    fn answer(&mut self, index: usize, status: u16, length: usize) {
        let (_, mut respond) = self.open.remove(index);
        let head = Response::builder().status(status).body(()).unwrap();
        let mut body = respond.send_response(head, length == 0).unwrap();
        if length > 0 {
            body.send_data(vec![b'x'; length].into(), true).unwrap();
        }
    }
}

fn requests(change: fn(&mut Http)) -> Rc<Requests> {
    let mut http = Http::new("a.example:1", "/one");
    change(&mut http);
    Rc::new(Requests::new(&http, false).unwrap())
}

/// Returns an exchange, and the bytes of `count` requests.
fn exchange(count: usize) -> (Http2Exchange, Vec<u8>) {
    let mut exchange =
        Http2Exchange::new(&requests(|_| ()), FieldValues::new(1, 0, 1), &FirstRefusal::default());
    let mut out = Vec::new();
    (0..count).for_each(|_| _ = exchange.request(&mut out));
    (exchange, out)
}

/// Passes bytes back and forth until neither side has more to send. The client receives them in
/// pieces of `size` bytes. Returns the answers.
fn exchange_all(
    exchange: &mut Http2Exchange,
    server: &mut Server,
    size: usize,
) -> Result<Vec<Answer>, Fault> {
    let (mut answers, mut to_server) = (Vec::new(), Vec::new());
    loop {
        let to_client = server.poll(&std::mem::take(&mut to_server));
        for bytes_from in to_client.chunks(size) {
            exchange.receive(bytes_from, &mut |answer| answers.push(answer))?;
            exchange.respond(&mut to_server);
        }
        if to_client.is_empty() && to_server.is_empty() {
            return Ok(answers);
        }
    }
}

fn answer(status: u16, position: usize) -> Answer {
    Answer { outcome: Outcome::Status(status), position }
}

#[test]
fn reply_answers_the_request_of_its_stream() {
    let (mut exchange, out) = exchange(4);
    let mut server = Server::new(&out, 100);
    assert_eq!(exchange_all(&mut exchange, &mut server, 7).unwrap(), []);
    let path = |open: &OpenRequest| open.0.uri().to_string();
    assert_eq!(server.open.iter().map(path).collect::<Vec<_>>(), ["http://a.example:1/one"; 4]);
    // Request 2 is answered, and request 0 moves to its position, so the unanswered requests are 1,
    // 0, 3.
    server.answer(2, 200, 10);
    assert_eq!(exchange_all(&mut exchange, &mut server, 7).unwrap(), [answer(200, 2)]);
    server.answer(0, 404, 0);
    assert_eq!(exchange_all(&mut exchange, &mut server, 7).unwrap(), [answer(404, 1)]);
    for status in [500, 304] {
        server.answer(0, status, 1);
        assert_eq!(exchange_all(&mut exchange, &mut server, 7).unwrap(), [answer(status, 0)]);
    }
}

#[test]
fn requests_over_the_stream_limit_wait() {
    let (mut exchange, out) = exchange(1);
    let mut server = Server::new(&out, 2);
    let mut answers = exchange_all(&mut exchange, &mut server, 1000).unwrap().len();
    let mut out = Vec::new();
    (0..6).for_each(|_| _ = exchange.request(&mut out));
    let first = server.poll(&out);
    exchange.receive(&first, &mut |_| unreachable!()).unwrap();
    while answers < 7 {
        assert!((1..=2).contains(&server.open.len()), "{} streams at once", server.open.len());
        server.answer(0, 200, 5);
        answers += exchange_all(&mut exchange, &mut server, 3).unwrap().len();
    }
    assert!(server.open.is_empty() && !exchange.must_close());
}

#[test]
fn bodies_larger_than_the_windows_are_transferred() {
    let requests = requests(|http| {
        let body = Some(Template::constant(vec![b'y'; 300_000]));
        let request = HttpRequest { body, ..HttpRequest::new("POST", "/") };
        http.requests = Mix::new([(1.0, request)]).unwrap();
    });
    let mut exchange =
        Http2Exchange::new(&requests, FieldValues::new(1, 0, 1), &FirstRefusal::default());
    let mut out = Vec::new();
    exchange.request(&mut out);
    let mut server = Server::new(&out, 10);
    exchange_all(&mut exchange, &mut server, 100_000).unwrap();
    let mut received = 0;
    while received < 300_000 {
        let body = server.open[0].0.body_mut();
        while let Some(Some(data)) = body.data().now_or_never() {
            let length = data.unwrap().len();
            received += length;
            body.flow_control().release_capacity(length).unwrap();
        }
        exchange_all(&mut exchange, &mut server, 100_000).unwrap();
    }
    assert_eq!(server.open[0].0.headers()["content-length"], "300000");
    server.answer(0, 200, 3_000_000);
    assert_eq!(exchange_all(&mut exchange, &mut server, 100_000).unwrap(), [answer(200, 0)]);
}

#[test]
fn reset_stream_is_an_error_reply() {
    let (mut exchange, out) = exchange(2);
    let mut server = Server::new(&out, 10);
    exchange_all(&mut exchange, &mut server, 100).unwrap();
    server.open.remove(1).1.send_reset(Reason::INTERNAL_ERROR);
    server.answer(0, 200, 0);
    let answers = exchange_all(&mut exchange, &mut server, 100).unwrap();
    let outcomes: Vec<_> = answers.iter().map(|answer| answer.outcome).collect();
    assert!(
        outcomes.contains(&Outcome::ErrorReply) && outcomes.contains(&Outcome::Status(200)),
        "{outcomes:?}"
    );
}

/// Returns the positions of the requests to be sent again.
fn refused(exchange: &mut Http2Exchange) -> Vec<usize> {
    std::iter::from_fn(|| exchange.pop_refused()).collect()
}

#[test]
fn refused_stream_is_resent_on_the_same_connection() {
    let (mut exchange, out) = exchange(3);
    let mut server = Server::new(&out, 10);
    exchange_all(&mut exchange, &mut server, 100).unwrap();
    server.open.remove(1).1.send_reset(Reason::REFUSED_STREAM);
    assert_eq!(exchange_all(&mut exchange, &mut server, 100).unwrap(), []);
    assert_eq!(refused(&mut exchange), [1]);
    assert!(!exchange.must_close() && !exchange.is_draining());
    // Request 0 has moved to the position of the refused request, so the unanswered requests are 0,
    // 2.
    server.answer(1, 201, 0);
    assert_eq!(exchange_all(&mut exchange, &mut server, 100).unwrap(), [answer(201, 1)]);
    exchange.on_close(&mut |_| ()).unwrap_err();
}

#[test]
fn server_that_refuses_every_stream_is_a_fault() {
    let (mut exchange, out) = exchange(1);
    let mut server = Server::new(&out, 10);
    let (mut out, mut turns) = (Vec::new(), 0);
    let fault = loop {
        turns += 1;
        assert!(turns < 5000, "the exchange never reported a fault");
        let to_client = server.poll(&std::mem::take(&mut out));
        let Err(fault) = exchange.receive(&to_client, &mut |_| unreachable!()) else {
            exchange.respond(&mut out);
            refused(&mut exchange).iter().for_each(|_| _ = exchange.request(&mut out));
            server.open.drain(..).for_each(|mut open| open.1.send_reset(Reason::REFUSED_STREAM));
            continue;
        };
        break fault;
    };
    assert_eq!(fault.kind, FaultKind::STREAMS_REFUSED, "{}", fault.detail);
    assert!(fault.detail.contains("refused 201 streams"), "{}", fault.detail);
}

/// Returns a `GOAWAY` frame with the last processed stream and the reason.
fn goaway(last: u8, reason: Reason) -> Vec<u8> {
    let reason = u32::from(reason).to_be_bytes();
    [&[0, 0, 8, 7, 0, 0, 0, 0, 0][..], &[0, 0, 0, last], &reason].concat()
}

#[test]
fn goaway_with_an_error_is_a_fault() {
    let (mut exchange, out) = exchange(2);
    let mut server = Server::new(&out, 10);
    exchange_all(&mut exchange, &mut server, 100).unwrap();
    let calm = goaway(1, Reason::ENHANCE_YOUR_CALM);
    let fault = exchange.receive(&calm, &mut |_| unreachable!()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::STREAMS_REFUSED, "{}", fault.detail);
    assert!(fault.detail.contains("excessive load"), "{}", fault.detail);
    assert_eq!(refused(&mut exchange), [1]);
}

#[test]
fn goaway_returns_unprocessed_requests_for_resending() {
    // The streams are 1 and 3, and two more requests wait for a stream.
    let (mut exchange, out) = exchange(1);
    let mut server = Server::new(&out, 2);
    exchange_all(&mut exchange, &mut server, 100).unwrap();
    let mut out = Vec::new();
    (0..3).for_each(|_| _ = exchange.request(&mut out));
    let to_client = server.poll(&out);
    exchange.receive(&to_client, &mut |_| unreachable!()).unwrap();
    exchange.receive(&goaway(1, Reason::NO_ERROR), &mut |_| unreachable!()).unwrap();
    assert_eq!(refused(&mut exchange).len(), 3);
    assert!(
        exchange.is_draining() && !exchange.must_close(),
        "the connection does not wait for the request in progress"
    );
    server.answer(0, 200, 3);
    let last = server.poll(&[]);
    let mut answers = Vec::new();
    exchange.receive(&last, &mut |answer| answers.push(answer)).unwrap();
    assert_eq!(answers, [answer(200, 0)]);
    assert!(exchange.must_close() && refused(&mut exchange).is_empty());
    exchange.on_close(&mut |_| unreachable!()).unwrap();
}

#[test]
fn goaway_and_close_fail_only_accepted_requests() {
    let (mut exchange, out) = exchange(3);
    let mut server = Server::new(&out, 10);
    exchange_all(&mut exchange, &mut server, 100).unwrap();
    exchange.receive(&goaway(3, Reason::NO_ERROR), &mut |_| unreachable!()).unwrap();
    let fault = exchange.on_close(&mut |_| unreachable!()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::CLOSED_EARLY);
    assert!(fault.detail.contains("2 requests"), "{}", fault.detail);
    assert_eq!(refused(&mut exchange), [2]);
}

#[test]
fn graceful_goaway_answers_accepted_requests_then_closes() {
    let (mut exchange, out) = exchange(2);
    let mut server = Server::new(&out, 10);
    exchange_all(&mut exchange, &mut server, 100).unwrap();
    server.connection.graceful_shutdown();
    server.answer(0, 200, 0);
    exchange_all(&mut exchange, &mut server, 100).unwrap();
    assert!(
        !exchange.must_close() && exchange.is_draining(),
        "the connection does not wait for the request in progress"
    );
    server.answer(0, 200, 0);
    exchange_all(&mut exchange, &mut server, 100).unwrap();
    assert!(exchange.must_close());
    exchange.on_reconnect();
    assert!(!exchange.must_close());
}

#[test]
fn other_protocol_and_early_close_are_faults() {
    let (mut exchange, _) = exchange(1);
    let fault = exchange.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n", &mut |_| ()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::MALFORMED, "{}", fault.detail);
    assert!(fault.detail.contains("does the server speak HTTP/2"), "{}", fault.detail);

    let (mut exchange, out) = self::exchange(1);
    let mut server = Server::new(&out, 10);
    exchange_all(&mut exchange, &mut server, 100).unwrap();
    let fault = exchange.on_close(&mut |_| ()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::CLOSED_EARLY, "{}", fault.detail);
}

#[test]
fn connection_headers_are_rejected_for_http2() {
    let mut http = Http::new("a", "/");
    http.headers.push(("Connection".into(), "close".into()));
    let error = Requests::new(&http, true).unwrap_err();
    assert!(error.to_string().contains("the header Connection is not allowed"), "{error}");
    http.headers = vec![("TE".into(), "gzip".into())];
    let error = Requests::new(&http, true).unwrap_err();
    assert!(error.to_string().contains("may only be 'trailers'"), "{error}");
    http.headers = vec![("te".into(), "trailers".into())];
    let (_, NextRequest { head: request, .. }) =
        Requests::new(&http, true).unwrap().next(&mut FieldValues::new(1, 0, 1));
    assert_eq!(request.headers()["te"], "trailers");
    http.headers = vec![("Host".into(), "b".into()), ("X-a".into(), "c".into())];
    let (_, NextRequest { head: request, .. }) =
        Requests::new(&http, true).unwrap().next(&mut FieldValues::new(1, 0, 1));
    assert_eq!(request.uri(), "https://b/");
    assert_eq!(request.headers().len(), 1);
}

#[test]
fn template_fields_are_replaced() {
    let mut http = Http::new("a", "/{n}");
    http.headers.push(("x".into(), "{client}".into()));
    let requests = Requests::new(&http, true).unwrap();
    let mut values = FieldValues::new(1, 2, 5);
    for n in [2, 7] {
        let (_, NextRequest { head: request, .. }) = requests.next(&mut values);
        assert_eq!(
            (request.uri().path(), &request.headers()["x"]),
            (&*format!("/{n}"), &"2".parse().unwrap())
        );
    }
}

#[test]
fn invalid_uri_is_explained() {
    let refused = |http: Http| http.validate_http2().unwrap_err().to_string();
    let error = refused(Http::new("a:1", "/<x>"));
    assert!(error.starts_with("\"/<x>\" is not a valid path in HTTP/2"), "{error}");
    let error = refused(Http::new("a<", "/"));
    assert!(error.starts_with("\"a<\" is not a valid host"), "{error}");
    // In HTTP/1, each of the paths is valid.
    let data = DataRows::parse(b"path\na\n<b>\n").unwrap();
    let error = refused(Http { data: Some(Arc::new(data)), ..Http::new("a:1", "/{path}") });
    assert!(error.starts_with("with row 2 of the data, \"/<b>\" is not a valid path"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn split_input_gives_the_same_replies(
        replies in proptest::collection::vec((0_usize..6, 200_u16..600, 0_usize..40_000), 1..6),
        size in 1_usize..3000,
    ) {
        let answers = |size| {
            let (mut exchange, out) = exchange(replies.len());
            let mut server = Server::new(&out, 100);
            let mut answers = exchange_all(&mut exchange, &mut server, size).unwrap();
            for &(which, status, length) in &replies {
                let which = which % server.open.len();
                server.answer(which, status, length);
                answers.extend(exchange_all(&mut exchange, &mut server, size).unwrap());
            }
            answers
        };
        prop_assert_eq!(answers(size), answers(usize::MAX));
    }
}
