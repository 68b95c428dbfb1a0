//! Unpatched tokio-tungstenite over annulus streams: on io_uring, on epoll, on simulated networks,
//! and in a tokio runtime that has annulus as its guest.

use crate::common;

use annulus::net::{TcpListener, TcpStream};
use annulus::spawn;
use common::{Failure, Outcome, as_guests, on_drivers, on_networks};
use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, accept_async_with_config, client_async};

/// Number of bytes of the longest message that the server accepts.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Echoes text and binary messages until the client closes; returns how it ended.
async fn echo(stream: TcpStream) -> Result<(), Error> {
    let config = WebSocketConfig::default();
    let config =
        config.max_message_size(Some(MAX_MESSAGE_BYTES)).max_frame_size(Some(MAX_MESSAGE_BYTES));
    let mut socket = accept_async_with_config(stream, Some(config)).await?;
    while let Some(message) = socket.next().await {
        let message = message?;
        if message.is_text() || message.is_binary() {
            socket.send(message).await?;
        }
    }
    Ok(())
}

/// Connects a client to an echo server. The task returns how the server's side ended.
async fn connect(
    address: &str,
) -> Result<(WebSocketStream<TcpStream>, annulus::task::JoinHandle<Result<(), Error>>), Failure> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let server = spawn(async move {
        let (stream, _) = listener.accept().await?;
        echo(stream).await
    });
    let stream = TcpStream::connect(address).await?;
    let (client, _) = client_async(format!("ws://{address}/"), stream).await?;
    Ok((client, server))
}

/// Receives the next message, which must exist.
async fn next(client: &mut WebSocketStream<TcpStream>) -> Result<Message, Failure> {
    Ok(client.next().await.ok_or("the connection has ended")??)
}

async fn converse(address: &str) -> Outcome {
    let (mut client, server) = connect(address).await?;
    for length in [0, 1, 125, 126, 127, 65_535, 65_536, MAX_MESSAGE_BYTES] {
        let bytes: Vec<u8> = (0..length).map(|index| (index * 31) as u8).collect();
        client.send(Message::binary(bytes.clone())).await?;
        assert!(next(&mut client).await?.into_data() == bytes, "{length} bytes");
    }
    many_at_once(&mut client).await?;
    in_fragments(&mut client).await?;
    client.send(Message::Ping("ping".into())).await?;
    assert_eq!(next(&mut client).await?, Message::Pong("ping".into()));
    let reason = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::from_static("done") };
    client.close(Some(reason.clone())).await?;
    assert_eq!(next(&mut client).await?, Message::Close(Some(reason)));
    assert!(client.next().await.is_none());
    Ok(server.await??)
}

/// Sends messages before the first is answered.
async fn many_at_once(client: &mut WebSocketStream<TcpStream>) -> Outcome {
    for number in 0..500 {
        client.feed(Message::text(format!("message {number}"))).await?;
    }
    client.flush().await?;
    for number in 0..500 {
        assert_eq!(next(client).await?.to_text()?, format!("message {number}"));
    }
    Ok(())
}

/// Sends a text whose frames split characters, with pings between the frames.
async fn in_fragments(client: &mut WebSocketStream<TcpStream>) -> Outcome {
    let text = "κόσμε ".repeat(1000);
    let pieces: Vec<_> = text.as_bytes().chunks(7).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let data = if index == 0 { Data::Text } else { Data::Continue };
        let is_last = index + 1 == pieces.len();
        client
            .feed(Message::Frame(Frame::message(piece.to_vec(), OpCode::Data(data), is_last)))
            .await?;
        if index == 3 {
            client.feed(Message::Ping("between".into())).await?;
        }
    }
    client.flush().await?;
    assert_eq!(next(client).await?, Message::Pong("between".into()));
    assert_eq!(next(client).await?.to_text()?, text);
    Ok(())
}

