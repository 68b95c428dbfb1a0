//! The router, and the arguments `PROGRAM PORT http1|http2 [MODE]`. Both programs speak HTTP/1 and
//! HTTP/2 on one port.

use axum::{Router, routing::get};
use std::net::{Ipv4Addr, SocketAddr};

pub use listen::{Address, BACKLOG, announce, must};

static LARGE: [u8; 16 * 1024] = [b'x'; 16 * 1024];

pub fn router() -> Router {
    Router::new().route("/", get(async || "hello\n")).route("/16k", get(async || &LARGE[..]))
}

/// Parses the arguments: the address to serve, and the mode.
pub fn arguments(modes: &[&str]) -> (SocketAddr, Option<String>) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match &*arguments {
        [port, _service] => port.parse().ok().map(|port| (port, None)),
        [port, _service, mode] if modes.contains(&&**mode) => {
            port.parse().ok().map(|port| (port, Some(mode.clone())))
        }
        _ => None,
    };
    let Some((port, mode)) = parsed else {
        eprintln!("usage: PROGRAM PORT http1|http2 [{}]", modes.join("|"));
        std::process::exit(2);
    };
    (SocketAddr::from((Ipv4Addr::LOCALHOST, port)), mode)
}
