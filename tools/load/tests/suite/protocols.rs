//! Protocols over real sockets, with correct and hostile servers. Each fault must be counted as the
//! right kind.

use crate::common;
mod ends;
mod odd_http2;

use annulus_load::recording::{Recording, Summary};
use annulus_load::{
    Framing, Http, HttpRequest, Mix, Plan, Protocol, Script, ScriptRequest, Streams, Template, Tls,
    Trust, run,
};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A stream, encrypted or not.
trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// Starts a server with one thread per connection. It ends with the test process.
fn serve(talk: impl Fn(&mut dyn Stream) + Send + Clone + 'static) -> SocketAddr {
    serve_streams(move |stream| talk(&mut { stream }))
}

fn serve_streams(talk: impl Fn(TcpStream) + Send + Clone + 'static) -> SocketAddr {
    common::serve(move |stream| {
        let closing = stream.try_clone().unwrap();
        talk(stream);
        // Closing a socket with unread bytes would reset its connection.
        _ = closing.shutdown(Shutdown::Write);
        _ = io::copy(&mut &closing, &mut io::sink());
    })
}

/// Answers every HTTP request without a body with the bytes that `reply` returns, until either side
/// closes or a reply is empty.
fn answer(stream: &mut dyn Stream, reply: impl Fn(&str) -> Vec<u8>) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while let Ok(1..) = stream.read_line(&mut head) {
        if !head.ends_with("\r\n\r\n") {
            continue;
        }
        let bytes = reply(&std::mem::take(&mut head));
        if bytes.is_empty() || stream.get_mut().write_all(&bytes).is_err() {
            return;
        }
    }
}

fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn plan(address: SocketAddr, protocol: Protocol) -> Plan {
    Plan {
        clients: 3,
        protocol,
        warm_up: Duration::from_millis(20),
        duration: Duration::from_millis(150),
        reply_timeout: Duration::from_secs(20),
        ..Plan::new(address.into(), Streams { pipeline: 2, ..Streams::default() })
    }
}

fn http(path: &str) -> Protocol {
    Protocol::Http(Http::new("a.example", path))
}

fn figures(report: &Recording) -> Summary {
    report.summary()
}

/// Runs a plan, for longer each time, until there is a response: a busy machine may need more than
/// one window.
#[track_caller]
fn answered(mut plan: Plan) -> Recording {
    loop {
        let report = run(&plan, &mut ()).unwrap();
        assert!(report.errors.is_empty(), "{report:?}");
        if figures(&report).responses > 0 {
            return report;
        }
        plan.duration *= 2;
    }
}

/// Runs one client that does not reconnect, and expects one error of this kind whose text contains
/// `part`.
#[track_caller]
fn fails(kind: &str, part: &str, plan: &Plan) {
    let plan = Plan { clients: 1, ..plan.clone() };
    let report = run(&plan, &mut ()).unwrap();
    let errors: Vec<_> =
        report.errors.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
    assert_eq!(errors, [(kind, 1)], "{:?}", report.first_error);
    let first = report.first_error.unwrap();
    assert!(first.contains(part), "'{part}' is not in: {first}");
}

fn outcomes(report: &Recording) -> Vec<String> {
    figures(report).outcomes.into_keys().collect()
}

#[test]
fn http_replies_are_counted_by_status_class() {
    let address = serve(|stream| {
        answer(stream, |head| match head.split(' ').nth(1) {
            Some("/missing") => {
                b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nno!\r\n0\r\n\r\n"
                    .to_vec()
            }
            Some("/broken") => {
                b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n".to_vec()
            }
            _ => ok("hello"),
        });
    });
    for pipeline in [1, 6] {
        let paths = ["/", "/missing", "/broken"].map(|path| (1.0, HttpRequest::new("GET", path)));
        let requests = Http { requests: Mix::new(paths).unwrap(), ..Http::new("a.example", "/") };
        let mut plan = plan(address, Protocol::Http(requests));
        plan.workload = Streams { pipeline, ..Streams::default() }.into();
        let report = loop {
            let report = answered(plan.clone());
            if figures(&report).outcomes.len() == 3 {
                break report;
            }
            plan.duration *= 2;
        };
        assert_eq!(outcomes(&report), ["2xx", "4xx", "5xx"]);
        let first = report.first_refusal.clone().unwrap();
        assert!(["HTTP/1.1 404 No", "HTTP/1.1 503 No"].contains(&&*first), "{first}");
        assert_eq!(figures(&report).outcomes.values().sum::<u64>(), figures(&report).responses);
    }
}

#[test]
fn client_reconnects_when_server_closes_after_each_reply() {
    for head in [
        "HTTP/1.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\n",
    ] {
        let address = serve_streams(move |mut stream| {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while let Ok(3..) = reader.read_line(&mut line) {
                line.clear();
            }
            _ = write!(stream, "{head}hello");
            // Unread requests must not reset the connection.
            _ = stream.shutdown(std::net::Shutdown::Write);
            _ = std::io::copy(&mut reader, &mut std::io::sink());
        });
        let mut plan = plan(address, http("/"));
        plan.workload = Streams { reconnect: true, ..Streams::default() }.into();
        (plan.clients, plan.duration) = (1, Duration::from_secs(1));
        let report = answered(plan);
        assert_eq!(outcomes(&report), ["2xx"]);
        // If these ends counted as failures, the pauses would allow only about eight new
        // connections.
        assert!(figures(&report).reconnects > 20, "{report:?}");
    }
}

