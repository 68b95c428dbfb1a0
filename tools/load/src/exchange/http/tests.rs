use super::*;
use crate::exchange::cuts::{assert_same_in_pieces, feed};
use crate::mix::{Mix, Template};
use proptest::prelude::*;

fn exchange(method: &str) -> HttpExchange {
    exchange_of(&of(HttpRequest::new(method, "/")))
}

fn of(request: HttpRequest) -> Http {
    Http { requests: Mix::new([(1.0, request)]).unwrap(), ..Http::new("a:1", "/") }
}

fn exchange_of(http: &Http) -> HttpExchange {
    HttpExchange::new(
        &Rc::new(Requests::new(http, false).unwrap()),
        FieldValues::new(1, 0, 1),
        &FirstRefusal::default(),
    )
}

/// Returns the bytes of `count` requests.
fn written(http: &Http, count: usize) -> String {
    let (mut exchange, mut out) = (exchange_of(http), RequestBuffer::default());
    (0..count).for_each(|_| _ = exchange.request(&mut out));
    String::from_utf8(out.bytes().clone()).unwrap()
}

/// Returns the statuses of the replies to `requests` requests, after checking that they are the
/// same for pieces of several sizes.
#[track_caller]
fn statuses(method: &str, requests: usize, bytes: &str) -> (Vec<u16>, Option<FaultKind>) {
    let mut found = None;
    for size in [1, 2, 3, 7, 100] {
        let replies = assert_same_in_pieces(|| exchange(method), requests, bytes.as_bytes(), size);
        found = Some(replies);
    }
    let (outcomes, kind) = found.expect("no size was tested");
    let status = |outcome| match outcome {
        Outcome::Status(status) => status,
        other => panic!("{other:?}"),
    };
    (outcomes.into_iter().map(status).collect(), kind)
}

#[track_caller]
fn answered(bytes: &str, expected: &[u16]) {
    assert_eq!(statuses("GET", expected.len(), bytes), (expected.to_vec(), None), "{bytes}");
}

#[track_caller]
fn fails(bytes: &str, kind: FaultKind) {
    assert_eq!(statuses("GET", 1, bytes), (vec![], Some(kind)), "{bytes}");
}

