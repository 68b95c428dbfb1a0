//! Upgraded connections.

use crate::tower::*;
use tokio_tungstenite::tungstenite::{self, handshake::server::create_response_with_body};

type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// That of the documentation of `annulus_compat::tower`.
fn websocket<F>(mut request: Request, session: impl FnOnce(Socket) -> F + 'static) -> Response
where
    F: Future<Output = tungstenite::Result<()>> + 'static,
{
    let response = match create_response_with_body(&request, Body::empty) {
        Ok(response) => response,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let upgrade = hyper::upgrade::on(&mut request);
    annulus::spawn(async move {
        let stream = TokioIo::new(upgrade.await.map_err(io::Error::other)?);
        session(Socket::from_raw_socket(stream, Role::Server, None).await).await
    });
    response
}

/// Echoes, and counts in what is not `Send`.
pub(crate) async fn upgrade(request: Request) -> Response {
    websocket(request, async |mut socket| {
        let count = Rc::new(Cell::new(0));
        while let Some(message) = socket.next().await.transpose()? {
            if !message.is_close() {
                socket.send(message).await?;
                count.set(count.get() + 1);
            }
        }
        Ok(())
    })
}

#[test]
fn what_asks_for_no_websocket_is_refused_with_the_reason() {
    on_drivers(async || {
        let server = start("127.0.0.1:0", |server| server);
        let mut client = client_1(server.address).await?;
        let answer = client.send_request(to("/ws", b"")).await?;
        assert_eq!(answer.status(), 400);
        let reason = text(answer).await?;
        assert_eq!(reason, "WebSocket protocol error: No \"Connection: upgrade\" header");
        Ok(())
    });
}

async fn websocket_echoes(address: SocketAddr) -> Outcome {
    // `Send`, as tungstenite's handshake does not ask for, and hyper's upgrade does.
    let stream = annulus_compat::SendStream::new(TcpStream::connect(address).await?);
    let url = format!("ws://{address}/ws");
    let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await?;
    for round in 0..50 {
        let text = "x".repeat(round * 500);
        socket.send(text.clone().into()).await?;
        let answer = socket.next().await.expect("an answer")?;
        assert_eq!(answer.into_text()?.as_str(), text);
    }
    socket.close(None).await?;
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_))) | None));
    Ok(())
}

#[test]
fn a_websocket_outlives_the_server_that_upgraded_it() {
    everywhere(async || {
        let server = start("127.0.0.1:0", |server| server);
        let stream = annulus_compat::SendStream::new(TcpStream::connect(server.address).await?);
        let url = format!("ws://{}/ws", server.address);
        let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await?;
        server.stop.cancel();
        server.ended.await??;
        socket.send("still there?".into()).await?;
        assert_eq!(socket.next().await.expect("an answer")?.into_text()?.as_str(), "still there?");
        Ok(())
    });
}

#[test]
fn a_websocket_echoes() {
    everywhere(async || {
        let server = start("127.0.0.1:0", |server| server);
        websocket_echoes(server.address).await
    });
    simulated(async |_| {
        let server = start("10.0.0.1:80", |server| server);
        websocket_echoes(server.address).await
    });
}

/// axum's own upgrade spawns on tokio: as a guest it works, on annulus alone the handler panics, and the server goes on.
#[test]
fn the_upgrade_of_axum_needs_tokio() {
    use axum::extract::ws::WebSocketUpgrade;
    let router = || {
        let echo = async |upgrade: WebSocketUpgrade| {
            upgrade.on_upgrade(async |mut socket| {
                while let Some(Ok(message)) = socket.recv().await {
                    if !matches!(message, axum::extract::ws::Message::Close(_)) {
                        socket.send(message).await.unwrap();
                    }
                }
            })
        };
        Router::new().route("/ws", get(echo)).route("/", get(async || "hello"))
    };
    as_guest(async move {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        annulus::spawn(serve(listener, router()).into_future());
        websocket_echoes(address).await
    });
    on_drivers(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        annulus::spawn(serve(listener, router()).into_future());
        assert!(websocket_echoes(address).await.is_err());
        let mut client = client_1(address).await?;
        assert_eq!(text(client.send_request(to("/", b"")).await?).await?, "hello");
        Ok(())
    });
}
