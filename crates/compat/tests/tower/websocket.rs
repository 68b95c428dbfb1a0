//! Upgraded connections.

use crate::tower::*;
use annulus_compat::tower::WebSocketUpgrade;
use annulus_skip::skip;
use axum::routing::any;
use std::process::Command;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

const UPGRADE_HEADERS: &str = "connection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n";
const KEY_HEADER: &str = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const VERSION_HEADER: &str = "sec-websocket-version: 13\r\n";

/// Echoes messages, and counts them in a value that is not `Send`.
pub(crate) async fn upgrade(upgrade: WebSocketUpgrade) -> Response {
    let config = WebSocketConfig::default().max_message_size(Some(100_000));
    let upgrade = upgrade.config(config).protocols(["echo", "other"]);
    upgrade.on_upgrade(async |mut socket| {
        let count = Rc::new(Cell::new(0));
        while let Some(Ok(message)) = socket.next().await {
            let is_data = message.is_text() || message.is_binary();
            if is_data && socket.send(message).await.is_err() {
                break;
            }
            count.set(count.get() + 1);
        }
    })
}

/// Sends the only request of a connection, and returns the status line and the body of the
/// response.
async fn answer(address: SocketAddr, request: String) -> Result<(String, String), common::Failure> {
    let mut client = TcpStream::connect(address).await?;
    client.send(request).await?;
    client.shutdown().await?;
    let mut answer = Vec::new();
    while let Some(lease) = client.recv().await? {
        answer.extend_from_slice(&lease);
    }
    let answer = String::from_utf8(answer)?;
    let (head, text) = answer.split_once("\r\n\r\n").ok_or("no head")?;
    Ok((head.lines().next().unwrap_or_default().to_owned(), text.to_owned()))
}

#[test]
fn invalid_upgrades_are_refused_as_by_axum() {
    on_drivers(async || {
        let axums = async |_: axum::extract::WebSocketUpgrade| StatusCode::OK;
        let router = Router::new().route("/ws", any(upgrade)).route("/axum", any(axums));
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        annulus::spawn(serve(listener, router).into_future());
        for (method, version, headers, status) in [
            ("POST", "1.1", [UPGRADE_HEADERS, KEY_HEADER, VERSION_HEADER], 405),
            ("GET", "1.1", ["", KEY_HEADER, VERSION_HEADER], 400),
            ("GET", "1.1", ["connection: upgrade\r\n", KEY_HEADER, VERSION_HEADER], 400),
            (
                "GET",
                "1.1",
                ["connection: upgrade\r\nupgrade: h2c\r\n", KEY_HEADER, VERSION_HEADER],
                400,
            ),
            ("GET", "1.1", [UPGRADE_HEADERS, "", VERSION_HEADER], 400),
            ("GET", "1.1", [UPGRADE_HEADERS, KEY_HEADER, ""], 400),
            ("GET", "1.1", [UPGRADE_HEADERS, KEY_HEADER, "sec-websocket-version: 8\r\n"], 400),
            ("GET", "1.0", [UPGRADE_HEADERS, KEY_HEADER, VERSION_HEADER], 426),
        ] {
            let headers = headers.concat();
            let request =
                |path| format!("{method} {path} HTTP/{version}\r\nhost: x\r\n{headers}\r\n");
            let (ours, axums) =
                (answer(address, request("/ws")).await?, answer(address, request("/axum")).await?);
            assert_eq!(ours, axums);
            assert!(ours.0.contains(&format!(" {status} ")), "{headers}: {ours:?}");
        }
        Ok(())
    });
}

#[test]
fn a_websocket_over_http_2_is_refused() {
    on_drivers(async || {
        let server = start("127.0.0.1:0", |server| server);
        let answer = client_2(server.address).await?.send_request(to("/ws", b"")).await?;
        assert_eq!(answer.status(), 505);
        assert_eq!(text(answer).await?, "WebSockets are served over HTTP/1.1 only");
        Ok(())
    });
}

