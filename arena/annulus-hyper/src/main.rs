//! HttpArena's profiles of HTTP/1.1 on hyper and annulus: one runtime per CPU.
//!
//! `cargo run --release -- 127.0.0.1:8080`, then `curl '127.0.0.1:8080/baseline11?a=13&b=42'`.
//! Limits are those of hyper; clients may take any time.

use annulus::net::ListenOptions;
use annulus::shards::{ShardedListener, Shards, Spread};
use annulus::signal::until_terminated;
use annulus_compat::hyper::Io;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue, SERVER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use std::io;

/// Connections that may wait to be accepted, for clients that connect all at once.
const BACKLOG: u32 = 65_535;
/// Maximum length of a body that is a number.
const MAX_NUMBER_BYTES: usize = 64;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("0.0.0.0:8080".into());
    let shards = annulus::shards::cpus()?.len();
    let options = ListenOptions::new().backlog(BACKLOG);
    let listener = ShardedListener::bind(address, &options, shards, Spread::Hash)?;
    eprintln!("listening on {}", listener.local_addr());
    // Not pinned: where clients share the CPUs, a pinned shard would wait for them.
    Shards::new(shards).run(async |shard| {
        let mut listener = listener.open(&shard)?;
        let mut server = http1::Builder::new();
        server.pipeline_flush(true);
        until_terminated(async {
            while let Some((stream, _peer)) = listener.accept().await? {
                // An error ends the connection. The peer causes most of them.
                annulus::spawn(server.serve_connection(Io::new(stream), service_fn(answer)));
            }
            Ok(())
        })
        .await
    })?;
    Ok(())
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let text = match (request.method(), request.uri().path()) {
        (&Method::GET, "/pipeline") => Ok(Bytes::from_static(b"ok")),
        (&Method::GET, "/baseline11") => Ok(sum(&request).to_string().into()),
        (&Method::POST, "/baseline11") => {
            let sum = sum(&request);
            number(request).await.map(|number| sum.wrapping_add(number).to_string().into())
        }
        (&Method::POST, "/upload") => Ok(length(request.into_body()).await?.to_string().into()),
        (_, "/pipeline" | "/baseline11" | "/upload") => Err(StatusCode::METHOD_NOT_ALLOWED),
        _ => Err(StatusCode::NOT_FOUND),
    };
    let mut response = Response::default();
    response.headers_mut().insert(SERVER, HeaderValue::from_static("annulus"));
    match text {
        Ok(text) => {
            let kind = HeaderValue::from_static("text/plain");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            *response.body_mut() = Full::new(text);
        }
        Err(status) => *response.status_mut() = status,
    }
    Ok(response)
}

/// Adds the integers in a query such as `a=13&b=42`.
fn sum(request: &Request<Incoming>) -> i64 {
    let pairs = request.uri().query().unwrap_or_default().split('&');
    let values = pairs.filter_map(|pair| pair.split_once('=')?.1.parse().ok());
    values.fold(0, i64::wrapping_add)
}

/// Parses a body that is a number.
async fn number(request: Request<Incoming>) -> Result<i64, StatusCode> {
    let body = Limited::new(request.into_body(), MAX_NUMBER_BYTES).collect().await;
    let bytes = body.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?.to_bytes();
    let number = str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse().ok());
    number.ok_or(StatusCode::BAD_REQUEST)
}

/// Counts the bytes of a body, which is not kept in memory.
async fn length(mut body: Incoming) -> Result<usize, hyper::Error> {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame?.data_ref().map_or(0, Bytes::len);
    }
    Ok(length)
}