#[test]
fn body_ends_where_the_head_says() {
    answered("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", &[200]);
    answered("HTTP/1.1 200 OK\r\ncontent-length:  5 \r\nContent-Length: 5\r\n\r\nhello", &[200]);
    answered(
        "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\nHTTP/1.1 404\r\nContent-Length: 1\r\n\r\n!",
        &[500, 404],
    );
    let chunks = "5\r\nhello\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\n";
    let chunked = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n{chunks}");
    answered(&format!("{chunked}\r\n{chunked}trailer: a\r\nb: c\r\n\r\n"), &[200, 200]);
    let lines = "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding:";
    answered(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\n{chunks}\r\n{chunked}\r\n"), &[200, 200]);
    answered("HTTP/1.1 200 OK\n\nuntil the end", &[200]);
    answered("HTTP/1.0 200 OK\r\n\r\n", &[200]);
    answered("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nuntil the end", &[200]);
}

#[test]
fn replies_without_a_body_end_after_the_head() {
    let head = |status: u16| format!("HTTP/1.1 {status} x\r\nContent-Length: 99\r\n\r\n");
    answered(&(head(204) + &head(304) + &head(204)), &[204, 304, 204]);
    assert_eq!(statuses("HEAD", 2, &(head(200) + &head(404))), (vec![200, 404], None));
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n";
    answered(&format!("{interim}{}{interim}{}", head(204), head(304)), &[204, 304]);
}

#[test]
fn last_reply_of_a_connection_is_recognized() {
    let must_close = |head: &str| {
        let mut exchange = exchange("GET");
        exchange.request(&mut RequestBuffer::default());
        let bytes = format!("{head}\r\nContent-Length: 0\r\n\r\n");
        exchange.receive(bytes.as_bytes(), &mut |_| ()).unwrap();
        exchange.must_close()
    };
    assert!(!must_close("HTTP/1.1 200 OK"));
    assert!(must_close("HTTP/1.1 200 OK\r\nConnection: x , Close"));
    assert!(must_close("HTTP/1.0 200 OK"));
    assert!(!must_close("HTTP/1.0 200 OK\r\nCONNECTION: keep-alive"));
}

#[test]
fn invalid_lengths_are_wrong_length_faults() {
    let length = |values: &str| format!("HTTP/1.1 200 OK\r\n{values}\r\n\r\n");
    for values in [
        "Content-Length: -1",
        "Content-Length: +1",
        "Content-Length: 1 1",
        "Content-Length: 1, 1",
        "Content-Length:",
        "Content-Length: 18446744073709551616",
        "Content-Length: 1\r\nContent-Length: 2",
        "Content-Length: 1\r\nTransfer-Encoding: chunked",
    ] {
        fails(&length(values), FaultKind::WRONG_LENGTH);
    }
    fails(
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        FaultKind::WRONG_LENGTH,
    );
}

#[test]
fn invalid_chunks_are_chunk_faults() {
    for chunks in [
        "x\r\n",
        "\r\n",
        "5\r\nhello!",
        "5\nhello",
        "5\r\nhello\r\n\r\n",
        "5;\nx\r\nhello\r\n0\r\n\r\n",
        "11111111111111111\r\n",
        "0\r\n:\r\n\r\n",
    ] {
        fails(
            &format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"),
            FaultKind::CHUNK,
        );
    }
    let long =
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{}", "x".repeat(5000));
    fails(&long, FaultKind::CHUNK);
}

#[test]
fn oversized_heads_are_endless_head_faults() {
    fails(&format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(65_600)), FaultKind::ENDLESS_HEAD);
    fails(&format!("HTTP/1.1 200 OK\r\n{}", "x: y\r\n".repeat(11_000)), FaultKind::ENDLESS_HEAD);
    fails(&"HTTP/1.1 100 Continue\r\n\r\n".repeat(33), FaultKind::ENDLESS_HEAD);
    let trailers = "x: y\r\n".repeat(11_000);
    fails(
        &format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{trailers}"),
        FaultKind::ENDLESS_HEAD,
    );
}

#[test]
fn folded_and_many_headers_are_accepted() {
    answered("HTTP/1.1 200 OK\r\nx: a\r\n  b\r\n\tc\r\nContent-Length:\r\n 2\r\n\r\nhi", &[200]);
    let many = "x: y\r\n".repeat(1000);
    answered(&format!("HTTP/1.1 200 OK\r\n{many}Content-Length: 2\r\n\r\nhi"), &[200]);
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n";
    answered(&format!("{chunked}{many}\r\n"), &[200]);
    let short = "a:\n".repeat(20_000);
    answered(&format!("HTTP/1.1 200 OK\n{short}Content-Length: 2\n\nhi"), &[200]);
}

#[test]
fn empty_lines_between_replies_are_accepted() {
    let reply = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    for blank in ["\r\n", "\n", "\r\n\r\n\r\n"] {
        answered(&format!("{reply}{blank}{reply}{blank}"), &[200, 200]);
        answered(&format!("{blank}HTTP/1.1 204 No\r\nConnection: close\r\n\r\n{blank}"), &[204]);
    }
}

#[test]
fn timeout_reply_ends_an_idle_connection() {
    let timeout = "HTTP/1.1 408 Late\r\nConnection: close\r\nContent-Length: 3\r\n\r\n";
    let reply = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    for body in ["", "x", "xxx", "xxxxx"] {
        answered(&format!("{reply}{timeout}{body}"), &[200]);
    }
    let surplus = |rest: &str| statuses("GET", 1, &format!("{reply}{rest}"));
    for rest in
        ["x", &timeout[..20], &timeout.replace("408", "400"), &timeout.replace("close", "x")]
    {
        assert_eq!(surplus(rest), (vec![200], Some(FaultKind::TOO_MANY_BYTES)), "{rest}");
    }
    let mut exchange = exchange("GET");
    exchange.receive(timeout.as_bytes(), &mut |_| unreachable!()).unwrap();
    assert!(exchange.must_close());
    exchange.on_reconnect();
    assert!(!exchange.must_close());
}