#[test]
fn hostile_http_servers_cause_the_right_faults() {
    let hostile = |reply: &'static str| {
        plan(serve(move |stream| answer(stream, |_| reply.as_bytes().to_vec())), http("/"))
    };
    fails(
        "wrong length",
        "two different values",
        &hostile("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
    );
    fails(
        "wrong length",
        "content-length: x",
        &hostile("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"),
    );
    fails(
        "chunk error",
        "is not the size of a chunk",
        &hostile("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"),
    );
    fails("malformed reply", "SSH-2.0", &hostile("SSH-2.0-OpenSSH_9.2\r\n"));
    fails(
        "too many bytes",
        "",
        &hostile(
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        ),
    );
}

#[test]
fn endless_head_is_a_fault() {
    let address = serve(|stream| {
        _ = stream.read(&mut [0; 1000]);
        _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"x: endless\r\n").is_ok() {}
    });
    fails("endless head", "did not end within", &plan(address, http("/")));
}

#[test]
fn close_within_a_body_is_closed_early() {
    let address = serve_streams(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        _ = reader.read_line(&mut String::new());
        _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf");
        _ = stream.shutdown(std::net::Shutdown::Write);
        _ = std::io::copy(&mut reader, &mut std::io::sink());
    });
    fails("closed early", "46 bytes of the body", &plan(address, http("/")));
}

#[test]
fn script_counts_unexpected_replies() {
    let address = serve_streams(|stream| {
        let mut writer = stream.try_clone().unwrap();
        let mut number = 0;
        for line in BufReader::new(stream).lines() {
            if line.is_ok_and(|line| line == "PING") {
                number += 1;
                let reply: &[u8] = if number % 2 == 0 { b"+PONG\r\n" } else { b"-ERR odd\r\n" };
                if writer.write_all(reply).is_err() {
                    return;
                }
            }
        }
    });
    let request = ScriptRequest {
        check: None,
        request: Template::constant("PING\n"),
        expected: Some(Template::constant("+PONG\r\n")),
    };
    let requests = Mix::new([(1.0, request)]).unwrap();
    let script = Script { data: None, requests, framing: Framing::Delimiter(b"\r\n".to_vec()) };
    let mut plan = plan(address, Protocol::Script(script.clone()));
    plan.workload = Streams { pipeline: 4, ..Streams::default() }.into();
    let report = loop {
        let report = answered(plan.clone());
        if figures(&report).outcomes.len() == 2 {
            break report;
        }
        plan.duration *= 2;
    };
    assert_eq!(outcomes(&report), ["error reply", "ok"]);
    let first = report.first_refusal.as_deref();
    assert!(first.is_some_and(|text| text.starts_with("-ERR odd")), "{first:?}");
    fails("closed early", "", &self::plan(serve(|_| ()), Protocol::Script(script)));
}

/// Answers `get N` with `value N` and `put N` with `stored N`, line by line. With `swaps`, the
/// reply to every ninth `get` has the wrong verb.
fn serve_lines(swaps: bool) -> SocketAddr {
    serve_streams(move |stream| {
        let mut writer = io::BufWriter::new(stream.try_clone().unwrap());
        let mut reader = BufReader::new(stream);
        let (mut line, mut gets) = (String::new(), 0);
        while let Ok(1..) = reader.read_line(&mut line) {
            let (word, number) = line.split_once(' ').unwrap();
            gets += usize::from(word == "get");
            let is_get = (word == "get") != (swaps && word == "get" && gets % 9 == 0);
            let verb = if is_get { "value" } else { "stored" };
            let written = write!(writer, "{verb} {number}");
            line.clear();
            // Pipelined requests are answered in one piece, or in several if the buffer is full.
            let flushed = if reader.buffer().is_empty() { writer.flush() } else { Ok(()) };
            if written.and(flushed).is_err() {
                return;
            }
        }
    })
}

/// The expected reply to each request contains the request's random number, so each reply must be
/// compared with the one expected for its own request, in the order of the requests.
#[test]
fn pipelined_random_requests_match_their_own_expected_replies() {
    let request = |verb: &str, reply: &str| ScriptRequest {
        check: None,
        request: format!("{verb} {{random 1 1000000}}\n").parse().unwrap(),
        expected: Some(format!("{reply} {{random 1 1000000}}\n").parse().unwrap()),
    };
    let mix = [(3.0, request("get", "value")), (2.0, request("put", "stored"))];
    let script =
        |requests| Script { data: None, requests, framing: Framing::Delimiter(b"\n".to_vec()) };
    let script = script(Mix::new(mix).unwrap());
    for pipeline in [1, 5, 64] {
        let planned = |address| Plan {
            workload: Streams { pipeline, ..Streams::default() }.into(),
            ..plan(address, Protocol::Script(script.clone()))
        };
        let report = answered(planned(serve_lines(false)));
        assert_eq!(outcomes(&report), ["ok"], "{:?}", report.first_refusal);
        let classes = report.class_summaries();
        assert_eq!(classes.len(), 2, "{classes:?}");
        let mut plan = planned(serve_lines(true));
        let (refused, first) = loop {
            let report = answered(plan.clone());
            match report.first_refusal.clone() {
                Some(first) => break (report.total().refused, first),
                None => plan.duration *= 2,
            }
        };
        assert!(refused > 0 && first.starts_with("stored ") && first.ends_with("\\n"), "{first}");
    }
}