/// Returns the error of a server that receives an invalid or forbidden frame.
async fn refused(bytes: Vec<u8>) -> Result<Error, Failure> {
    let (client, server) = connect("127.0.0.1:0").await?;
    let mut stream = client.into_inner();
    stream.send(bytes).await?;
    // Read the server's close frame, if it sends one, and the end.
    while let Ok(Some(_)) = stream.recv().await {}
    Ok(server.await?.expect_err("a bad frame was accepted"))
}

async fn bad_frames() -> Outcome {
    // Client frames must be masked; this mask is zero.
    let frame =
        |first: u8, length: u8, body: &[u8]| [&[first, 0x80 | length, 0, 0, 0, 0], body].concat();
    let reserved = refused(frame(0x83, 0, &[])).await?;
    assert!(matches!(reserved, Error::Protocol(_)), "a reserved opcode: {reserved}");
    let bits = refused(frame(0xf1, 0, &[])).await?;
    assert!(matches!(bits, Error::Protocol(_)), "reserved bits: {bits}");
    let utf8 = refused(frame(0x81, 2, &[0xc0, 0xaf])).await?;
    assert!(matches!(utf8, Error::Utf8(_)), "invalid UTF-8: {utf8}");
    let unmasked = refused(vec![0x81, 1, b'x']).await?;
    assert!(matches!(unmasked, Error::Protocol(_)), "no mask: {unmasked}");
    let continued = refused(frame(0x80, 1, b"x")).await?;
    assert!(matches!(continued, Error::Protocol(_)), "nothing to continue: {continued}");
    let ping = refused(frame(0x09, 1, b"x")).await?;
    assert!(matches!(ping, Error::Protocol(_)), "a ping in fragments: {ping}");
    let huge = [&[0x82, 0xff][..], &(MAX_MESSAGE_BYTES as u64 + 1).to_be_bytes(), &[0; 4]].concat();
    let huge = refused(huge).await?;
    assert!(matches!(huge, Error::Capacity(_)), "above the limit: {huge}");
    let half = refused_half().await?;
    assert!(matches!(half, Error::Protocol(_)), "an end without a closing handshake: {half}");
    Ok(())
}

/// The client disconnects in the middle of a message.
async fn refused_half() -> Result<Error, Failure> {
    let (client, server) = connect("127.0.0.1:0").await?;
    let mut stream = client.into_inner();
    stream.send(vec![0x82, 0x80 | 100, 0, 0, 0, 0, b'h']).await?;
    drop(stream);
    Ok(server.await?.expect_err("half a message was accepted"))
}

#[test]
fn on_annulus_alone() {
    on_drivers(|| converse("127.0.0.1:0"));
    on_drivers(bad_frames);
}

#[test]
fn as_a_guest_of_tokio() {
    as_guests(|| converse("127.0.0.1:0"));
    as_guests(bad_frames);
}

/// The client uses a tokio socket in a tokio task; the server uses an annulus socket.
#[test]
fn client_on_a_tokio_socket() {
    as_guests(async || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let client = tokio::spawn(async move {
            let stream = tokio::net::TcpStream::connect(address).await?;
            let (mut client, _) = client_async(format!("ws://{address}/"), stream).await?;
            for number in 0..200 {
                client.send(Message::text(number.to_string())).await?;
                let answer = client.next().await.ok_or("the connection has ended")??;
                assert_eq!(answer.to_text()?, number.to_string());
            }
            client.close(None).await?;
            Ok::<_, Failure>(())
        });
        let (stream, _) = listener.accept().await?;
        echo(stream).await?;
        client.await?
    });
}

#[test]
fn on_simulated_networks() {
    on_networks(|| converse("10.0.0.1:80"));
}

/// Uses both ends of a socket pair without a handshake, as after an upgrade by another library.
#[test]
fn streams_upgraded_by_other_code() {
    on_drivers(async || {
        let (one, other) = annulus::net::UnixStream::pair()?;
        let mut one = WebSocketStream::from_raw_socket(one, Role::Client, None).await;
        let mut other = WebSocketStream::from_raw_socket(other, Role::Server, None).await;
        one.send(Message::text("hello")).await?;
        assert_eq!(other.next().await.ok_or("the stream ended")??, Message::text("hello"));
        Ok(())
    });
}
