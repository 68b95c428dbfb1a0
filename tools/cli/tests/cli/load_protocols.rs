//! `annulus load` with other protocols: installed programs (tests are skipped without them) and a
//! server of the test.

use crate::common::{Finished, Scratch, annulus, free_address, serve};
use annulus_skip::skip;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// An installed program that runs as a server, killed when dropped.
struct SystemServer {
    child: Child,
    directory: Scratch,
}

impl SystemServer {
    /// Starts the program in its own directory and waits until it accepts connections. If it is
    /// missing, prints that the test is skipped.
    fn start(
        name: &str,
        package: &str,
        address: SocketAddr,
        args: impl Fn(&Path) -> Vec<String>,
    ) -> Option<SystemServer> {
        let directory = Scratch::new(&format!("{name}-{address}"));
        let mut command = Command::new(name);
        command
            .args(args(&directory))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Debian installs some of these in directories that are only in root's PATH.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        let Ok(child) = command.spawn() else {
            skip!("no {name}: apt-get install {package}");
            return None;
        };
        let mut program = SystemServer { child, directory };
        while TcpStream::connect(address).is_err() {
            let ended = program.child.try_wait().unwrap();
            assert!(ended.is_none(), "{name} ended with {ended:?}");
            std::thread::yield_now();
        }
        Some(program)
    }
}

