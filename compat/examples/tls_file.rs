//! A file over one session of TLS, as often as it is asked for; encrypted by rustls or by the kernel, on annulus or, with `--runtime tokio`, by
//! tokio-rustls on tokio, to compare. The server prints its CPU time from the end of the handshake on.
//!
//! ```sh
//! cargo build --release --manifest-path compat/Cargo.toml --features rustls --example tls_file
//! tls_file serve --kernel required --certificate /tmp/tls.der 127.0.0.1:8443 page.html &
//! tls_file fetch --certificate /tmp/tls.der 127.0.0.1:8443 page.html 1000
//! ```
//!
//! The server ends after one connection. It writes its certificate to the file, which the client trusts.

use annulus::fs::File;
use annulus::io::{AsyncRecv, AsyncSend, copy_range};
use annulus::net::{TcpListener, TcpStream};
use annulus_compat::rustls::{KernelTls, TlsAcceptor, TlsConnector};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;
use std::{env, error::Error, fs};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: tls_file serve [--runtime annulus|tokio] [--kernel off|if-available|required] --certificate FILE ADDRESS PAGE\n       \
                     tls_file fetch --certificate FILE ADDRESS PAGE COUNT";
/// Bytes that the server on tokio reads at a time.
const PIECE: usize = 64 * 1024;

fn main() -> Outcome {
    let arguments = Arguments::parse()?;
    match (arguments.count, arguments.on_tokio) {
        (Some(count), _) => annulus::run(fetch(&arguments, count)),
        (None, false) => annulus::run(serve(&arguments)),
        (None, true) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(serve_on_tokio(&arguments))
        }
    }
}

struct Arguments {
    on_tokio: bool,
    kernel: KernelTls,
    certificate: String,
    address: String,
    page: String,
    /// How often to fetch it; `None` to serve it.
    count: Option<u32>,
}

impl Arguments {
    fn parse() -> Outcome<Self> {
        let (mut on_tokio, mut kernel, mut certificate) = (false, KernelTls::Off, None);
        let mut rest = Vec::new();
        let mut arguments = env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(USAGE);
            match argument.as_str() {
                "--runtime" => match value()?.as_str() {
                    "annulus" => on_tokio = false,
                    "tokio" => on_tokio = true,
                    other => return Err(format!("no runtime {other}\n{USAGE}").into()),
                },
                "--kernel" => match value()?.as_str() {
                    "off" => kernel = KernelTls::Off,
                    "if-available" => kernel = KernelTls::IfAvailable,
                    "required" => kernel = KernelTls::Required,
                    other => return Err(format!("no choice {other}\n{USAGE}").into()),
                },
                "--certificate" => certificate = Some(value()?),
                _ => rest.push(argument),
            }
        }
        let (address, page, count) = match &rest.iter().map(String::as_str).collect::<Vec<_>>()[..]
        {
            ["serve", address, page] => (*address, *page, None),
            ["fetch", address, page, count] => (*address, *page, Some(count.parse()?)),
            _ => return Err(USAGE.into()),
        };
        let (address, page) = (address.to_owned(), page.to_owned());
        Ok(Self { on_tokio, kernel, certificate: certificate.ok_or(USAGE)?, address, page, count })
    }

    /// Settings with a certificate that is made for this run, and written for the client.
    fn identity(&self) -> Outcome<ServerConfig> {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
        fs::write(&self.certificate, made.cert.der())?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder().with_no_client_auth();
        Ok(config.with_single_cert(vec![made.cert.der().clone()], key.into())?)
    }
}

/// Answers each byte with the page.
async fn serve(arguments: &Arguments) -> Outcome {
    let acceptor = TlsAcceptor::new(arguments.identity()?).kernel(arguments.kernel);
    let listener = TcpListener::bind(arguments.address.as_str())?;
    println!("listening on {}", listener.local_addr()?);
    let mut session = acceptor.accept(listener.accept().await?.0).await?;
    println!("{} encrypts", if session.is_kernel() { "the kernel" } else { "rustls" });
    let page = File::open(&arguments.page).await?;
    let before = cpu_time()?;
    let mut sent = 0;
    while let Some(asked) = session.recv().await? {
        for _ in asked.iter() {
            sent += copy_range(&page, .., &mut session).await?;
        }
    }
    session.shutdown().await?;
    report(sent, cpu_time()? - before);
    Ok(())
}

async fn serve_on_tokio(arguments: &Arguments) -> Outcome {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(arguments.identity()?));
    let listener = tokio::net::TcpListener::bind(&arguments.address).await?;
    println!("listening on {}", listener.local_addr()?);
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    let mut session = acceptor.accept(stream).await?;
    // Read on the loop, in memory as it is: tokio's own files would be read by another thread.
    let (page, mut piece) = (fs::File::open(&arguments.page)?, vec![0; PIECE]);
    let before = cpu_time()?;
    let (mut sent, mut asked) = (0, [0; 64]);
    loop {
        let count = session.read(&mut asked).await?;
        if count == 0 {
            break;
        }
        for _ in 0..count {
            let mut at = 0;
            while let len @ 1.. = page.read_at(&mut piece, at)? {
                session.write_all(&piece[..len]).await?;
                at += len as u64;
            }
            session.flush().await?;
            sent += at;
        }
    }
    session.shutdown().await?;
    report(sent, cpu_time()? - before);
    Ok(())
}

/// Asks for the page again and again, and compares it.
async fn fetch(arguments: &Arguments, count: u32) -> Outcome {
    let page = fs::read(&arguments.page)?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(fs::read(&arguments.certificate)?))?;
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(arguments.address.as_str()).await?;
    let mut session = TlsConnector::new(config).connect("localhost", stream).await?;
    for _ in 0..count {
        session.send("?").await?;
        let mut rest = &page[..];
        while !rest.is_empty() {
            let shown = session.recv().await?.ok_or("the session has ended early")?;
            let (expected, behind) = rest.split_at_checked(shown.len()).ok_or("too many bytes")?;
            if *shown != *expected {
                return Err("other bytes than those of the page".into());
            }
            rest = behind;
        }
    }
    session.shutdown().await?;
    if session.recv().await?.is_some() {
        return Err("more than was asked for".into());
    }
    Ok(())
}

fn report(bytes: u64, cpu: Duration) {
    println!("sent {bytes} bytes in {:.3} s of CPU time", cpu.as_secs_f64());
}

/// CPU time of this process's threads so far.
fn cpu_time() -> Outcome<Duration> {
    let mut nanos = 0;
    for thread in fs::read_dir("/proc/self/task")? {
        let times = fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += times.split_whitespace().next().ok_or("no times")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}
