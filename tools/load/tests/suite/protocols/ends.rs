//! Connections that end: after an announcement in a request or a reply, while they are idle, or
//! within a body.

use super::*;
use annulus::DriverChoice;
use annulus_load::{Observer, Schedule, ThinkTime, clock};
use rustix::net::sockopt::set_socket_linger;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub(super) const DRIVERS: [DriverChoice; 2] = [DriverChoice::Auto, DriverChoice::Epoll];

/// Closes a connection with a reset.
pub(super) fn reset(stream: TcpStream) {
    set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

/// Reads the head of a request. It is empty at the end of the stream.
fn read_head(stream: &mut dyn Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// Returns a plan for clients that reconnect.
pub(super) fn persistent(address: SocketAddr, protocol: Protocol, driver: DriverChoice) -> Plan {
    Plan {
        workload: Streams { reconnect: true, driver, ..Streams::default() }.into(),
        ..plan(address, protocol)
    }
}

/// Returns POST requests with a body of this many bytes.
fn post(bytes: usize) -> Protocol {
    let body = Some(Template::constant(vec![b'x'; bytes]));
    let request = HttpRequest { body, ..HttpRequest::new("POST", "/") };
    let requests = Mix::new([(1.0, request)]).unwrap();
    Protocol::Http(Http { requests, ..Http::new("a.example", "/") })
}

/// Counts the bytes that arrive after a request with `Connection: close`, whose reply does not
/// announce the close.
#[test]
fn nothing_is_sent_after_a_request_that_closes_the_connection() {
    let certificate = TestCertificate::new("close.example", &["http/1.1"]);
    for (driver, pipeline) in DRIVERS.into_iter().flat_map(|driver| [(driver, 1), (driver, 4)]) {
        for is_encrypted in [false, true] {
            let surplus = Arc::new(AtomicUsize::new(0));
            let (count, config) = (Arc::clone(&surplus), Arc::clone(&certificate.1));
            let talk = move |stream: &mut dyn Stream| {
                if read_head(stream).contains("connection: x, Close") {
                    _ = stream.write_all(&ok("last"));
                }
                let mut rest = Vec::new();
                _ = stream.read_to_end(&mut rest);
                count.fetch_add(rest.len(), Relaxed);
            };
            let address = common::serve(move |stream| match is_encrypted {
                false => talk(&mut { stream }),
                true => {
                    let session = ServerConnection::new(Arc::clone(&config)).unwrap();
                    talk(&mut StreamOwned::new(session, stream));
                }
            });
            let mut http = Http::new("a.example", "/");
            http.headers.push(("connection".into(), "x, Close".into()));
            let mut plan = persistent(address, Protocol::Http(http), driver);
            plan.workload =
                Streams { pipeline, reconnect: true, driver, ..Streams::default() }.into();
            plan.tls = is_encrypted.then(|| certificate.tls("close.example"));
            let report = answered(plan);
            assert_eq!(outcomes(&report), ["2xx"]);
            assert!(report.run.schedule.contains("a new connection for each"), "{report:?}");
            assert_eq!(surplus.load(Relaxed), 0, "{driver:?}, pipeline {pipeline}");
        }
    }
}

/// Runs clients that pause after each reply, so that their connections are idle when the server
/// ends them.
#[track_caller]
pub(super) fn ends_idle(plan: Plan) {
    let think = ThinkTime::Fixed(Duration::from_millis(200));
    let mut plan = Plan {
        schedule: Schedule::Closed { think },
        warm_up: Duration::ZERO,
        duration: Duration::from_millis(900),
        ..plan
    };
    loop {
        let report = run(&plan, &mut ()).unwrap();
        assert!(report.errors.is_empty(), "{:?}: {:?}", report.errors, report.first_error);
        if figures(&report).reconnects > 0 {
            assert_eq!(outcomes(&report), ["2xx"]);
            return;
        }
        plan.duration *= 2;
    }
}

const TIMED_OUT: &str =
    "HTTP/1.1 408 Request Time-out\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlate!";

#[test]
fn end_of_an_idle_connection_is_not_a_failure() {
    let endings: [fn(TcpStream); 4] = [
        drop,
        reset,
        |mut stream| stream.write_all(TIMED_OUT.as_bytes()).unwrap(),
        |mut stream| {
            for piece in TIMED_OUT.as_bytes().chunks(30) {
                // The client may close before the end of the body.
                _ = stream.write_all(piece);
            }
        },
    ];
    for driver in DRIVERS {
        for end in endings {
            let address = common::serve(move |mut stream| {
                if !read_head(&mut stream).is_empty() {
                    _ = stream.write_all(&ok("idle"));
                    end(stream);
                }
            });
            ends_idle(persistent(address, http("/"), driver));
        }
    }
}

#[test]
fn idle_tls_connection_may_end_without_close_notify() {
    let certificate = TestCertificate::new("idle.example", &["http/1.1"]);
    for driver in DRIVERS {
        let config = Arc::clone(&certificate.1);
        let address = common::serve(move |stream| {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(session, stream);
            if !read_head(&mut stream).is_empty() {
                _ = stream.write_all(&ok("idle"));
            }
        });
        let tls = Some(certificate.tls("idle.example"));
        ends_idle(Plan { tls, ..persistent(address, http("/"), driver) });
    }
}

#[test]
fn idle_connection_still_fails_after_other_replies() {
    for surplus in
        ["HTTP/1.1 408 Late\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "?"]
    {
        let address = common::serve(move |mut stream| {
            read_head(&mut stream);
            _ = stream.write_all(&[&ok("idle"), surplus.as_bytes()].concat());
            _ = stream.read_to_end(&mut Vec::new());
        });
        fails("too many bytes", &surplus[..1], &single(address, DriverChoice::Auto));
    }
}

const UNTIL_CLOSE: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nhalf";

/// Returns a plan for clients that do not reconnect.
fn single(address: SocketAddr, driver: DriverChoice) -> Plan {
    let workload = Streams { driver, ..Streams::default() }.into();
    Plan { workload, ..plan(address, http("/")) }
}

#[test]
fn body_that_ends_with_the_connection_is_explained() {
    for driver in DRIVERS {
        let address = common::serve(|mut stream| {
            read_head(&mut stream);
            stream.write_all(UNTIL_CLOSE).unwrap();
            _ = stream.read(&mut [0]);
        });
        let reply_timeout = Duration::from_millis(100);
        fails(
            "reply timeout",
            "did not close it",
            &Plan { reply_timeout, ..single(address, driver) },
        );
        let address = common::serve(|mut stream| {
            read_head(&mut stream);
            stream.write_all(UNTIL_CLOSE).unwrap();
            reset(stream);
        });
        fails("reset", "its body ends with the connection", &single(address, driver));
    }
}

#[test]
fn body_cut_off_without_close_notify_is_explained() {
    let certificate = TestCertificate::new("cut.example", &["http/1.1"]);
    for driver in DRIVERS {
        for (reply, part) in [
            (UNTIL_CLOSE, "its body ends with the connection"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "before 5 bytes of the body"),
            (b"", "a request in flight"),
        ] {
            let config = Arc::clone(&certificate.1);
            let address = common::serve(move |stream| {
                let session = ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = StreamOwned::new(session, stream);
                read_head(&mut stream);
                stream.write_all(reply).unwrap();
                stream.flush().unwrap();
            });
            let plan =
                Plan { tls: Some(certificate.tls("cut.example")), ..single(address, driver) };
            fails("closed early", part, &plan);
            fails("closed early", "TLS ended without close_notify", &plan);
        }
    }
}

/// Reads this many bytes, a few at a time, and pauses after each read.
fn read_slowly(stream: &mut TcpStream, mut bytes: usize, pause: Duration) {
    let mut buffer = vec![0; 64 << 10];
    while bytes > 0 {
        match stream.read(&mut buffer[..bytes.min(64 << 10)]) {
            Ok(count @ 1..) => bytes -= count,
            _ => return,
        }
        std::thread::sleep(pause);
    }
}

/// The whole upload takes much longer than the time limit.
#[test]
fn slow_upload_is_activity() {
    const BYTES: usize = 4 << 20;
    let certificate = TestCertificate::new("upload.example", &["http/1.1"]);
    for driver in DRIVERS {
        let address = common::serve(|mut stream| {
            while !read_head(&mut stream).is_empty() {
                read_slowly(&mut stream, BYTES, Duration::from_millis(40));
                _ = stream.write_all(&ok("done"));
            }
        });
        let plan = Plan {
            clients: 1,
            duration: Duration::from_secs(4),
            reply_timeout: Duration::from_secs(1),
            ..persistent(address, post(BYTES), driver)
        };
        assert_eq!(outcomes(&answered(plan)), ["2xx"]);
        let reply_timeout = Duration::from_millis(200);
        let address = common::serve(|mut stream| {
            read_head(&mut stream);
            std::thread::park();
        });
        let stalled = Plan { reply_timeout, protocol: post(BYTES), ..single(address, driver) };
        fails("reply timeout", "received no byte of a request", &stalled);
        let tls = Some(certificate.tls("upload.example"));
        let config = Arc::clone(&certificate.1);
        let address = common::serve(move |stream| {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(session, stream);
            read_head(&mut stream);
            std::thread::park();
        });
        let stalled = Plan { tls, reply_timeout, protocol: post(BYTES), ..single(address, driver) };
        fails("reply timeout", "received no byte of a request", &stalled);
    }
}

/// The server replies as soon as it has the head, and closes without reading the body, which resets
/// the connection.
#[test]
fn early_rejection_of_a_body_is_an_outcome() {
    for driver in DRIVERS {
        for announced in ["", "Connection: close\r\n"] {
            let address = common::serve(move |mut stream| {
                read_head(&mut stream);
                let head = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n";
                _ = stream.write_all(format!("{head}{announced}\r\nno!").as_bytes());
            });
            let report = answered(persistent(address, post(6 << 20), driver));
            assert_eq!(outcomes(&report), ["4xx"]);
        }
    }
}

/// Interrupts a run that takes far too long.
struct Deadline(Duration);

impl Observer for Deadline {
    fn is_interrupted(&self) -> bool {
        clock::now() > self.0
    }
}

/// The server replies to the head of a request, and neither reads the body nor closes.
#[test]
fn upload_that_is_answered_but_not_read_ends() {
    for driver in DRIVERS {
        let address = common::serve(|mut stream| {
            read_head(&mut stream);
            stream.write_all(&ok("early")).unwrap();
            std::thread::park();
        });
        let stalled = Plan { clients: 1, ..persistent(address, post(32 << 20), driver) };
        let duration = Duration::from_secs(1);
        let plan = Plan { warm_up: Duration::ZERO, duration, ..stalled };
        let mut deadline = Deadline(clock::now() + Duration::from_secs(60));
        let report = run(&plan, &mut deadline).unwrap();
        assert!(!report.interrupted, "the run did not end with its time");
        assert_eq!((report.errors.len(), figures(&report).responses), (0, 1), "{report:?}");
        let reply_timeout = Duration::from_millis(100);
        let report = run(&Plan { reply_timeout, ..plan }, &mut deadline).unwrap();
        let first = report.first_error.as_deref().unwrap_or_default();
        assert!(first.contains("received no byte of a request for 100ms"), "{report:?}");
        assert!(figures(&report).reconnects > 0, "{report:?}");
    }
}

/// The server closes each connection after three replies, so that the last ones of the planned
/// requests are sent on connections that end before they are answered.
#[test]
fn planned_requests_are_sent_again_until_all_are_answered() {
    for (driver, pipeline) in DRIVERS.into_iter().flat_map(|driver| [(driver, 1), (driver, 8)]) {
        let address = serve_streams(|mut stream| {
            for connection in ["keep-alive", "keep-alive", "close"] {
                if read_head(&mut stream).is_empty() {
                    return;
                }
                let head = format!("HTTP/1.1 200 OK\r\nConnection: {connection}\r\n");
                _ = stream.write_all(format!("{head}Content-Length: 2\r\n\r\nok").as_bytes());
            }
        });
        let streams = Streams { pipeline, reconnect: true, driver, ..Streams::default() };
        let report = run(
            &Plan {
                requests: Some(50),
                warm_up: Duration::ZERO,
                duration: Duration::from_secs(60),
                workload: streams.into(),
                ..plan(address, http("/"))
            },
            &mut (),
        );
        let report = report.unwrap();
        let Summary { responses, failed, cut_off, .. } = figures(&report);
        assert_eq!((responses, failed, cut_off), (50, 0, 0), "{driver:?} {pipeline}: {report:?}");
    }
}

#[test]
fn clients_are_spread_over_all_addresses() {
    for driver in DRIVERS {
        let counts: [Arc<AtomicUsize>; 3] = Default::default();
        let addresses = counts.each_ref().map(|count| {
            let count = Arc::clone(count);
            common::serve(move |mut stream| {
                count.fetch_add(1, Relaxed);
                answer(&mut stream, |_| ok("one of three"));
            })
        });
        let [first, more @ ..] = addresses;
        let plan = Plan { more_addresses: more.into(), ..persistent(first, http("/"), driver) };
        let report = answered(Plan { clients: 6, ..plan });
        assert_eq!(report.run.address, addresses.map(|address| address.to_string()).join(", "));
        let counts = counts.map(|count| count.load(Relaxed));
        assert!(counts.iter().all(|count| *count >= 2), "{counts:?}");
    }
}

#[test]
fn skipped_addresses_are_reported() {
    let address = serve(|stream| answer(stream, |_| ok("")));
    let skipped_addresses = vec!["127.0.0.9:1".parse().unwrap()];
    let report = answered(Plan { skipped_addresses, ..plan(address, http("/")) });
    let warning = "further addresses without load: 127.0.0.9:1 did not accept a connection";
    assert!(report.warnings.iter().any(|text| text.contains(warning)), "{:?}", report.warnings);
}
