//! The HTTPS examples, run as processes, with independent clients: curl and `openssl s_client`.

use crate::programs;
use annulus_skip::skip;

use programs::Program;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

fn examples() -> &'static PathBuf {
    programs::examples()
}

/// Returns the paths of a self-signed certificate for localhost and its key.
fn certificate() -> &'static (String, String) {
    static CERTIFICATE_PATHS: OnceLock<(String, String)> = OnceLock::new();
    CERTIFICATE_PATHS.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let write = |name: &str, text: String| {
            let path = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
            std::fs::write(&path, text).unwrap();
            path
        };
        let key = write("https_key.pem", made.signing_key.serialize_pem());
        (write("https_certificate.pem", made.cert.pem()), key)
    })
}

/// A server program that is killed when this is dropped.
struct Server {
    program: Program,
    port: u16,
}

impl Server {
    fn start(name: &str, driver: &str, options: &[&str]) -> Self {
        let (certificate, key) = certificate();
        let mut program = Command::new(examples().join(name));
        program.args(["127.0.0.1:0", "--cert", certificate, "--key", key]).args(options);
        // Hides the errors caused by the deliberately hostile clients.
        program.env("ANNULUS_DRIVER", driver).stderr(Stdio::null());
        let mut server = Self { program: Program::start(&mut program), port: 0 };
        server.port = server.listens("https");
        server
    }

    /// Reads the port from the next line, which must have this scheme.
    fn listens(&mut self, scheme: &str) -> u16 {
        self.program.listens(&format!("{scheme}://127.0.0.1:")).parse().unwrap()
    }

    /// Sends a request with curl, which trusts the certificate. Returns the body and the HTTP
    /// version.
    fn ask(&self, path: &str, version: &str) -> String {
        let url = format!("https://localhost:{}{path}", self.port);
        let asked = curl(&["--cacert", &certificate().0, version, "-w", "%{http_version}", &url]);
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        String::from_utf8(asked.stdout).unwrap()
    }

    /// Ends the program as ctrl-c does.
    fn interrupt(self) {
        self.program.ends_by("INT");
        assert!(
            TcpStream::connect(("127.0.0.1", self.port)).is_err(),
            "the listener is still open"
        );
    }
}

fn curl(arguments: &[&str]) -> Output {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--noproxy", "*", "--max-time", "30"]).args(arguments);
    curl.output().expect("cannot run curl")
}

/// Returns true if a client is installed. Otherwise prints, past the output capture, which test is
/// skipped.
fn has(client: &str, version: &str) -> bool {
    let found = Command::new(client).arg(version).output().is_ok();
    if !found {
        skip!("HTTPS with {client}: apt-get install {client}");
    }
    found
}

/// Checks the responses that every program must send.
fn check(name: &str, driver: &str, path: &str, [two, one]: [&str; 2]) {
    if !has("curl", "--version") {
        return;
    }
    let server = Server::start(name, driver, &[]);
    assert_eq!(server.ask(path, "--http2"), format!("{two}\n2"));
    assert_eq!(server.ask(path, "--http1.1"), format!("{one}\n1.1"));

    // A client that does not trust the certificate aborts the handshake; the server keeps running.
    let url = format!("https://localhost:{}{path}", server.port);
    assert_eq!(
        curl(&[&url]).status.code(),
        Some(60),
        "not curl's exit code for an untrusted certificate"
    );
    // A client without TLS also fails, and a silent client does not delay others.
    let plain = format!("http://127.0.0.1:{}{path}", server.port);
    assert!(!curl(&[&plain]).status.success());
    let silent = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    assert_eq!(server.ask(path, "--http2"), format!("{two}\n2"));
    drop(silent);
    if has("openssl", "version") {
        by_openssl(&server);
    }
    server.interrupt();
}

