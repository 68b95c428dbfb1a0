//! HTTP/2 servers that behave unusually, written frame by frame. Each test uses both drivers.

use super::ends::{DRIVERS, persistent};
use super::*;
use annulus_load::Workload;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
/// A header block with the status 200.
const STATUS_200: &[u8] = b"\x88";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Encodes a header as a literal, without HPACK's tables and without compression.
fn header(name: &str, value: &str) -> Vec<u8> {
    let [name_length, value_length] = [name.len() as u8, value.len() as u8];
    [&[0, name_length], name.as_bytes(), &[value_length], value.as_bytes()].concat()
}

/// Starts a server that calls `respond` for each request, with the number of its stream and the
/// number of requests so far on its connection, and sends the bytes returned.
fn serve_h2(respond: impl Fn(u32, usize) -> Vec<u8> + Clone + Send + 'static) -> SocketAddr {
    common::serve(move |mut stream| _ = talk_h2(&mut stream, &respond, usize::MAX))
}

/// Answers at most `most` requests.
fn talk_h2(
    stream: &mut TcpStream,
    respond: &dyn Fn(u32, usize) -> Vec<u8>,
    most: usize,
) -> io::Result<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface)?;
    assert!(preface.starts_with(b"PRI * HTTP/2.0"));
    stream.write_all(&frame(SETTINGS, 0, 0, b""))?;
    let mut requests = 0;
    while requests < most {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [high, middle, low, kind, flags, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
        stream.read_exact(&mut payload)?;
        let reply = match kind {
            SETTINGS if flags & ACK == 0 => frame(SETTINGS, ACK, 0, b""),
            PING if flags & ACK == 0 => frame(PING, ACK, 0, &payload),
            HEADERS => {
                requests += 1;
                respond(u32::from_be_bytes(id), requests)
            }
            _ => continue,
        };
        stream.write_all(&reply)?;
    }
    Ok(())
}

fn reply(stream: u32) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, stream, STATUS_200);
    [head, frame(DATA, END_STREAM, stream, b"hello")].concat()
}

fn h2() -> Protocol {
    Protocol::Http2(Http::new("a.example", "/"))
}

#[test]
fn empty_data_frames_are_accepted() {
    for driver in DRIVERS {
        let address = serve_h2(|stream, _| {
            let head = frame(HEADERS, END_HEADERS, stream, STATUS_200);
            let empty = frame(DATA, 0, stream, b"").repeat(150);
            [head, empty, frame(DATA, END_STREAM, stream, b"hello")].concat()
        });
        let report = answered(persistent(address, h2(), driver));
        assert_eq!((outcomes(&report), figures(&report).reconnects), (vec!["2xx".to_owned()], 0));
    }
}

#[test]
fn grpc_status_is_an_outcome() {
    let status = |code: &str| [header("grpc-status", code), header("grpc-message", "why")].concat();
    let head = [STATUS_200, &header("content-type", "application/grpc")].concat();
    for (is_in_headers, code, outcome, refusal) in [
        (false, "0", "2xx", None),
        (false, "13", "gRPC INTERNAL", Some("gRPC status 13: why")),
        (true, "14", "gRPC UNAVAILABLE", Some("gRPC status 14: why")),
    ] {
        for driver in DRIVERS {
            let (head, status) = (head.clone(), status(code));
            let address = serve_h2(move |stream, _| match is_in_headers {
                true => {
                    let flags = END_HEADERS | END_STREAM;
                    frame(HEADERS, flags, stream, &[&head[..], &status].concat())
                }
                false => [
                    frame(HEADERS, END_HEADERS, stream, &head),
                    frame(HEADERS, END_HEADERS | END_STREAM, stream, &status),
                ]
                .concat(),
            });
            let mut http = Http::new("a.example", "/");
            http.headers.push(("te".into(), "trailers".into()));
            let report = answered(persistent(address, Protocol::Http2(http), driver));
            assert_eq!(outcomes(&report), [outcome]);
            assert_eq!(report.first_refusal.as_deref(), refusal);
            let total = report.total();
            assert_eq!(total.refused, if refusal.is_some() { total.answered } else { 0 });
        }
    }
}

/// The server answers five requests on each connection, and announces that it will process no
/// others.
#[test]
fn requests_above_the_last_stream_of_goaway_are_retried() {
    for driver in DRIVERS {
        let address = serve_h2(|stream, number| match number {
            1..=4 => reply(stream),
            5 => {
                let last = [stream.to_be_bytes(), [0; 4]].concat();
                [reply(stream), frame(GOAWAY, 0, 0, &last)].concat()
            }
            _ => Vec::new(),
        });
        let mut plan = persistent(address, h2(), driver);
        if let Workload::Streams(streams) = &mut plan.workload {
            streams.pipeline = 4;
        }
        let report = loop {
            let report = answered(plan.clone());
            if figures(&report).retried > 0 {
                break report;
            }
            plan.duration *= 2;
        };
        assert_eq!(outcomes(&report), ["2xx"]);
        let figures = figures(&report);
        assert!(figures.reconnects > 0 && figures.failed == 0, "{figures:?}");
        // A request in flight when the window opens or closes is in only one of the two counts.
        let counted = figures.responses + figures.retried;
        assert!(figures.sent.abs_diff(counted) <= 2 * 3 * 4, "{figures:?}");
    }
}

#[test]
fn idle_http2_connection_may_end() {
    for driver in DRIVERS {
        for end in [drop as fn(TcpStream), super::ends::reset] {
            let address = common::serve(move |mut stream| {
                _ = talk_h2(&mut stream, &|stream, _| reply(stream), 1);
                end(stream);
            });
            super::ends::ends_idle(persistent(address, h2(), driver));
        }
    }
}
