//! Replies of a server that runs beside the exchange, over the same kind of pipe.

use super::pipe::Pipe;
use super::*;
use crate::exchange::http::{Http, HttpRequest};
use crate::fault::Kind;
use crate::mix::{Mix, Template};
use crate::outcome::Outcome;
use bytes::Bytes;
use futures_util::FutureExt;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use proptest::prelude::*;
use std::task::{Context, Poll, Waker};

/// A request that the server has not answered.
type Open = (Request<RecvStream>, SendResponse<Bytes>);

/// A server in the same thread.
struct Server {
    pipe: Pipe,
    connection: Connection<Pipe, Bytes>,
    open: Vec<Open>,
}

impl Server {
    /// A server that has got the first bytes of its client.
    fn new(first: &[u8], streams: u32) -> Server {
        let pipe = Pipe::default();
        pipe.receive(first);
        let mut builder = Builder::new();
        builder.max_concurrent_streams(streams);
        let connection = builder.handshake(pipe.clone()).now_or_never().unwrap().unwrap();
        Server { pipe, connection, open: Vec::new() }
    }

    /// Takes what has come, and what it asks for; returns what is to be sent.
    fn turn(&mut self, received: &[u8]) -> Vec<u8> {
        self.pipe.receive(received);
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(open))) = self.connection.poll_accept(&mut cx) {
            self.open.push(open);
        }
        let mut out = Vec::new();
        self.pipe.take(&mut out);
        out
    }

    /// Answers one of the open requests with a status, and a body of so many bytes.
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

/// An exchange, with the bytes of so many requests.
fn exchange(count: usize) -> (Http2Exchange, Vec<u8>) {
    let mut exchange =
        Http2Exchange::new(&requests(|_| ()), Fill::new(1, 0, 1), &FirstRefusal::default());
    let mut out = Vec::new();
    (0..count).for_each(|_| _ = exchange.request(&mut out));
    (exchange, out)
}

