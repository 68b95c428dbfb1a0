//! Unpatched axum 0.8 in a tokio runtime that has annulus as its guest, on io_uring and on epoll.

use crate::common;

use annulus_compat::{Incoming, SendStream};
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Router, body::Bytes};
use common::as_guests;
use futures_util::{SinkExt, StreamExt};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

/// Notifies when `/slow` has begun, and lets it end.
#[derive(Clone, Default)]
struct Slow {
    begun: Arc<Notify>,
    ends: Arc<Notify>,
}

fn router() -> Router {
    slow_router(Slow::default())
}

fn slow_router(slow: Slow) -> Router {
    Router::new()
        .route("/", get(async || "hello"))
        .route("/echo", post(async |body: Bytes| body))
        .route("/ws", get(upgrade))
        .route(
            "/slow",
            get(async move || {
                slow.begun.notify_one();
                slow.ends.notified().await;
                "slow"
            }),
        )
}

async fn upgrade(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(async |mut socket| {
        while let Some(Ok(message)) = socket.recv().await {
            if !matches!(message, Message::Text(_) | Message::Binary(_)) {
                continue;
            }
            if socket.send(message).await.is_err() {
                break;
            }
        }
    })
}

/// Sends one request over a tokio connection, and returns the whole response.
async fn ask(address: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[test]
fn requests_are_answered() {
    as_guests(async || {
        let incoming = Incoming::bind("127.0.0.1:0")?;
        let address = incoming.local_addr()?;
        tokio::spawn(async move { axum::serve(incoming, router()).await });
        for _ in 0..50 {
            let answer =
                ask(address, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
        }
        let body = "b".repeat(100_000);
        let request = format!(
            "POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        assert!(ask(address, &request).await?.ends_with(&body));
        Ok(())
    });
}

/// Like `nc -N`, the client shuts down its sending direction right after the request.
#[test]
fn half_closed_client_gets_its_response() {
    as_guests(async || {
        let incoming = Incoming::bind("127.0.0.1:0")?;
        let address = incoming.local_addr()?;
        tokio::spawn(async move { axum::serve(incoming, router()).await });
        for _ in 0..20 {
            let mut client = tokio::net::TcpStream::connect(address).await?;
            client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
            client.shutdown().await?;
            let mut answer = String::new();
            client.read_to_string(&mut answer).await?;
            assert!(answer.ends_with("hello"), "{answer}");
        }
        Ok(())
    });
}

#[test]
fn graceful_shutdown_finishes_requests_in_progress() {
    as_guests(async || {
        let incoming = Incoming::bind("127.0.0.1:0")?;
        let address = incoming.local_addr()?;
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        let begun = Slow::default();
        let serve = axum::serve(incoming, slow_router(begun.clone()));
        let serve = serve.with_graceful_shutdown(async move { stopped.notified().await });
        let served = tokio::spawn(async move { serve.await });
        let slow = tokio::spawn(ask(
            address,
            "GET /slow HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        ));
        begun.begun.notified().await;
        stop.notify_one();
        begun.ends.notify_one();
        assert!(slow.await??.ends_with("slow"));
        served.await??;
        assert!(
            tokio::net::TcpStream::connect(address).await.is_err(),
            "the listener is still open"
        );
        Ok(())
    });
}

/// After the guest has ended, axum's task keeps waiting for connections, and ends on request.
#[test]
fn graceful_shutdown_works_after_the_guest_has_ended() {
    let host = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ran: Result<(), common::Failure> = host.block_on(async {
        let guest = annulus_tokio::enter()?;
        let incoming = Incoming::bind("127.0.0.1:0")?;
        let address = incoming.local_addr()?;
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        let serve = axum::serve(incoming, router());
        let serve = serve.with_graceful_shutdown(async move { stopped.notified().await });
        let mut served = tokio::spawn(async move { serve.await });
        ask(address, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
        drop(guest);
        // Runs everything that the end of the guest has woken.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!served.is_finished(), "{:?}", (&mut served).await);
        stop.notify_one();
        Ok(served.await??)
    });
    ran.unwrap();
}

#[test]
fn a_websocket_echoes() {
    as_guests(async || {
        let incoming = Incoming::bind("127.0.0.1:0")?;
        let address = incoming.local_addr()?;
        tokio::spawn(async move { axum::serve(incoming, router()).await });
        // The client also uses an annulus socket.
        let stream = SendStream::new(annulus::net::TcpStream::connect(address).await?);
        let url = format!("ws://{address}/ws");
        let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await?;
        for round in 0..100 {
            let text = "x".repeat(round * 100);
            socket.send(text.clone().into()).await?;
            let answer = socket.next().await.expect("no answer arrived")?;
            assert_eq!(answer.into_text()?.as_str(), text);
        }
        socket.close(None).await?;
        Ok(())
    });
}

#[test]
fn using_a_stream_on_another_thread_is_an_error() {
    let moved = annulus_tokio::run(async {
        let (one, _other) = annulus::net::UnixStream::pair().unwrap();
        let mut stream = SendStream::new(one);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(stream.write_all(b"x")).unwrap_err().to_string()
        })
        .join()
        .unwrap()
    });
    assert!(moved.unwrap().contains("a thread other than"));
}
