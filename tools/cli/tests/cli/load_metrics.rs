//! The metrics of a running load.

use crate::common::{ANNULUS, PATIENCE, Scratch, Server, annulus};
use annulus_load::clock;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::process::{Command, Stdio};

/// Requests a path; returns the whole response.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// Returns the value of a counter.
fn value(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not in: {text}")).parse().unwrap()
}

#[test]
fn running_load_is_served_as_prometheus_text() {
    let server = Server::start(&[]);
    let mut command = Command::new(ANNULUS);
    command.args(["load", &server.address.to_string(), "-c", "2", "-d", "60", "--warm-up", "0"]);
    command.args(["--interval", "50ms", "--prometheus", "127.0.0.1:0"]);
    let mut load = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(load.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("annulus load: metrics at http://");
    let address = address.and_then(|rest| rest.strip_suffix("/metrics")).unwrap().to_owned();
    let until = clock::now() + PATIENCE;
    let counted = loop {
        let text = get(&address, "/metrics");
        if value(&text, "annulus_load_responses_total") > 0 {
            break text;
        }
        assert!(clock::now() < until, "no response is counted: {text}");
    };
    assert!(counted.contains("Content-Type: text/plain; version=0.0.4"), "{counted}");
    let count = value(&counted, "annulus_load_response_seconds_count");
    assert_eq!(count, value(&counted, "annulus_load_responses_total"));
    assert!(get(&address, "/").starts_with("HTTP/1.1 404"));
    load.kill().unwrap();
    load.wait().unwrap();
}

#[test]
fn finished_load_leaves_its_figures_in_a_file() {
    let (server, scratch) = (Server::start(&[]), Scratch::new("prometheus-file"));
    let (file, address) = (scratch.path("load.prom"), server.address.to_string());
    let finished = annulus(["load", &address, "-n", "500", "-c", "2", "--prometheus-file", &file]);
    assert_eq!((finished.code, &*finished.stderr), (Some(0), ""), "{finished:?}");
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(value(&text, "annulus_load_requests_sent_total"), 500);
    assert_eq!(value(&text, "annulus_load_response_seconds_bucket{le=\"+Inf\"}"), 500);
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 1, "a temporary file is left");
}

/// A rename over the link or the device would remove it.
#[test]
fn file_of_figures_may_be_a_link_or_a_device() {
    let (server, scratch) = (Server::start(&[]), Scratch::new("prometheus-link"));
    let (file, link) = (scratch.path("load.prom"), scratch.path("link"));
    let (null, address) = (scratch.path("null"), server.address.to_string());
    symlink("load.prom", &link).unwrap();
    symlink("/dev/null", &null).unwrap();
    for target in [&link, &null] {
        let args = ["load", &address, "-n", "50", "-c", "2", "--prometheus-file", target];
        let finished = annulus(args);
        assert_eq!((finished.code, &*finished.stderr), (Some(0), ""), "{finished:?}");
        assert!(fs::symlink_metadata(target).unwrap().is_symlink(), "{target} was replaced");
    }
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert_eq!(value(&fs::read_to_string(&file).unwrap(), "annulus_load_requests_sent_total"), 50);
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 3, "a temporary file is left");
}

#[test]
fn metrics_that_cannot_go_anywhere_are_reported_before_the_run() {
    let server = Server::start(&[]);
    let address = server.address.to_string();
    annulus(["load", &address, "--prometheus", &address])
        .fails_with(1, &["cannot serve metrics at", &address]);
    annulus(["load", &address, "--prometheus-file", "/no/such/file"])
        .fails_with(2, &["cannot write /no/such/file", "choose another file"]);
}