/// Passes bytes on in pieces, until neither side has more to say; returns the answers.
fn settle(
    exchange: &mut Http2Exchange,
    server: &mut Server,
    size: usize,
) -> Result<Vec<Answer>, Fault> {
    let (mut answers, mut to_server) = (Vec::new(), Vec::new());
    loop {
        let to_client = server.turn(&std::mem::take(&mut to_server));
        for piece in to_client.chunks(size) {
            exchange.receive(piece, &mut |answer| answers.push(answer))?;
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
fn replies_answer_the_request_of_their_stream() {
    let (mut exchange, out) = exchange(4);
    let mut server = Server::new(&out, 100);
    assert_eq!(settle(&mut exchange, &mut server, 7).unwrap(), []);
    let path = |open: &Open| open.0.uri().to_string();
    assert_eq!(server.open.iter().map(path).collect::<Vec<_>>(), ["http://a.example:1/one"; 4]);
    // The third one is answered; the first one takes its place in the order: 1, 0, 3.
    server.answer(2, 200, 10);
    assert_eq!(settle(&mut exchange, &mut server, 7).unwrap(), [answer(200, 2)]);
    server.answer(0, 404, 0);
    assert_eq!(settle(&mut exchange, &mut server, 7).unwrap(), [answer(404, 1)]);
    for status in [500, 304] {
        server.answer(0, status, 1);
        assert_eq!(settle(&mut exchange, &mut server, 7).unwrap(), [answer(status, 0)]);
    }
}

#[test]
fn requests_above_the_limit_of_streams_wait() {
    let (mut exchange, out) = exchange(1);
    let mut server = Server::new(&out, 2);
    let mut answers = settle(&mut exchange, &mut server, 1000).unwrap().len();
    let mut out = Vec::new();
    (0..6).for_each(|_| _ = exchange.request(&mut out));
    let first = server.turn(&out);
    exchange.receive(&first, &mut |_| unreachable!()).unwrap();
    while answers < 7 {
        assert!((1..=2).contains(&server.open.len()), "{} streams at once", server.open.len());
        server.answer(0, 200, 5);
        answers += settle(&mut exchange, &mut server, 3).unwrap().len();
    }
    assert!(server.open.is_empty() && !exchange.is_last());
}

#[test]
fn bodies_above_the_windows_go_both_ways() {
    let requests = requests(|http| {
        let body = Some(Template::constant(vec![b'y'; 300_000]));
        let request = HttpRequest { body, ..HttpRequest::new("POST", "/") };
        http.requests = Mix::new([(1.0, request)]).unwrap();
    });
    let mut exchange = Http2Exchange::new(&requests, Fill::new(1, 0, 1), &FirstRefusal::default());
    let mut out = Vec::new();
    exchange.request(&mut out);
    let mut server = Server::new(&out, 10);
    settle(&mut exchange, &mut server, 100_000).unwrap();
    let mut received = 0;
    while received < 300_000 {
        let body = server.open[0].0.body_mut();
        while let Some(Some(data)) = body.data().now_or_never() {
            let length = data.unwrap().len();
            received += length;
            body.flow_control().release_capacity(length).unwrap();
        }
        settle(&mut exchange, &mut server, 100_000).unwrap();
    }
    assert_eq!(server.open[0].0.headers()["content-length"], "300000");
    server.answer(0, 200, 3_000_000);
    assert_eq!(settle(&mut exchange, &mut server, 100_000).unwrap(), [answer(200, 0)]);
}

#[test]
fn a_stream_that_is_reset_is_an_error_reply() {
    let (mut exchange, out) = exchange(2);
    let mut server = Server::new(&out, 10);
    settle(&mut exchange, &mut server, 100).unwrap();
    server.open.remove(1).1.send_reset(Reason::INTERNAL_ERROR);
    server.answer(0, 200, 0);
    let answers = settle(&mut exchange, &mut server, 100).unwrap();
    let outcomes: Vec<_> = answers.iter().map(|answer| answer.outcome).collect();
    assert!(
        outcomes.contains(&Outcome::ErrorReply) && outcomes.contains(&Outcome::Status(200)),
        "{outcomes:?}"
    );
}

/// Positions of what is to be sent again.
fn refused(exchange: &mut Http2Exchange) -> Vec<usize> {
    std::iter::from_fn(|| exchange.refused()).collect()
}

#[test]
fn a_stream_that_is_refused_is_to_be_sent_again_over_the_same_connection() {
    let (mut exchange, out) = exchange(3);
    let mut server = Server::new(&out, 10);
    settle(&mut exchange, &mut server, 100).unwrap();
    server.open.remove(1).1.send_reset(Reason::REFUSED_STREAM);
    assert_eq!(settle(&mut exchange, &mut server, 100).unwrap(), []);
    assert_eq!(refused(&mut exchange), [1]);
    assert!(!exchange.is_last() && !exchange.is_draining());
    // The first one has taken its place: 0, 2.
    server.answer(1, 201, 0);
    assert_eq!(settle(&mut exchange, &mut server, 100).unwrap(), [answer(201, 1)]);
    exchange.closed(&mut |_| ()).unwrap_err();
}

#[test]
fn a_server_that_refuses_every_stream_is_named() {
    let (mut exchange, out) = exchange(1);
    let mut server = Server::new(&out, 10);
    let (mut out, mut turns) = (Vec::new(), 0);
    let fault = loop {
        turns += 1;
        assert!(turns < 5000, "the server does not refuse any more");
        let to_client = server.turn(&std::mem::take(&mut out));
        let Err(fault) = exchange.receive(&to_client, &mut |_| unreachable!()) else {
            exchange.respond(&mut out);
            refused(&mut exchange).iter().for_each(|_| _ = exchange.request(&mut out));
            server.open.drain(..).for_each(|mut open| open.1.send_reset(Reason::REFUSED_STREAM));
            continue;
        };
        break fault;
    };
    assert_eq!(fault.kind, Kind::STREAMS_REFUSED, "{}", fault.detail);
    assert!(fault.detail.contains("refused 201 streams"), "{}", fault.detail);
}

/// A `GOAWAY` frame: the last stream that was taken, and why.
fn goaway(last: u8, reason: Reason) -> Vec<u8> {
    let reason = u32::from(reason).to_be_bytes();
    [&[0, 0, 8, 7, 0, 0, 0, 0, 0][..], &[0, 0, 0, last], &reason].concat()
}

#[test]
fn a_server_that_goes_away_because_of_an_error_is_named() {
    let (mut exchange, out) = exchange(2);
    let mut server = Server::new(&out, 10);
    settle(&mut exchange, &mut server, 100).unwrap();
    let calm = goaway(1, Reason::ENHANCE_YOUR_CALM);
    let fault = exchange.receive(&calm, &mut |_| unreachable!()).unwrap_err();
    assert_eq!(fault.kind, Kind::STREAMS_REFUSED, "{}", fault.detail);
    assert!(fault.detail.contains("excessive load"), "{}", fault.detail);
    assert_eq!(refused(&mut exchange), [1]);
}

#[test]
fn what_a_server_that_goes_away_has_not_taken_is_to_be_sent_again() {
    // The streams are 1 and 3; two more wait for one.
    let (mut exchange, out) = exchange(1);
    let mut server = Server::new(&out, 2);
    settle(&mut exchange, &mut server, 100).unwrap();
    let mut out = Vec::new();
    (0..3).for_each(|_| _ = exchange.request(&mut out));
    let to_client = server.turn(&out);
    exchange.receive(&to_client, &mut |_| unreachable!()).unwrap();
    exchange.receive(&goaway(1, Reason::NO_ERROR), &mut |_| unreachable!()).unwrap();
    assert_eq!(refused(&mut exchange).len(), 3);
    assert!(exchange.is_draining() && !exchange.is_last(), "one is under way");
    server.answer(0, 200, 3);
    let last = server.turn(&[]);
    let mut answers = Vec::new();
    exchange.receive(&last, &mut |answer| answers.push(answer)).unwrap();
    assert_eq!(answers, [answer(200, 0)]);
    assert!(exchange.is_last() && refused(&mut exchange).is_empty());
    exchange.closed(&mut |_| unreachable!()).unwrap();
}

#[test]
fn a_server_that_goes_away_and_closes_cuts_off_only_what_it_has_taken() {
    let (mut exchange, out) = exchange(3);
    let mut server = Server::new(&out, 10);
    settle(&mut exchange, &mut server, 100).unwrap();
    exchange.receive(&goaway(3, Reason::NO_ERROR), &mut |_| unreachable!()).unwrap();
    let fault = exchange.closed(&mut |_| unreachable!()).unwrap_err();
    assert_eq!(fault.kind, Kind::CLOSED_EARLY);
    assert!(fault.detail.contains("2 requests"), "{}", fault.detail);
    assert_eq!(refused(&mut exchange), [2]);
}

#[test]
fn a_server_that_goes_away_answers_what_it_has_and_takes_no_more() {
    let (mut exchange, out) = exchange(2);
    let mut server = Server::new(&out, 10);
    settle(&mut exchange, &mut server, 100).unwrap();
    server.connection.graceful_shutdown();
    server.answer(0, 200, 0);
    settle(&mut exchange, &mut server, 100).unwrap();
    assert!(!exchange.is_last() && exchange.is_draining(), "one is under way");
    server.answer(0, 200, 0);
    settle(&mut exchange, &mut server, 100).unwrap();
    assert!(exchange.is_last());
    exchange.reconnected();
    assert!(!exchange.is_last());
}

#[test]
fn another_protocol_and_an_early_end_are_named() {
    let (mut exchange, _) = exchange(1);
    let fault = exchange.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n", &mut |_| ()).unwrap_err();
    assert_eq!(fault.kind, Kind::MALFORMED, "{}", fault.detail);
    assert!(fault.detail.contains("does the server speak HTTP/2"), "{}", fault.detail);

    let (mut exchange, out) = self::exchange(1);
    let mut server = Server::new(&out, 10);
    settle(&mut exchange, &mut server, 100).unwrap();
    let fault = exchange.closed(&mut |_| ()).unwrap_err();
    assert_eq!(fault.kind, Kind::CLOSED_EARLY, "{}", fault.detail);
}

#[test]
fn headers_about_connections_are_refused() {
    let mut http = Http::new("a", "/");
    http.headers.push(("Connection".into(), "close".into()));
    let error = Requests::new(&http, true).unwrap_err();
    assert!(error.to_string().contains("no header Connection"), "{error}");
    http.headers = vec![("Host".into(), "b".into()), ("X-a".into(), "c".into())];
    let (_, request, _) = Requests::new(&http, true).unwrap().next(&mut Fill::new(1, 0, 1));
    assert_eq!(request.uri(), "https://b/");
    assert_eq!(request.headers().len(), 1);
}

#[test]
fn fields_are_replaced() {
    let mut http = Http::new("a", "/{n}");
    http.headers.push(("x".into(), "{client}".into()));
    let requests = Requests::new(&http, true).unwrap();
    let mut fill = Fill::new(1, 2, 5);
    for n in [2, 7] {
        let (_, request, _) = requests.next(&mut fill);
        assert_eq!(
            (request.uri().path(), &request.headers()["x"]),
            (&*format!("/{n}"), &"2".parse().unwrap())
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Any cut of what a server sends gives the same answers.
    #[test]
    fn any_cut_gives_the_same_replies(
        replies in proptest::collection::vec((0_usize..6, 200_u16..600, 0_usize..40_000), 1..6),
        size in 1_usize..3000,
    ) {
        let answers = |size| {
            let (mut exchange, out) = exchange(replies.len());
            let mut server = Server::new(&out, 100);
            let mut answers = settle(&mut exchange, &mut server, size).unwrap();
            for &(which, status, length) in &replies {
                let which = which % server.open.len();
                server.answer(which, status, length);
                answers.extend(settle(&mut exchange, &mut server, size).unwrap());
            }
            answers
        };
        prop_assert_eq!(answers(size), answers(usize::MAX));
    }
}
