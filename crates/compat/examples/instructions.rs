//! A server and its clients in one runtime. `cargo xtask instructions --beside-tokio` uses it to
//! count the instructions per request: for annulus on the simulated kernel, and for tokio on Linux.
//! `cargo run --release --manifest-path crates/compat/Cargo.toml --example instructions --
//! tokio-hyper 50 16 10000`
//!
//! The arguments are: `hyper`, `hyper-timers` or `copy` (an echo by reads and writes), with the
//! prefix `tokio-` for tokio; the number of connections; the number of requests that each sends at
//! once; the total number of requests.

use annulus::sim::{Sim, run_on};
use annulus::{MemoryLimit, Runtime};
use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::process::ExitCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const USAGE: &str =
    "usage: instructions [tokio-]hyper|hyper-timers|copy CONNECTIONS REQUESTS_AT_ONCE REQUESTS";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n!";
/// The last byte of each response, which occurs nowhere else in it.
const END_BYTE: u8 = b'!';

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Hyper,
    HyperTimers,
    Copy,
}

#[derive(Clone, Copy)]
struct Plan {
    way: Way,
    connections: usize,
    at_once: usize,
    requests: usize,
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let numbers: Result<Vec<usize>, _> = words.iter().skip(1).map(|text| text.parse()).collect();
    let name = words.first().map_or("", String::as_str);
    let (on_tokio, way) = match name.strip_prefix("tokio-") {
        Some(way) => (true, way),
        None => (false, name),
    };
    let way = match way {
        "hyper" => Way::Hyper,
        "hyper-timers" => Way::HyperTimers,
        "copy" => Way::Copy,
        _ => return usage(),
    };
    let Ok(&[connections, at_once, requests]) = numbers.as_deref() else { return usage() };
    if connections == 0 || at_once == 0 {
        return usage();
    }
    let plan = Plan { way, connections, at_once, requests };
    let result = if on_tokio { plan.on_tokio() } else { plan.on_annulus() };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

impl Plan {
    fn on_annulus(self) -> io::Result<()> {
        // Outside simulations, a runtime has a memory limit by default, so this runtime gets one,
        // too. The limit is never reached.
        let builder = Runtime::builder().memory_limit(Some(MemoryLimit::new(1 << 30)));
        run_on(&Sim::builder(1).build(), builder, async move {
            let listener = annulus::net::TcpListener::bind("127.0.0.1:7000")?;
            let mut clients = Vec::new();
            for _ in 0..self.connections {
                let client = annulus::net::TcpStream::connect("127.0.0.1:7000").await?;
                let (server, _) = listener.accept().await?;
                drop(annulus::spawn(async move {
                    let mut hyper = self.server();
                    match self.way {
                        Way::Copy => return copy(server).await,
                        Way::Hyper => &mut hyper,
                        Way::HyperTimers => hyper.timer(annulus_compat::hyper::Timer::new()),
                    };
                    let stream = annulus_compat::hyper::Io::new(server);
                    _ = hyper.serve_connection(stream, service_fn(hello)).await;
                    Ok(())
                }));
                clients.push(annulus::spawn(self.ask(client)));
            }
            for client in clients {
                client.await.expect("no panic")?;
            }
            Ok(())
        })
    }

    fn on_tokio(self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        tokio::task::LocalSet::new().block_on(&runtime, async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            let mut clients = Vec::new();
            for _ in 0..self.connections {
                let client = tokio::net::TcpStream::connect(listener.local_addr()?).await?;
                let (server, _) = listener.accept().await?;
                server.set_nodelay(true)?;
                tokio::task::spawn_local(async move {
                    let mut hyper = self.server();
                    match self.way {
                        Way::Copy => return copy(server).await,
                        Way::Hyper => &mut hyper,
                        Way::HyperTimers => hyper.timer(TokioTimer::new()),
                    };
                    _ = hyper.serve_connection(TokioIo::new(server), service_fn(hello)).await;
                    Ok(())
                });
                clients.push(tokio::task::spawn_local(self.ask(client)));
            }
            for client in clients {
                client.await.expect("no panic")?;
            }
            Ok(())
        })
    }

    fn server(self) -> http1::Builder {
        let mut server = http1::Builder::new();
        server.pipeline_flush(true);
        server
    }

    /// Sends this connection's share of the requests, and reads the responses.
    async fn ask(self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let request = if self.way == Way::Copy { REQUEST } else { &REQUEST[..REQUEST.len() - 1] };
        let requests = request.repeat(self.at_once);
        let mut buffer = [0; 16 * 1024];
        for _ in 0..self.requests / self.connections / self.at_once {
            stream.write_all(&requests).await?;
            let mut left = self.at_once;
            while left > 0 {
                let count = stream.read(&mut buffer).await?;
                if count == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                left -= buffer[..count].iter().filter(|byte| **byte == END_BYTE).count();
            }
        }
        Ok(())
    }
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"hello!"))))
}

async fn copy(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count]).await?;
    }
}