/// A request may be written before the rest of an unrequested reply arrives.
#[test]
fn unrequested_reply_does_not_answer_a_later_request() {
    let mut exchange = exchange("GET");
    exchange.receive(b"HTTP/1.1 200 OK\r\n", &mut |_| unreachable!()).unwrap();
    exchange.request(&mut RequestBuffer::default());
    let rest = exchange.receive(b"Content-Length: 0\r\n\r\n", &mut |_| unreachable!());
    assert_eq!(rest.unwrap_err().kind, FaultKind::TOO_MANY_BYTES);
}

#[test]
fn malformed_reply_message_shows_the_wrong_bytes() {
    let long = "y".repeat(100);
    for (head, part) in [
        ("bad name: x", "invalid header name in \"bad name: x"),
        ("Server: some\x01thing", "invalid header value in \"Server: some\\x01thing"),
        ("x: y\0z", "invalid header value in \"x: y\\x00z"),
        (&format!("x: {long}\x02{long}"), "yyyy\\x02yyyyyyyyyyyyyyyy\""),
        ("Content-Length: 1\r\nContent-Length: 2", "content-length: 1 and 2"),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\nx: y\r\n{head}\r\n\r\n");
        let mut exchange = exchange("GET");
        exchange.request(&mut RequestBuffer::default());
        let fault = exchange.receive(text.as_bytes(), &mut |_| ()).unwrap_err();
        assert!(fault.detail.contains(part), "{part} is not in: {}", fault.detail);
    }
    let trailers =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\na: b\r\nc d: e\r\n\r\n";
    let mut exchange = exchange("GET");
    exchange.request(&mut RequestBuffer::default());
    let fault = exchange.receive(trailers.as_bytes(), &mut |_| ()).unwrap_err();
    assert!(fault.detail.contains("in \"c d: e"), "{}", fault.detail);
}

#[test]
fn close_header_is_recognized() {
    let closes = |name: &str, value: &str| {
        let mut http = Http::new("a", "/");
        http.headers.push((name.into(), value.into()));
        http.closes_connection()
    };
    assert!(closes("Connection", "close") && closes("CONNECTION", "x, CLOSE"));
    assert!(!closes("Connection", "keep-alive") && !closes("x", "close"));
}

#[test]
fn other_protocols_are_malformed_replies() {
    for bytes in [
        "SSH-2.0-x\r\n",
        "+PONG\r\n",
        "HTTP/2 200\r\n",
        "HTTP/1.1 20 x\r\n",
        "HTTP/1.1 20 x",
        "HTTP/1.1 099 x\r\n\r\n",
        "HTTP/1.1 101 x\r\n\r\n",
    ] {
        fails(bytes, FaultKind::MALFORMED);
    }
}

#[test]
fn truncated_replies_are_closed_early_faults() {
    for bytes in [
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: y\r\n",
    ] {
        fails(bytes, FaultKind::CLOSED_EARLY);
    }
}

#[test]
fn unrequested_bytes_are_too_many_bytes_faults() {
    let reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(
        statuses("GET", 1, &[reply, reply].concat()),
        (vec![200], Some(FaultKind::TOO_MANY_BYTES))
    );
    let last = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(
        statuses("GET", 2, &[last, reply].concat()),
        (vec![200], Some(FaultKind::TOO_MANY_BYTES))
    );
}

#[test]
fn new_connection_forgets_the_previous_reply() {
    let mut exchange = exchange("GET");
    let mut out = RequestBuffer::default();
    exchange.request(&mut out);
    exchange
        .receive(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhe",
            &mut |_| (),
        )
        .unwrap();
    exchange.on_reconnect();
    assert!(!exchange.must_close());
    exchange.request(&mut out);
    let mut answers = 0;
    exchange.receive(b"HTTP/1.1 204 No\r\n\r\n", &mut |_| answers += 1).unwrap();
    assert_eq!(answers, 1);
}

