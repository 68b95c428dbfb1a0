//! A reverse proxy. It forwards HTTP/1 and HTTP/2 requests to one upstream over pooled HTTP/1
//! connections, and also forwards upgraded connections (WebSockets). It serves 10,000 connections
//! at once; more wait in the backlog. The timeouts of `Limits` and `tower::serve` apply. Bodies are
//! streamed, so a request uses about 512 KiB at most. On SIGINT or SIGTERM it exits once its
//! requests have been answered, within 30 seconds.
//!
//! Trailers are forwarded if the message declares them and the client accepts them (`TE`).
//! Informational responses are forwarded to HTTP/1.1 clients. A client that expects `100 Continue`
//! gets it once the upstream is ready for the body. A request that loops back to the proxy is
//! rejected with 508.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example reverse_proxy -- 127.0.0.1:8000
//! http://127.0.0.1:8080`

mod body;
mod early;
mod forward;
mod proxy;
mod tunnel;

use annulus::net::ListenOptions;
use annulus::signal::{Signal, signals};
use annulus_compat::tower::serve_with;
use early::Clients;
use proxy::{KEEP_ALIVE, MAX_HEADERS, Proxy};
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, upstream] = arguments.as_slice() else {
        return Err("usage: reverse_proxy ADDRESS http://HOST:PORT".into());
    };
    annulus::run(async {
        let proxy = Rc::new(Proxy::new(upstream.parse()?)?);
        let listener = ListenOptions::new().keepalive(KEEP_ALIVE).bind(listen)?;
        println!("listening on {}", listener.local_addr()?);
        let mut stop = signals(&[Signal::SIGINT, Signal::SIGTERM])?;
        serve_with(Clients(listener), move |peer| Proxy::service(&proxy, peer))
            .configure_http1(|http| http.max_headers(MAX_HEADERS))
            .max_connections(10_000)
            .on_error(|error| eprintln!("{error}"))
            .with_graceful_shutdown(async move { _ = stop.recv().await })
            .drain_timeout(Duration::from_secs(30))
            .await?;
        Ok(())
    })
}
