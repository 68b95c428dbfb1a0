//! An HTTP/1 server with hyper on annulus.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example hyper -- 127.0.0.1:8080`, then
//! `curl 127.0.0.1:8080`. Descriptors limit the number of clients; more have to wait. A request
//! head, including the wait for it, may take 30 seconds and 400 KiB. There is no time limit for
//! clients that do not read. SIGINT and SIGTERM abort requests. The example `https` uses
//! `tower::serve_hyper`, which lets requests finish.

use annulus::net::{KeepAlive, ListenOptions};
use annulus::signal::until_terminated;
use annulus_compat::hyper::{Io, Timer};
use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use std::convert::Infallible;
use std::time::Duration;

/// An idle client that vanishes is detected after 25 seconds.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { time: Duration::from_secs(10), interval: Duration::from_secs(5), retries: 3 };

fn main() -> std::io::Result<()> {
    annulus::run(until_terminated(async {
        let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
        let listener = ListenOptions::new().keepalive(KEEP_ALIVE).bind(&*address)?;
        println!("listening on {}", listener.local_addr()?);
        let mut server = http1::Builder::new();
        server.timer(Timer::new()).pipeline_flush(true).half_close(true);
        loop {
            let (stream, _) = listener.accept().await?;
            // An error ends the connection. Most errors are caused by the peer, so they are
            // ignored.
            annulus::spawn(server.serve_connection(Io::new(stream), service_fn(hello)));
        }
    }))
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"hello\n"))))
}
