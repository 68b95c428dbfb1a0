//! Unpatched reqwest in a tokio runtime that has annulus as its guest, against axum on annulus
//! sockets.

use crate::common;

use annulus_compat::Incoming;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path};
use axum::routing::{get, post};
use axum::{Router, http::Version};
use common::{Failure, Outcome, as_guests};
use futures_util::future::try_join_all;
use reqwest::{Client, StatusCode};
use std::time::Duration;

const LARGE_BODY_BYTES: usize = 3_000_000;

fn router() -> Router {
    Router::new()
        .route("/hello/{name}", get(async |Path(name): Path<String>| format!("hello, {name}")))
        .route(
            "/echo",
            post(async |body: Bytes| body).layer(DefaultBodyLimit::max(LARGE_BODY_BYTES)),
        )
        .route("/never", get(std::future::pending::<&'static str>))
        .route("/large", get(async || vec![b'x'; LARGE_BODY_BYTES]))
}

/// Starts a server, and returns its URL.
fn serve() -> Result<String, Failure> {
    let incoming = Incoming::bind("127.0.0.1:0")?;
    let address = incoming.local_addr()?;
    tokio::spawn(async move { axum::serve(incoming, router()).await });
    Ok(format!("http://{address}"))
}

async fn converse(client: Client, version: Version) -> Outcome {
    let server = serve()?;
    let hello = client.get(format!("{server}/hello/you")).send().await?;
    assert_eq!((hello.status(), hello.version()), (StatusCode::OK, version));
    assert_eq!(hello.text().await?, "hello, you");

    let body: Vec<u8> = (0..LARGE_BODY_BYTES).map(|index| (index * 31) as u8).collect();
    let echoed = client.post(format!("{server}/echo")).body(body.clone()).send().await?;
    assert!(echoed.bytes().await? == body);

    let absent = client.get(format!("{server}/nothing")).send().await?;
    assert_eq!(absent.status(), StatusCode::NOT_FOUND);
    assert!(absent.error_for_status().is_err());

    let large = client.get(format!("{server}/large")).send().await?;
    assert_eq!(large.bytes().await?.len(), LARGE_BODY_BYTES);

    let many = (0..200).map(|number| {
        let request = client.get(format!("{server}/hello/{number}"));
        async move {
            let text = request.send().await?.error_for_status()?.text().await?;
            assert_eq!(text, format!("hello, {number}"));
            Ok::<_, reqwest::Error>(())
        }
    });
    try_join_all(many).await?;

    let limit = Duration::from_millis(50);
    let late = client.get(format!("{server}/never")).timeout(limit).send().await.unwrap_err();
    assert!(late.is_timeout(), "{late}");
    Ok(())
}

#[test]
fn http_1() {
    as_guests(async || converse(Client::builder().no_proxy().build()?, Version::HTTP_11).await);
}

#[test]
fn http_2() {
    as_guests(async || {
        let client = Client::builder().no_proxy().http2_prior_knowledge().build()?;
        converse(client, Version::HTTP_2).await
    });
}

#[test]
fn missing_server_is_an_error() {
    as_guests(async || {
        // Bind without listening, so that nothing else gets the port.
        let bound = tokio::net::TcpSocket::new_v4()?;
        bound.bind("127.0.0.1:0".parse()?)?;
        let url = format!("http://{}/", bound.local_addr()?);
        let refused = Client::builder().no_proxy().build()?.get(url).send().await.unwrap_err();
        assert!(refused.is_connect(), "{refused}");
        Ok(())
    });
}

/// The server drops the connection in the middle of a response.
#[test]
fn truncated_response_is_an_error() {
    as_guests(async || {
        let listener = annulus::net::TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}/", listener.local_addr()?);
        let server = annulus::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            stream.recv().await?;
            stream.send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await
        });
        let answer = Client::builder().no_proxy().build()?.get(url).send().await?;
        assert!(answer.text().await.is_err());
        Ok(server.await??)
    });
}