impl Drop for SystemServer {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Runs a short load, and doubles its duration until a response arrives: a busy machine may need
/// longer.
fn load(args: &[&str]) -> Finished {
    let mut duration = 0.2;
    loop {
        let time = duration.to_string();
        let common = ["load", "-c", "3", "-d", &time, "--warm-up", "0.05", "--json", "-"];
        let finished = annulus(common.iter().chain(args));
        if !finished.stderr.contains("no response arrived") {
            return finished;
        }
        duration *= 2.0;
    }
}

/// Runs a load of 1,000 requests, for what must have happened by its end on any machine.
fn thousand_requests(args: &[&str]) -> Finished {
    let common = ["load", "-c", "3", "-n", "1000", "--json", "-"];
    let finished = annulus(common.iter().chain(args));
    assert_eq!((finished.code, &*finished.stderr), (Some(0), ""), "{args:?}: {finished:?}");
    finished
}

/// Runs a load that must succeed, and returns its kinds of outcomes.
#[track_caller]
fn outcomes(args: &[&str]) -> Vec<String> {
    let finished = load(args);
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{args:?}: {finished:?}");
    let outcomes = finished.json()["outcomes"].clone();
    outcomes.as_object().unwrap().keys().cloned().collect()
}

/// Starts nginx with a file of 128 bytes and a certificate for localhost. `listen` is appended to
/// the listen directive, with `$ROOT` replaced by nginx's directory.
fn nginx(address: SocketAddr, listen: &str) -> Option<SystemServer> {
    SystemServer::start("nginx", "nginx-light", address, |directory| {
        let root = directory.display();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(directory.join("certificate"), made.cert.pem()).unwrap();
        std::fs::write(directory.join("key"), made.signing_key.serialize_pem()).unwrap();
        std::fs::write(directory.join("small"), [b'x'; 128]).unwrap();
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let paths: String = paths.map(|path| format!("{path}_temp_path {root}/{path};")).concat();
        let listen = listen.replace("$ROOT", &root.to_string());
        let config = format!(
            "daemon off; master_process off; pid {root}/pid; error_log {root}/errors; events {{}}
             http {{ access_log off; {paths} server {{ listen {address}{listen}; root {root}; }} }}"
        );
        std::fs::write(directory.join("nginx.conf"), config).unwrap();
        ["-p", &format!("{root}/"), "-c", "nginx.conf", "-e", &format!("{root}/errors")]
            .map(str::to_owned)
            .to_vec()
    })
}

/// Makes nginx end an HTTP/2 connection after 50 requests and ignore later ones, which the load
/// sends again.
const NGINX_GOAWAY: &str = "keepalive_requests 50";

#[test]
fn nginx_is_measured_over_tls_and_http2() {
    let address = free_address();
    let keys = "; ssl_certificate $ROOT/certificate; ssl_certificate_key $ROOT/key";
    let Some(nginx) = nginx(address, &format!(" ssl http2{keys}; {NGINX_GOAWAY}")) else { return };
    let url = format!("https://{address}/small");
    let ca = nginx.directory.join("certificate");
    let ca = ["--tls-ca", ca.to_str().unwrap()];
    let trusted = [&[&*url], &ca[..], &["--tls-server-name", "localhost"]].concat();
    assert_eq!(outcomes(&[&trusted[..], &["--pipeline", "2"]].concat()), ["2xx"]);
    assert_eq!(outcomes(&[&trusted[..], &["--h2", "--pipeline", "32"]].concat()), ["2xx"]);
    let unchecked = [&*url, "--insecure"];
    assert_eq!(outcomes(&unchecked), ["2xx"]);
    let common = ["load", "-c", "1", "-d", "0.3", "--warm-up", "0"];
    let text = annulus(common.iter().chain(&unchecked));
    assert!(text.stdout.contains("certificates are NOT CHECKED"), "{text:?}");
    let no_name = [&[&*url], &ca[..]].concat();
    load(&no_name).fails_with(1, &["bad certificate", &address.ip().to_string()]);
    load(&[&url]).fails_with(1, &["bad certificate"]);
}

#[test]
fn nginx_is_measured_over_http2_without_tls() {
    let address = free_address();
    let Some(_nginx) = nginx(address, &format!(" http2; {NGINX_GOAWAY}")) else { return };
    let url = format!("http://{address}/small");
    assert_eq!(outcomes(&[&url, "--h2", "--pipeline", "200", "--rate", "5000"]), ["2xx"]);
    for more in [&["--rate", "1000"][..], &["--pipeline", "7"], &["--pipeline", "200"]] {
        let json = thousand_requests(&[&[&*url, "--h2"], more].concat()).json();
        assert_eq!((&json["failed"], &json["errors"]), (&0.into(), &serde_json::json!({})));
        assert!(json["reconnects"].as_u64() > Some(0), "{more:?}: no connection ended: {json}");
    }
}

#[test]
fn nginx_is_measured_over_http() {
    let address = free_address();
    let Some(_nginx) = nginx(address, "") else { return };
    let url = |path: &str| format!("http://{address}{path}");
    assert_eq!(outcomes(&[&url("/small")]), ["2xx"]);
    assert_eq!(outcomes(&[&url("/small"), "-m", "HEAD", "--pipeline", "4"]), ["2xx"]);
    // A refusal is a result, but a run with nothing else fails.
    let missing = load(&[&url("/missing{n}"), "--rate", "2000"]);
    missing.fails_with(1, &["every reply", "is a refusal (4xx ", "; HTTP/1.1 404 Not Found)"]);
    let json = missing.json();
    assert_eq!(json["errors"], serde_json::json!({}), "{missing:?}");
    assert_eq!(json["first_refusal"], "HTTP/1.1 404 Not Found", "{missing:?}");
    let mix = [&*url(""), "--request", "/small", "--request", "/missing"];
    let json = thousand_requests(&mix).json();
    assert_eq!(json["classes"], serde_json::json!(["GET /small", "GET /missing"]));
    assert_eq!(json["by_class"][1]["outcomes"]["4xx"], json["by_class"][1]["responses"]);
    let close = [&url("/small"), "-H", "Connection: close"];
    assert_eq!(outcomes(&close), ["2xx"], "closed connections were not replaced");
}

#[test]
fn redis_is_measured_as_a_script() {
    let address = free_address();
    let redis = SystemServer::start("redis-server", "redis-server", address, |directory| {
        let (ip, port, root) = (address.ip(), address.port(), directory.display());
        let line = format!("--bind {ip} --port {port} --dir {root} --save");
        line.split(' ').chain([""]).map(str::to_owned).collect()
    });
    let Some(_redis) = redis else { return };
    let (address, set) = (address.to_string(), r"SET key:{random 1 9} {text 9}\r\n");
    let script = |expected| {
        let words = [&*address, "--send", set, "--expect", expected, "--reply-until", r"\r\n"];
        words.map(str::to_owned)
    };
    assert_eq!(outcomes(&script(r"+OK\r\n").each_ref().map(|word| &**word)), ["ok"]);
    let refused = load(&script(r"+PONG\r\n").each_ref().map(|word| &**word));
    assert_eq!(refused.code, Some(1), "{refused:?}");
}

/// Starts a server that sends `reply` for each empty line and each `ping`.
fn answering(reply: &'static [u8]) -> SocketAddr {
    serve(move |mut stream| {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        // A request head is answered once, at the empty line that ends it.
        for line in lines.map_while(Result::ok) {
            if (line.is_empty() || line == "ping") && stream.write_all(reply).is_err() {
                return;
            }
        }
    })
}

#[test]
fn server_of_another_protocol_is_reported() {
    let mail = format!("http://{}/", answering(b"220 relay.example ESMTP\r\n"));
    load(&[&mail]).fails_with(1, &["malformed reply", "connection "]);
    let plain = format!("https://{}/", answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    let tls = load(&[&plain, "--insecure"]);
    assert_eq!(tls.code, Some(1), "{tls:?}");
    let script = answering(b"pong\n").to_string();
    assert_eq!(outcomes(&[&script, "--send", r"ping\n", "--expect", r"pong\n"]), ["ok"]);
}
