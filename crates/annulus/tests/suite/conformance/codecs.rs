//! Messages framed by tokio-util over tokio's traits.

use crate::common::{pair, pattern, touch};
use annulus::net::UnixStream;
use annulus::spawn;
use annulus::time::timeout;
use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt, TryStreamExt};
use std::io;
use std::time::Duration;
use tokio_util::codec::{
    BytesCodec, Framed, FramedRead, FramedWrite, LengthDelimitedCodec, LinesCodec, LinesCodecError,
};

fn messages() -> Vec<Bytes> {
    [0, 1, 100, 0, 30_000, 7, 8192, 70_000].map(|len| Bytes::from(pattern(len))).into()
}

pub(crate) async fn messages_are_echoed() -> io::Result<()> {
    let (client, server) = pair().await?;
    let server = spawn(async move {
        let (sink, stream) = Framed::new(server, LengthDelimitedCodec::new()).split();
        stream.map_ok(BytesMut::freeze).forward(sink).await
    });
    let (receiving, sending) = client.into_split();
    let sender = spawn(async move {
        let mut sending = FramedWrite::new(sending, LengthDelimitedCodec::new());
        for message in messages() {
            sending.feed(message).await?;
        }
        SinkExt::<Bytes>::close(&mut sending).await
    });
    let receiving = FramedRead::new(receiving, LengthDelimitedCodec::new());
    let got: Vec<Bytes> = receiving.map_ok(BytesMut::freeze).try_collect().await?;
    assert!(got == messages());
    sender.await.expect("the task panicked")?;
    server.await.expect("the task panicked")
}

pub(crate) async fn dropped_reads_of_messages_lose_none() -> io::Result<()> {
    let (client, server) = pair().await?;
    let sender = spawn(async move {
        let mut client = Framed::new(client, LengthDelimitedCodec::new());
        for message in messages() {
            assert!(touch(client.send(message)).is_none_or(|sent| sent.is_ok()));
            annulus::time::sleep(Duration::from_micros(100)).await;
        }
        SinkExt::<Bytes>::close(&mut client).await
    });
    let mut server = Framed::new(server, LengthDelimitedCodec::new());
    let mut waits = [0, 10, 60, 400].into_iter().map(Duration::from_micros).cycle();
    let mut got = Vec::new();
    loop {
        match timeout(waits.next().unwrap(), server.next()).await {
            Err(_) => {}
            Ok(Some(message)) => got.push(message?.freeze()),
            Ok(None) => break,
        }
    }
    assert!(got == messages());
    sender.await.expect("the task panicked")
}

pub(crate) async fn a_message_above_its_limit_is_an_error() -> io::Result<()> {
    let (mut client, server) = UnixStream::pair()?;
    client.send("y".repeat(50) + "\nz").await?;
    client.shutdown().await?;
    let mut lines = Framed::new(server, LinesCodec::new_with_max_length(10));
    let error = lines.next().await.expect("the stream ended too early").unwrap_err();
    assert!(matches!(error, LinesCodecError::MaxLineLengthExceeded), "{error}");
    assert!(lines.next().await.is_none());
    assert_eq!(
        lines.next().await.expect("the stream ended too early").unwrap(),
        "z",
        "reading did not continue after the refused line"
    );
    assert!(lines.next().await.is_none());
    Ok(())
}

pub(crate) async fn an_end_within_a_message_is_an_error() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    client.send(b"\0\0\0\x05hell").await?;
    client.shutdown().await?;
    let mut messages = Framed::new(server, LengthDelimitedCodec::new());
    let error = messages.next().await.expect("the stream ended too early").unwrap_err();
    assert_eq!(error.to_string(), "bytes remaining on stream");
    assert!(messages.next().await.is_none());
    Ok(())
}

pub(crate) async fn framed_of_tokio_serves() -> io::Result<()> {
    let (client, server) = pair().await?;
    let server = spawn(async move {
        let (sink, stream) = Framed::new(server, BytesCodec::new()).split();
        stream.map_ok(BytesMut::freeze).forward(sink).await
    });
    let mut client = Framed::new(client, LengthDelimitedCodec::new());
    for message in messages() {
        client.send(message.clone()).await?;
        assert!(client.next().await.expect("the stream ended too early")? == message);
    }
    SinkExt::<Bytes>::close(&mut client).await?;
    server.await.expect("the task panicked")
}