#[test]
fn request_is_encoded_with_headers_and_body() {
    let body = Some(Template::constant("{\"a\":1}"));
    let mut http = of(HttpRequest { body, ..HttpRequest::new("POST", "/a?{n}") });
    http.headers = vec![("accept".into(), "*/*".into()), ("x".into(), "{n}-{client}".into())];
    let request = |n: usize| {
        format!(
            "POST /a?{n} HTTP/1.1\r\nHost: a:1\r\naccept: */*\r\nx: {n}-0\r\nContent-Length: 7\r\n\r\n{{\"a\":1}}"
        )
    };
    assert_eq!(written(&http, 2), request(0) + &request(1));
}

#[test]
fn body_with_fields_gets_its_own_content_length() {
    let body = Some("{n}{{".parse().unwrap());
    let http = of(HttpRequest { body, ..HttpRequest::new("PUT", "/") });
    let request = |length: usize, body: &str| {
        format!("PUT / HTTP/1.1\r\nHost: a:1\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let expected: String =
        (0..11).map(|n| format!("{n}{{")).map(|body| request(body.len(), &body)).collect();
    assert_eq!(written(&http, 11), expected);
}

#[test]
fn mixed_get_and_head_requests_are_matched_to_replies() {
    let kinds = [(1.0, HttpRequest::new("GET", "/")), (1.0, HttpRequest::new("HEAD", "/"))];
    let http = Http { requests: Mix::new(kinds).unwrap(), ..Http::new("a:1", "/") };
    let mut exchange = exchange_of(&http);
    let (mut classes, mut replies) = ([0, 0], Vec::new());
    for _ in 0..100 {
        let class = exchange.request(&mut RequestBuffer::default());
        classes[class] += 1;
        replies.extend(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
        replies.extend(&b"abc"[..if class == 0 { 3 } else { 0 }]);
    }
    assert!(classes.iter().all(|count| *count > 20), "{classes:?}");
    let mut answers = 0;
    exchange.receive(&replies, &mut |_| answers += 1).unwrap();
    assert_eq!(answers, 100);
}

#[test]
fn user_host_header_wins_and_put_without_body_has_length_0() {
    let mut http = of(HttpRequest::new("PUT", "/"));
    http.headers = vec![("HOST".into(), "b".into())];
    assert_eq!(written(&http, 1), "PUT / HTTP/1.1\r\nHOST: b\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn invalid_http_parts_are_rejected() {
    let refused = |http: Http, part: &str| {
        let error = http.validate().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    let request = |method: &str, path: &str| of(HttpRequest::new(method, path));
    refused(request("GE T", "/"), "'GE T' is not a method");
    refused(request("CONNECT", "/"), "'CONNECT' is not a method that has a path");
    refused(request("GET", "x"), "\"x\" is not a valid path");
    refused(request("GET", "*"), "\"*\" is not a valid path");
    refused(request("GET", "/ä b"), "write spaces");
    refused(request("GET", "/{n"), "'{n' at character 2 is not closed");
    refused(Http { authority: String::new(), ..Http::new("a", "/") }, "\"\" is not a valid host");
    let header = |name: &str, value: &str| Http {
        headers: vec![(name.into(), value.into())],
        ..Http::new("a", "/")
    };
    refused(header("a b", "c"), "\"a b\" is not a valid header name");
    refused(header("a", "c\r\nd: e"), "control character");
    refused(header("a", "{m}"), "'{m}' at character 1 is unknown");
    refused(header("Content-length", "5"), "is derived from the body");
    assert_eq!(request("OPTIONS", "*").validate(), Ok(()));
    assert_eq!(request("GET", "/{random 1 9}?a={hex 3}").validate(), Ok(()));
}

/// Generates valid replies; the test damages a byte in some of them.
fn reply() -> impl Strategy<Value = Vec<u8>> {
    let body = proptest::collection::vec(any::<u8>(), 0..40);
    let length = body.clone().prop_map(|body| {
        let head =
            format!("HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.into_bytes(), body].concat()
    });
    let chunked = proptest::collection::vec(body, 0..4).prop_map(|chunks| {
        let mut bytes = b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
            bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
            bytes.extend(chunk);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\nt: u\r\n\r\n");
        bytes
    });
    prop_oneof![length, chunked, Just(b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 304 N\r\n\r\n".to_vec())]
}

proptest! {
    #[test]
    fn split_input_gives_the_same_replies(
        replies_sent in proptest::collection::vec(reply(), 1..6),
        cuts in proptest::collection::vec(1_usize..60, 1..20),
        damage in proptest::option::of((any::<proptest::sample::Index>(), any::<u8>())),
    ) {
        let count = replies_sent.len();
        let mut bytes = replies_sent.concat();
        if let Some((at, byte)) = damage {
            *at.get_mut(&mut bytes) = byte;
        }
        let at_once = feed(exchange("GET"), count, [&bytes[..]]);
        let mut pieces = Vec::new();
        let (mut rest, mut cuts) = (&bytes[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (bytes_from, behind) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
            pieces.push(bytes_from);
            rest = behind;
        }
        prop_assert_eq!(&feed(exchange("GET"), count, pieces), &at_once);
        if damage.is_none() {
            prop_assert_eq!((at_once.0.len(), at_once.1), (count, None));
        }
    }
}

/// Returns the outcomes of replies to requests with this expected body, after checking that they
/// are the same for pieces of several sizes.
#[track_caller]
fn checked(method: &str, expected: &str, bytes: &str, requests: usize) -> Vec<Outcome> {
    let expected = Some(expected.parse().unwrap());
    let http = of(HttpRequest { expected, ..HttpRequest::new(method, "/") });
    let results = [1, 2, 7, 100]
        .map(|size| assert_same_in_pieces(|| exchange_of(&http), requests, bytes.as_bytes(), size));
    results[0].0.clone()
}

#[test]
fn wrong_body_is_an_outcome_of_its_own() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\n";
    let (right, wrong) = (Outcome::Status(200), Outcome::WrongBody(200));
    let lengths = format!(
        "{HEAD}Content-Length: 5\r\n\r\nhello{HEAD}Content-Length: 5\r\n\r\nhelp!\
         {HEAD}Content-Length: 0\r\n\r\n{HEAD}Content-Length: 5\r\n\r\nhello"
    );
    for expected in [
        "hello",
        "regex:^hell",
        "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
    ] {
        assert_eq!(checked("GET", expected, &lengths, 4), [right, wrong, wrong, right]);
    }
    assert_eq!(checked("GET", "length:5", &lengths, 4), [right, right, wrong, right]);
    let chunks =
        format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n");
    assert_eq!(checked("GET", "hello", &chunks, 1), [right]);
    assert_eq!(checked("GET", "hell", &chunks, 1), [wrong]);
    let until_close = format!("{HEAD}Connection: close\r\n\r\nhello");
    assert_eq!(checked("GET", "hello", &until_close, 1), [right]);
    assert_eq!(checked("GET", "hello!", &until_close, 1), [wrong]);
    // The body of a reply is not checked if its status is an error or it answers HEAD.
    let refused = "HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno";
    assert_eq!(checked("GET", "hello", refused, 1), [Outcome::Status(404)]);
    let head = format!("{HEAD}Content-Length: 7\r\n\r\n");
    assert_eq!(checked("HEAD", "hello", &head, 1), [right]);
}

#[test]
fn each_kind_of_request_has_its_own_expected_body() {
    let request = |path: &str| HttpRequest {
        expected: Some(path[1..].parse().unwrap()),
        ..HttpRequest::new("GET", path)
    };
    let requests = Mix::in_order([request("/a"), request("/b"), HttpRequest::new("GET", "/c")]);
    let http = Http { requests: requests.unwrap(), ..Http::new("a:1", "/") };
    let reply = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{body}");
    let bytes = ["a", "b", "x", "a", "a"].map(reply).concat();
    let (outcomes, fault) = feed(exchange_of(&http), 5, [bytes.as_bytes()]);
    let right = Outcome::Status(200);
    assert_eq!(
        (outcomes, fault),
        (vec![right, right, right, right, Outcome::WrongBody(200)], None)
    );
}

#[test]
fn values_of_every_row_must_be_valid() {
    let refused = |rows: &str, row: usize, part: &str| {
        let data = crate::mix::DataRows::parse(rows.as_bytes()).unwrap();
        let data = Some(std::sync::Arc::new(data));
        let request = HttpRequest {
            headers: vec![("X-User".into(), "{user}".into())],
            ..HttpRequest::new("GET", "/{path}")
        };
        let http = Http { data, ..of(request) };
        for validated in [http.validate(), http.validate_http2()] {
            let error = validated.unwrap_err().to_string();
            let beginning = format!("with row {row} of the data, ");
            assert!(error.starts_with(&beginning) && error.contains(part), "{error}");
        }
    };
    refused("path,user\na,ann\nb c,bob\n", 2, "\"/b c\" is not a valid path");
    refused(
        "path,user\na,ann\nb,\"bob\r\nX: y\"\n",
        2,
        "the header X-User has a control character",
    );
    let data = crate::mix::DataRows::parse(b"path\n/a\nb\n").unwrap();
    let request = of(HttpRequest::new("GET", "{path}"));
    let http = Http { data: Some(std::sync::Arc::new(data)), ..request };
    assert!(http.validate().unwrap_err().to_string().starts_with("with row 2 of the data, \"b\""));
}

/// Sends a request, receives its reply, and returns the request.
fn exchanged(exchange: &mut HttpExchange, reply: &str) -> String {
    let mut out = RequestBuffer::default();
    exchange.request(&mut out);
    exchange.receive(reply.as_bytes(), &mut |_| ()).unwrap();
    String::from_utf8(out.bytes().clone()).unwrap()
}

#[test]
fn cookies_are_sent_until_the_session_ends() {
    let requests = ["/login", "/cart", "/pay"].map(|path| HttpRequest::new("GET", path));
    let requests = Mix::in_order(requests).unwrap();
    let http = Http { requests, cookies: true, ..Http::new("a:1", "/") };
    let mut exchange = exchange_of(&http);
    let set = "HTTP/1.1 200 OK\r\nset-cookie: id=7; Path=/\r\nSet-Cookie: b=c\r\nContent-Length: 0\r\n\r\n";
    let plain = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let head =
        |path: &str, cookies: &str| format!("GET {path} HTTP/1.1\r\nHost: a:1\r\n{cookies}\r\n");
    for _ in 0..2 {
        assert_eq!(exchanged(&mut exchange, set), head("/login", ""));
        assert_eq!(exchanged(&mut exchange, plain), head("/cart", "Cookie: id=7; b=c\r\n"));
        // The connection ends before this request is answered, so it is sent again.
        exchange.request(&mut RequestBuffer::default());
        exchange.on_reconnect();
        assert_eq!(exchanged(&mut exchange, plain), head("/pay", "Cookie: id=7; b=c\r\n"));
    }
    let twice = Http { headers: vec![("cookie".into(), "a=b".into())], ..http };
    assert!(twice.validate().unwrap_err().to_string().contains("leave one of them out"));
}

#[test]
fn headers_of_a_request_follow_those_of_all_requests() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let data = crate::mix::DataRows::parse(b"user\nann\n").unwrap();
    let request = HttpRequest {
        headers: vec![pair("Host", "b"), pair("X-User", "{user}")],
        ..HttpRequest::new("GET", "/{user}")
    };
    let http = Http {
        headers: vec![pair("Host", "c"), pair("Accept", "*/*")],
        data: Some(std::sync::Arc::new(data)),
        ..of(request)
    };
    let requests = Rc::new(Requests::new(&http, false).unwrap());
    let values = FieldValues::new(1, 0, 1).with_data(http.data.clone());
    let mut exchange = HttpExchange::new(&requests, values, &FirstRefusal::default());
    let sent = exchanged(&mut exchange, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(sent, "GET /ann HTTP/1.1\r\nAccept: */*\r\nHost: b\r\nX-User: ann\r\n\r\n");
    let unknown = Http { data: None, ..http };
    assert!(unknown.validate().unwrap_err().to_string().contains("the field '{user}'"));
}