/// A self-signed certificate in a file, which is removed when the value is dropped, and the
/// server's settings.
struct TestCertificate(PathBuf, Arc<ServerConfig>);

impl TestCertificate {
    fn new(name: &str, alpn: &[&str]) -> TestCertificate {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let path =
            std::env::temp_dir().join(format!("annulus-protocols-{}-{name}", std::process::id()));
        std::fs::write(&path, made.cert.pem()).unwrap();
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        TestCertificate(path, Arc::new(config))
    }

    /// Starts a server that answers HTTP requests over TLS.
    fn serve(&self) -> SocketAddr {
        let config = Arc::clone(&self.1);
        serve_streams(move |stream| {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            answer(&mut StreamOwned::new(session, stream), |_| ok("over TLS"));
        })
    }

    fn tls(&self, name: &str) -> Tls {
        Tls::new(name, Trust::Roots(self.0.clone()))
    }
}

impl Drop for TestCertificate {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn requests_of_a_mix_are_recorded_separately() {
    let address = serve(|stream| {
        answer(stream, |head| match head.starts_with("GET /missing") {
            true => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
            false => ok("found"),
        });
    });
    let requests =
        [(3.0, HttpRequest::new("GET", "/")), (1.0, HttpRequest::new("GET", "/missing"))];
    let mix = Http { requests: Mix::new(requests).unwrap(), ..Http::new("a.example", "/") };
    let mut plan = plan(address, Protocol::Http(mix));
    let (recording, classes) = loop {
        let recording = answered(plan.clone());
        let classes = recording.class_summaries();
        if classes.iter().all(|class| class.responses > 0) {
            break (recording, classes);
        }
        plan.duration *= 2;
    };
    assert_eq!(recording.classes, ["GET /", "GET /missing"]);
    let [found, missing] = &classes[..] else { panic!("{classes:?}") };
    assert_eq!((found.outcomes["2xx"], found.refused), (found.responses, 0));
    assert_eq!((missing.outcomes["4xx"], missing.refused), (missing.responses, missing.responses));
    let total = recording.total();
    assert_eq!(found.responses + missing.responses, total.answered);
    assert_eq!(found.sent + missing.sent, total.sent);
    let mut both = total.classes[0].response.clone();
    both.add(&total.classes[1].response);
    assert_eq!(both, total.response, "the classes do not add up to the total");
}

#[test]
fn https_verifies_the_certificate() {
    let certificate = TestCertificate::new("checked.example", &["http/1.1"]);
    let address = certificate.serve();
    let with = |tls: Tls| Plan { tls: Some(tls), ..plan(address, http("/")) };
    let report = answered(with(certificate.tls("checked.example")));
    assert_eq!(outcomes(&report), ["2xx"]);
    fails("bad certificate", "other.example", &with(certificate.tls("other.example")));
    let other = TestCertificate::new("unrelated.example", &[]);
    fails("bad certificate", "", &with(other.tls("checked.example")));
    let unchecked = Tls::new("any.example", Trust::Unchecked);
    answered(with(unchecked.clone()));
    let plain = serve(|stream| answer(stream, |_| ok("plain")));
    fails(
        "TLS failed",
        "does the server speak TLS",
        &Plan { tls: Some(unchecked), ..plan(plain, http("/")) },
    );
}

#[test]
fn http2_over_tls_requires_alpn() {
    let certificate = TestCertificate::new("h2.example", &["http/1.1"]);
    let h2 = Protocol::Http2(Http::new("h2.example", "/"));
    let mut plan = plan(certificate.serve(), h2);
    plan.tls = Some(certificate.tls("h2.example"));
    fails("TLS failed", "", &plan);
    // This server has no ALPN.
    let certificate = TestCertificate::new("none.example", &[]);
    plan.address = certificate.serve().into();
    plan.tls = Some(certificate.tls("none.example"));
    fails("TLS failed", "did not agree to HTTP/2", &plan);
}

#[test]
fn invalid_plans_are_rejected() {
    let (_bound, address) = common::closed_tcp();
    let refused = |change: fn(&mut Plan), part: &str| {
        let mut plan = plan(address, http("/"));
        change(&mut plan);
        let error = run(&plan, &mut ()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(|plan| plan.protocol = http("x y"), "is not a valid path");
    refused(
        |plan| plan.tls = Some(Tls::new("a b", Trust::System)),
        "'a b' is neither a DNS name nor an address",
    );
}