async fn websocket_echoes(address: SocketAddr) -> Outcome {
    let stream = annulus_compat::SendStream::new(TcpStream::connect(address).await?);
    let url = format!("ws://{address}/ws");
    let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await?;
    for round in 0..50 {
        let text = "x".repeat(round * 500);
        socket.send(text.clone().into()).await?;
        let answer = socket.next().await.expect("no answer arrived")?;
        assert_eq!(answer.into_text()?.as_str(), text);
    }
    socket.close(None).await?;
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(_))) | None));
    Ok(())
}

#[test]
fn handler_sets_the_subprotocol_and_the_limits() {
    everywhere(async || {
        let server = start("127.0.0.1:0", |server| server);
        let url = format!("ws://{}/ws", server.address);
        for (offered, agreed) in [("chat, other, echo", Some("echo")), ("chat", None)] {
            let stream = TcpStream::connect(server.address).await?;
            let mut request = url.as_str().into_client_request()?;
            request.headers_mut().insert("sec-websocket-protocol", offered.parse()?);
            let opened = tokio_tungstenite::client_async(request, stream).await;
            // tungstenite's client fails if it offers subprotocols and the server selects none.
            let Some(agreed) = agreed else {
                assert!(opened.is_err());
                continue;
            };
            let (mut socket, response) = opened?;
            assert_eq!(response.headers()["sec-websocket-protocol"], agreed);
            socket.send("x".repeat(100_001).into()).await?;
            let ended = socket.next().await;
            assert!(!matches!(ended, Some(Ok(Message::Text(_)))), "{ended:?}");
        }
        Ok(())
    });
}

#[test]
fn client_without_a_websocket_library_is_served() {
    if Command::new("python3").arg("--version").output().is_err() {
        skip!("no python3: apt-get install python3");
        return;
    }
    on_drivers(async || {
        let server = start("127.0.0.1:0", |server| server);
        let port = server.address.port().to_string();
        let run = move || Command::new("python3").args(["-c", PYTHON_CLIENT, &port]).output();
        let output = annulus::task::spawn_blocking(run).await??;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        Ok(())
    });
}

/// A client without a library. It performs a handshake, sends a masked text in two fragments with a
/// ping between them, and closes.
const PYTHON_CLIENT: &str = r#"
import base64, hashlib, os, socket, struct, sys
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 100)
key = base64.b64encode(os.urandom(16)).decode()
peer.sendall(f"GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
             f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
stream = peer.makefile("rb")
assert stream.readline().startswith(b"HTTP/1.1 101 ")
head = dict(line.decode().strip().lower().split(": ", 1) for line in iter(stream.readline, b"\r\n"))
accept = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
assert head["sec-websocket-accept"] == base64.b64encode(accept).decode().lower(), head
assert head["upgrade"] == "websocket" and head["connection"] == "upgrade", head

def send(first, payload):
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
    peer.sendall(bytes([first, 0x80 | len(payload)]) + mask + masked)

def receive():
    first, length = stream.read(2)
    if length == 126:
        length, = struct.unpack(">H", stream.read(2))
    return first, stream.read(length)

send(0x01, b"hello, ")
send(0x89, b"alive?")
send(0x80, b"world")
assert receive() == (0x8A, b"alive?")
frames = [receive()]
while not frames[-1][0] & 0x80:
    frames.append(receive())
assert frames[0][0] & 0x0F == 1 and b"".join(part for _, part in frames) == b"hello, world", frames
send(0x88, struct.pack(">H", 1000))
first, reason = receive()
assert first == 0x88 and reason[:2] == struct.pack(">H", 1000), (first, reason)
assert stream.read() == b""
"#;

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

/// axum's own upgrade spawns on tokio. It works as a guest. On annulus alone the handler panics,
/// and the server keeps running.
#[test]
fn axums_own_upgrade_needs_tokio() {
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
