//! The metrics of a load for an OpenTelemetry collector.

use crate::common::{ANNULUS, Finished, Server, annulus, finish, free_address, serve};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};

/// One export: the path, the value of the header `x-token`, and the metrics.
type Export = (String, String, Value);

/// Receives the exports of one connection and answers each with this status.
fn receive(stream: TcpStream, status: u16, sender: &Sender<Export>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut path, mut token, mut length) = (String::new(), String::new(), 0);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end();
            if path.is_empty() {
                path = line.split(' ').nth(1)?.to_owned();
            }
            match line.split_once(": ") {
                _ if line.is_empty() => break,
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().ok()?;
                }
                Some((name, value)) if name.eq_ignore_ascii_case("x-token") => {
                    token = value.to_owned();
                }
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        sender.send((path, token, serde_json::from_slice(&body).unwrap())).ok()?;
        let reply = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\n{{}}");
        stream.get_mut().write_all(reply.as_bytes()).ok()?;
    }
}

/// Starts a collector that answers every export with this status.
fn collector(status: u16) -> (SocketAddr, Receiver<Export>) {
    let (sender, exports) = channel();
    let address = serve(move |stream| _ = receive(stream, status, &sender));
    (address, exports)
}

/// Runs a load that exports its metrics as JSON.
fn load(args: &[&str]) -> Finished {
    let mut command = Command::new(ANNULUS);
    command.arg("load").args(args);
    command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
    command.env("OTEL_EXPORTER_OTLP_HEADERS", "x-token=secret");
    finish(command.env("OTEL_RESOURCE_ATTRIBUTES", "site=lab"))
}

/// Returns the points of the metric with this name.
fn points(metrics: &Value, name: &str) -> Vec<Value> {
    let all = metrics["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let found = all.iter().find(|metric| metric["name"] == name);
    let found = found.unwrap_or_else(|| panic!("{name} is not in {metrics}"));
    let kind = if found["sum"].is_null() { "histogram" } else { "sum" };
    found[kind]["dataPoints"].as_array().unwrap().clone()
}

/// Returns a number. The JSON of OTLP may contain it as a string.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| value.as_str().unwrap().parse().unwrap())
}

#[test]
fn collector_receives_the_figures_of_the_whole_run() {
    let (server, (address, exports)) = (Server::start(&[]), collector(200));
    let (server, url) = (server.address.to_string(), format!("http://{address}"));
    let finished = load(&[&server, "-n", "500", "-c", "2", "--otlp", &url]);
    assert_eq!((finished.code, &*finished.stderr), (Some(0), ""), "{finished:?}");
    let exports: Vec<_> = exports.try_iter().collect();
    let (path, token, last) = exports.last().expect("the collector has received nothing");
    assert_eq!((&**path, &**token), ("/v1/metrics", "secret"));
    let total = |name: &str| number(&points(last, name)[0]["asInt"]);
    assert_eq!((total("annulus.load.requests_sent"), total("annulus.load.responses")), (500, 500));
    let histogram = &points(last, "annulus.load.response")[0];
    let buckets = histogram["bucketCounts"].as_array().unwrap();
    assert_eq!(number(&histogram["count"]), 500);
    assert_eq!(buckets.iter().map(number).sum::<u64>(), 500, "{histogram}");
    assert_eq!(buckets.len(), histogram["explicitBounds"].as_array().unwrap().len() + 1);
    let resource = last["resourceMetrics"][0]["resource"].to_string();
    assert!(resource.contains("annulus-load") && resource.contains("lab"), "{resource}");
    // The first export, before the run, has only zeros.
    let first = &points(&exports[0].2, "annulus.load.responses")[0];
    assert_eq!(number(&first["asInt"]), 0);
}

#[test]
fn statuses_are_an_attribute() {
    let ((address, exports), server) = (collector(200), crate::load_scenarios::shop());
    let (target, url) = (format!("http://{server}"), format!("http://{address}/otlp/metrics"));
    let requests = ["--request", "/plain", "--request", "/nowhere"];
    let args = [&target, "-n", "40", "-c", "2", "--in-order", "--otlp", &url];
    let finished = load(&[&args[..], &requests].concat());
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let (path, _, last) = exports.try_iter().last().expect("the collector has received nothing");
    assert_eq!(path, "/otlp/metrics");
    let points = points(&last, "annulus.load.status");
    let counts = points.iter().map(|point| number(&point["asInt"]));
    assert_eq!((points.len(), counts.sum::<u64>()), (2, 40), "{points:?}");
    let names = points.iter().map(|point| point["attributes"].to_string()).collect::<String>();
    for part in ["http.response.status_code", "200", "403"] {
        assert!(names.contains(part), "{part} is not in {names}");
    }
}

#[test]
fn collector_that_accepts_nothing_is_reported_before_the_run() {
    let server = Server::start(&[]).address.to_string();
    let nowhere = format!("http://{}", free_address());
    annulus(["load", &server, "--otlp", &nowhere])
        .fails_with(1, &["cannot send metrics to", &nowhere, "/v1/metrics", "refused"]);
    let (address, _exports) = collector(404);
    let refusing = format!("http://{address}");
    load(&[&server, "--otlp", &refusing]).fails_with(1, &["its answer is 404 Not Found"]);
    annulus(["load", &server, "--otlp", "localhost:4318"])
        .fails_with(2, &["is not the URL of a collector"]);
}
