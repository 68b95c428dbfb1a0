//! An HTTP/3 server: an axum router behind `h3`, over quinn on annulus. On SIGINT or SIGTERM it
//! rejects new requests, and exits within ten seconds, once the requests in progress have been
//! answered and the clients have closed their connections.
//!
//! `cargo run --manifest-path crates/compat/Cargo.toml --example http3 -- 127.0.0.1:4433
//! /tmp/http3.der`. It writes its self-signed certificate to the file. Its limits are quinn's
//! defaults: 30 s of idle time, 100 concurrent requests, and a window of 1.25 MB per request. The
//! number of clients is not limited.

use annulus::signal::{Signal, signals};
use annulus::task::JoinSet;
use annulus::time::timeout;
use annulus_compat::quinn::server;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::Response;
use axum::routing::{get, post};
use bytes::Buf;
use futures_util::stream::try_unfold;
use h3::server::{Connection, RequestResolver};
use http_body_util::BodyExt;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::rustls::{self, pki_types::PrivatePkcs8KeyDer};
use quinn::{Incoming, ServerConfig};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Time at shutdown for the remaining requests, and for clients to close their connections.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(certificate)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: http3 ADDRESS CERTIFICATE");
        std::process::exit(2);
    };
    annulus::run(serve(&address, &certificate))
}

fn router() -> Router {
    Router::new()
        .route("/hello/{name}", get(async |Path(name): Path<String>| format!("hello, {name}\n")))
        .route("/echo", post(async |body: Body| body))
}

async fn serve(address: &str, certificate: &str) -> Outcome {
    let identity = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    let key = PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
    let mut tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![identity.cert.der().clone()], key.into())?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let endpoint = server(config, address.parse()?)?;
    let mut signals = signals(&[Signal::SIGINT, Signal::SIGTERM])?;
    std::fs::write(certificate, identity.cert.der())?;
    println!("listening on {}", endpoint.local_addr()?);

    let (stop, router, mut connections) = (CancellationToken::new(), router(), JoinSet::new());
    let accepting = async {
        while let Some(incoming) = endpoint.accept().await {
            let served = serve_connection(incoming, router.clone(), stop.clone());
            connections.spawn(async { served.await.unwrap_or_else(|error| eprintln!("{error}")) });
            while connections.try_join_next().is_some() {}
        }
    };
    tokio::select! {
        () = accepting => {}
        signal = signals.recv() => { signal?; }
    }
    endpoint.set_server_config(None);
    stop.cancel();
    _ = timeout(SHUTDOWN_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
    endpoint.close(0_u32.into(), b"the server is shutting down");
    endpoint.wait_idle().await;
    Ok(())
}

/// Serves until the client closes the connection. After `stop`, new requests are rejected, and the
/// client may retry them elsewhere.
async fn serve_connection(incoming: Incoming, router: Router, stop: CancellationToken) -> Outcome {
    let mut connection = Connection::new(h3_quinn::Connection::new(incoming.await?)).await?;
    let mut is_stopping = false;
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            () = stop.cancelled(), if !is_stopping => {
                is_stopping = true;
                connection.shutdown(0).await?;
                continue;
            }
        };
        match accepted {
            Ok(Some(request)) => _ = annulus::spawn(answer(request, router.clone())),
            Ok(None) => return Ok(()),
            Err(error) if error.is_h3_no_error() => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Streams the bodies of the request and of the response.
async fn answer(request: RequestResolver<h3_quinn::Connection, Bytes>, router: Router) -> Outcome {
    let (request, stream) = request.resolve_request().await?;
    let (mut send, receive) = stream.split();
    let body = Body::from_stream(try_unfold(receive, |mut receive| async {
        let data = receive.recv_data().await?;
        let bytes = data.map(|mut data| data.copy_to_bytes(data.remaining()));
        Ok::<_, h3::error::StreamError>(bytes.map(|bytes| (bytes, receive)))
    }));
    let (head, mut body) = router.oneshot(request.map(|()| body)).await?.into_parts();
    send.send_response(Response::from_parts(head, ())).await?;
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => send.send_data(data).await?,
            Err(frame) => send.send_trailers(frame.into_trailers().unwrap_or_default()).await?,
        }
    }
    Ok(send.finish().await?)
}
