//! The HTTP/3 example, run as a process, with an `h3` client on quinn's own tokio runtime.

use crate::quinn::common::{Outcome, pattern};
use crate::quinn::programs::{Program, examples};
use axum::body::Bytes;
use axum::http::Request;
use bytes::Buf;
use futures_util::future::{poll_fn, try_join_all};
use h3::client::RequestStream;
use h3_quinn::{BidiStream, OpenStreams};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::rustls::{self, RootCertStore};
use quinn::{ClientConfig, Endpoint};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

type Requests = h3::client::SendRequest<OpenStreams, Bytes>;
type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

fn client(certificate: &str) -> Outcome<Endpoint> {
    let mut roots = RootCertStore::empty();
    roots.add(std::fs::read(certificate)?.into())?;
    let tls = rustls::ClientConfig::builder().with_root_certificates(roots);
    let mut tls = tls.with_no_client_auth();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let mut client = Endpoint::client("127.0.0.1:0".parse()?)?;
    client.set_default_client_config(ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?)));
    Ok(client)
}

async fn request(requests: &Requests, method: &str, path: &str) -> Outcome<Stream> {
    let request = Request::builder().method(method).uri(format!("https://localhost{path}"));
    Ok(requests.clone().send_request(request.body(())?).await?)
}

async fn body(stream: &mut Stream) -> Outcome<Vec<u8>> {
    assert_eq!(stream.recv_response().await?.status(), 200);
    let mut body = Vec::new();
    while let Some(mut data) = stream.recv_data().await? {
        body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    Ok(body)
}

async fn get(requests: &Requests, number: usize) -> Outcome {
    let mut stream = request(requests, "GET", &format!("/hello/{number}")).await?;
    stream.finish().await?;
    assert_eq!(body(&mut stream).await?, format!("hello, {number}\n").as_bytes());
    Ok(())
}

async fn echo(requests: &Requests, size: usize) -> Outcome {
    let (mut send, mut receive) = request(requests, "POST", "/echo").await?.split();
    let bytes = Bytes::from(pattern(size, size));
    let sending = async {
        send.send_data(bytes.clone()).await?;
        Outcome::Ok(send.finish().await?)
    };
    let receiving = async {
        receive.recv_response().await?;
        let mut back = Vec::new();
        while let Some(mut data) = receive.recv_data().await? {
            back.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        Outcome::Ok(back)
    };
    let ((), back) = tokio::try_join!(sending, receiving)?;
    assert!(back == bytes, "the echo differs");
    Ok(())
}

/// Sends concurrent requests, and one whose body has begun when the server gets SIGTERM.
async fn converse(program: &Program, address: &str, certificate: &str) -> Outcome {
    let client = client(certificate)?;
    let connection = client.connect(address.parse()?, "localhost")?.await?;
    let connection = h3_quinn::Connection::new(connection);
    let (mut driver, requests) = h3::client::new(connection).await?;
    let driver = tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
    try_join_all((0..100).map(|number| get(&requests, number))).await?;
    try_join_all([0, 1, 70_000, 3_000_000].map(|size| echo(&requests, size))).await?;

    let mut begun = request(&requests, "POST", "/echo").await?;
    begun.send_data("first".into()).await?;
    assert_eq!(begun.recv_response().await?.status(), 200);
    let first = begun.recv_data().await?.ok_or("the server has ended")?;
    assert_eq!(first.chunk(), b"first");
    program.signal("TERM");
    // The server rejects new requests after the signal.
    while get(&requests, 0).await.is_ok() {}
    begun.send_data("second".into()).await?;
    begun.finish().await?;
    let second = begun.recv_data().await?.ok_or("the server has ended")?;
    assert_eq!(second.chunk(), b"second");
    assert!(begun.recv_data().await?.is_none());
    drop((begun, requests));
    let error = driver.await?;
    assert!(error.is_h3_no_error(), "{error}");
    Ok(())
}

#[test]
fn h3_client_on_tokio_is_answered_until_the_server_exits() {
    for driver in ["auto", "epoll"] {
        let certificate = format!("{}/http3-{driver}.der", env!("CARGO_TARGET_TMPDIR"));
        let mut example = Command::new(examples().join("http3"));
        example.args(["127.0.0.1:0", &certificate]).env("ANNULUS_DRIVER", driver);
        let mut program = Program::start(&mut example);
        let address = program.listens("");
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let conversation = converse(&program, &address, &certificate);
        let ran = tokio
            .block_on(async { tokio::time::timeout(Duration::from_secs(60), conversation).await });
        ran.expect("the test hangs").unwrap();
        program.ends();
    }
}
