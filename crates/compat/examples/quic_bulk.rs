//! Sends bytes over one QUIC stream from a client to a server that verifies them. It runs on
//! annulus, or with `--runtime tokio` on quinn's own tokio runtime for comparison. Each end prints
//! its CPU time and how many datagrams it sent and received.
//!
//! ```sh
//! cargo build --release --manifest-path crates/compat/Cargo.toml --all-features --example quic_bulk
//! quic_bulk serve --certificate /tmp/quic.der 127.0.0.1:4433 &
//! quic_bulk send --certificate /tmp/quic.der 127.0.0.1:4433 1000000000
//! ```
//!
//! The server exits after one connection. It writes its certificate to the file, which the client
//! trusts.

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig};
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const USAGE: &str =
    "usage: quic_bulk serve|send [--runtime annulus|tokio] --certificate FILE ADDRESS [BYTES]";
/// Length of the pattern that is sent repeatedly. It is prime, so that misplaced bytes differ.
const PATTERN_BYTES: usize = 1_048_573;

fn main() -> Outcome {
    let arguments = Arguments::parse()?;
    match (arguments.serves, arguments.on_tokio) {
        (true, false) => on_annulus(serve(&arguments)),
        (true, true) => on_tokio(serve(&arguments)),
        (false, false) => on_annulus(send(&arguments)),
        (false, true) => on_tokio(send(&arguments)),
    }
}

fn on_annulus(work: impl Future<Output = Outcome>) -> Outcome {
    annulus::run(async {
        work.await?;
        let counters = annulus::counters().ok_or("no runtime on this thread")?;
        println!("system calls: {} + {} sends", counters.enters, counters.direct_sends);
        Ok(())
    })
}

fn on_tokio(work: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

struct Arguments {
    serves: bool,
    on_tokio: bool,
    certificate: String,
    address: SocketAddr,
    bytes: u64,
}

impl Arguments {
    fn parse() -> Outcome<Self> {
        let (mut on_tokio, mut certificate, mut rest) = (false, None, Vec::new());
        let mut arguments = env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--runtime" => {
                    on_tokio = match arguments.next().as_deref() {
                        Some("annulus") => false,
                        Some("tokio") => true,
                        other => return Err(format!("unknown runtime {other:?}\n{USAGE}").into()),
                    }
                }
                "--certificate" => certificate = arguments.next(),
                _ => rest.push(argument),
            }
        }
        let (serves, address, bytes) = match rest.iter().map(String::as_str).collect::<Vec<_>>()[..]
        {
            ["serve", address] => (true, address, 0),
            ["send", address, bytes] => (false, address, bytes.parse()?),
            _ => return Err(USAGE.into()),
        };
        let (address, certificate) = (address.parse()?, certificate.ok_or(USAGE)?);
        Ok(Self { serves, on_tokio, certificate, address, bytes })
    }

    fn server(&self, config: ServerConfig) -> Outcome<Endpoint> {
        let make = if self.on_tokio { Endpoint::server } else { annulus_compat::quinn::server };
        Ok(make(config, self.address)?)
    }

    fn client(&self) -> Outcome<Endpoint> {
        let address = if self.address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" }.parse()?;
        let make = if self.on_tokio { Endpoint::client } else { annulus_compat::quinn::client };
        Ok(make(address)?)
    }
}

/// Receives one stream on one connection, verifies it, and replies with its length.
async fn serve(arguments: &Arguments) -> Outcome {
    let identity = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let key = PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
    let config = ServerConfig::with_single_cert(vec![identity.cert.der().clone()], key.into())?;
    let endpoint = arguments.server(config)?;
    fs::write(&arguments.certificate, identity.cert.der())?;
    println!("listening on {}", endpoint.local_addr()?);
    let connection = endpoint.accept().await.ok_or("the endpoint is closed")?.await?;
    let before = cpu_time()?;
    let (mut answer, mut stream) = connection.accept_bi().await?;
    let (pattern, mut received) = (pattern(), 0);
    while let Some(chunk) = stream.read_chunk(usize::MAX, true).await? {
        verify(&pattern, received, &chunk.bytes)?;
        received += chunk.bytes.len();
    }
    answer.write_all(&(received as u64).to_be_bytes()).await?;
    answer.finish()?;
    connection.closed().await;
    report("received", received as u64, &connection, cpu_time()? - before);
    endpoint.wait_idle().await;
    Ok(())
}

async fn send(arguments: &Arguments) -> Outcome {
    let mut roots = RootCertStore::empty();
    roots.add(fs::read(&arguments.certificate)?.into())?;
    let mut endpoint = arguments.client()?;
    endpoint.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);
    let connection = endpoint.connect(arguments.address, "localhost")?.await?;
    let before = cpu_time()?;
    let (mut stream, mut answer) = connection.open_bi().await?;
    let (pattern, mut left) = (pattern(), arguments.bytes);
    while left > 0 {
        let part = pattern.len().min(usize::try_from(left)?);
        stream.write_all(&pattern[..part]).await?;
        left -= part as u64;
    }
    stream.finish()?;
    let received = answer.read_to_end(8).await?;
    let received =
        u64::from_be_bytes(received.try_into().map_err(|_| "the answer has the wrong length")?);
    if received != arguments.bytes {
        return Err(format!("{received} bytes of {} arrived", arguments.bytes).into());
    }
    report("sent", received, &connection, cpu_time()? - before);
    connection.close(0u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

/// Bytes that look random.
fn pattern() -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..PATTERN_BYTES).map(|_| next()).collect()
}

fn verify(pattern: &[u8], mut at: usize, mut bytes: &[u8]) -> Outcome {
    while !bytes.is_empty() {
        let expected = &pattern[at % PATTERN_BYTES..];
        let len = expected.len().min(bytes.len());
        if bytes[..len] != expected[..len] {
            return Err(format!("wrong bytes between {at} and {}", at + len).into());
        }
        (at, bytes) = (at + len, &bytes[len..]);
    }
    Ok(())
}

/// CPU time of this process's threads so far.
fn cpu_time() -> Outcome<Duration> {
    let mut nanos = 0;
    for thread in fs::read_dir("/proc/self/task")? {
        let times = fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += times.split_whitespace().next().ok_or("schedstat is empty")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

fn report(verb: &str, bytes: u64, connection: &Connection, cpu: Duration) {
    let stats = connection.stats();
    let cpu = cpu.as_secs_f64();
    println!("{verb} {bytes} bytes in {cpu:.3} s of CPU time");
    let (out, into) = (stats.udp_tx, stats.udp_rx);
    println!("datagrams: sent {} in {} sends, received {}", out.datagrams, out.ios, into.datagrams);
    println!("lost: {} packets", stats.path.lost_packets);
}