/// Tests handshakes with a second implementation of TLS.
fn by_openssl(server: &Server) {
    let target = format!("127.0.0.1:{}", server.port);
    for (version, alpn, says) in
        [("-tls1_3", "h2", "ALPN protocol: h2"), ("-tls1_2", "http/1.1", "ALPN protocol: http/1.1")]
    {
        let mut client = Command::new("openssl");
        client.args(["s_client", "-connect", &target, "-servername", "localhost", version]);
        client.args(["-alpn", alpn, "-verify_return_error", "-CAfile", &certificate().0]);
        let ran = client.stdin(Stdio::null()).output().expect("cannot run openssl");
        let text = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && text.contains(says), "{text}");
        assert!(text.contains("Verify return code: 0 (ok)"), "{text}");
    }
}

const HELLO_BODIES: [&str; 2] = ["hello over HTTP/2.0", "hello over HTTP/1.1"];

#[test]
fn hyper_example_serves_both_versions() {
    check("https", "auto", "/", HELLO_BODIES);
    check("https", "epoll", "/", HELLO_BODIES);
}

#[test]
fn axum_example_serves_both_versions() {
    check("axum_tls", "auto", "/hello/you", ["hello, you"; 2]);
    check("axum_tls", "epoll", "/hello/you", ["hello, you"; 2]);
}

#[test]
fn both_versions_without_tls() {
    if !has("curl", "--version") {
        return;
    }
    for (name, driver) in [("https", "auto"), ("https", "epoll")] {
        let mut server = Server::start(name, driver, &["--plain", "127.0.0.1:0"]);
        let url = format!("http://127.0.0.1:{}/", server.listens("http"));
        for (option, body) in ["--http2-prior-knowledge", "--http1.1"].into_iter().zip(HELLO_BODIES)
        {
            let asked = curl(&[option, &url]);
            assert_eq!(String::from_utf8_lossy(&asked.stdout).trim_end(), body);
        }
        server.interrupt();
    }
}

#[test]
fn missing_and_invalid_files_are_reported() {
    let (certificate, key) = certificate();
    for name in ["https", "axum_tls"] {
        let error = |files: [&str; 4]| {
            let mut program = Command::new(examples().join(name));
            let ran = program.arg("127.0.0.1:0").args(files).output().unwrap();
            assert_eq!(ran.status.code(), Some(1));
            String::from_utf8(ran.stderr).unwrap()
        };
        let text = error(["--cert", "/no/such.pem", "--key", key]);
        assert!(text.contains("/no/such.pem: No such file"), "{text}");
        let text = error(["--cert", key, "--key", key]);
        assert!(text.contains("no CERTIFICATE section"), "{text}");
        let text = error(["--cert", certificate, "--key", certificate]);
        assert!(text.contains("TLS key"), "{text}");
    }
}

#[test]
fn invalid_arguments_are_reported() {
    for name in ["https", "axum_tls"] {
        for (arguments, says) in [
            ("--cert a.pem", "--cert without --key"),
            ("--key a.pem 127.0.0.1:0", "--key without --cert"),
            ("--cert --key a.pem", "--cert: the value is missing"),
            (
                "127.0.0.1:0 --cert a --key b 127.0.0.2:0",
                "127.0.0.2:0: the address was already given",
            ),
            ("127.0.0.1:0 --certificate a", "--certificate: unknown option"),
            ("--cert a --cert b --key c", "--cert: given twice"),
        ] {
            let mut program = Command::new(examples().join(name));
            let ran = program.args(arguments.split(' ')).output().unwrap();
            let text = String::from_utf8(ran.stderr).unwrap();
            assert_eq!(ran.status.code(), Some(2), "{arguments}: {text}");
            assert!(text.contains(says), "{arguments}: {text}");
        }
    }
}

#[test]
fn address_may_follow_the_options() {
    let mut child = Command::new(examples().join("https"))
        .args(["--plain", "127.0.0.1:0", "127.0.0.2:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().expect("the output is not piped")).lines();
    let mut said = [lines.next(), lines.next()]
        .map(|line| line.expect("the address was not printed").unwrap());
    _ = child.kill();
    _ = child.wait();
    said.sort();
    assert!(said[0].starts_with("listening on http://127.0.0.1:"), "{said:?}");
    assert!(said[1].starts_with("listening on https://127.0.0.2:"), "{said:?}");
}
