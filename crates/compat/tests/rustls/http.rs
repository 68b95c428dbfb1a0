//! hyper over TLS, with the protocol negotiated by ALPN.

use crate::rustls::certificates::{NAME, authority};
use crate::rustls::worlds::{Failure, Outcome, Session, World, everywhere};
use annulus::net::TcpStream;
use annulus_compat::hyper::{Executor, Io, Timer};
use annulus_compat::rustls::{TlsAcceptor, TlsConnector};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use std::convert::Infallible;
use std::net::SocketAddr;

async fn echo(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let version = request.version();
    let body = request.into_body().collect().await.expect("the body failed").to_bytes();
    let mut response = Response::new(Full::new(body));
    *response.version_mut() = version;
    Ok(response)
}

async fn serve(stream: Session) -> hyper::Result<()> {
    if stream.alpn_protocol() == Some(b"h2") {
        let mut server = hyper::server::conn::http2::Builder::new(Executor);
        server.timer(Timer::new()).serve_connection(Io::new(stream), service_fn(echo)).await
    } else {
        let mut server = hyper::server::conn::http1::Builder::new();
        server.timer(Timer::new()).serve_connection(Io::new(stream), service_fn(echo)).await
    }
}

fn listen(world: World) -> std::io::Result<SocketAddr> {
    let mut config = authority().server();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::new(config);
    let listener = world.listen()?;
    let address = listener.local_addr()?;
    annulus::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            annulus::spawn(async move {
                let stream = acceptor.accept(stream).await?;
                serve(stream).await.map_err(std::io::Error::other)
            });
        }
    });
    Ok(address)
}

/// Connects with these ALPN protocols, and returns the session and whether it uses HTTP/2.
async fn connect(address: SocketAddr, alpn: &[&str]) -> Result<(Session, bool), Failure> {
    let mut config = authority().client();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    let session = TlsConnector::new(config).connect(NAME, stream).await?;
    let is_http_2 = session.alpn_protocol() == Some(b"h2");
    Ok((session, is_http_2))
}

/// Posts bodies of up to 2 MB, and compares the echoes.
async fn converse(address: SocketAddr, alpn: &[&str], version: Version) -> Outcome {
    let (session, is_http_2) = connect(address, alpn).await?;
    assert_eq!(is_http_2, version == Version::HTTP_2);
    let stream = Io::new(session);
    let (mut one, mut two) = (None, None);
    if is_http_2 {
        let (client, connection) = hyper::client::conn::http2::handshake(Executor, stream).await?;
        annulus::spawn(connection);
        two = Some(client);
    } else {
        let (client, connection) = hyper::client::conn::http1::handshake(stream).await?;
        annulus::spawn(connection);
        one = Some(client);
    }
    for length in [0, 1, 10_000, 100_000, 2_000_000] {
        let body = Bytes::from_iter((0..length).map(|at| (at % 251) as u8));
        let request = Request::post(format!("https://{NAME}/")).header("host", NAME);
        let request = request.body(Full::new(body.clone()))?;
        let response = match (&mut one, &mut two) {
            (Some(client), _) => client.send_request(request).await?,
            (_, Some(client)) => client.send_request(request).await?,
            _ => unreachable!("one of the clients exists"),
        };
        assert_eq!(response.version(), version);
        assert!(response.into_body().collect().await?.to_bytes() == body, "{length} bytes");
    }
    Ok(())
}

#[test]
fn http_version_follows_alpn() {
    everywhere(async |world| {
        let address = listen(world)?;
        converse(address, &["h2", "http/1.1"], Version::HTTP_2).await?;
        converse(address, &["http/1.1"], Version::HTTP_11).await?;
        converse(address, &[], Version::HTTP_11).await
    });
}
