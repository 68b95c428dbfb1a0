//! TCP through the public API, tested against the standard library's blocking sockets.

use annulus::net::{TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::thread;

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    while let Some(lease) = stream.recv().await? {
        stream.send(lease).await?;
    }
    Ok(())
}

/// Runs an echo server for one connection, with `client` on another thread.
fn with_echo(client: impl FnOnce(std::net::TcpStream) + Send + 'static) {
    let client = annulus::run(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let client = thread::spawn(move || client(std::net::TcpStream::connect(address).unwrap()));
        let (stream, _) = listener.accept().await?;
        echo(stream).await?;
        io::Result::Ok(client)
    });
    client.unwrap().join().unwrap();
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

#[test]
fn one_byte_is_echoed() {
    with_echo(|mut client| {
        client.write_all(b"x").unwrap();
        let mut got = [0];
        client.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"x");
    });
}

#[test]
fn a_mebibyte_in_one_write_is_echoed() {
    with_echo(|mut client| {
        let sent = pattern(1 << 20);
        let mut got = vec![0; sent.len()];
        thread::scope(|scope| {
            let mut writer = client.try_clone().unwrap();
            let sent = &sent;
            scope.spawn(move || writer.write_all(sent).unwrap());
            client.read_exact(&mut got).unwrap();
        });
        assert!(got == sent);
    });
}

#[test]
fn a_half_closed_client_gets_its_echo() {
    with_echo(|mut client| {
        client.write_all(b"last words").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"last words");
    });
}

#[test]
fn many_tiny_writes_are_echoed() {
    with_echo(|mut client| {
        client.set_nodelay(true).unwrap();
        for i in 0..2000u32 {
            client.write_all(&i.to_le_bytes()).unwrap();
        }
        let mut got = vec![0; 8000];
        client.read_exact(&mut got).unwrap();
        let expected: Vec<u8> = (0..2000u32).flat_map(u32::to_le_bytes).collect();
        assert!(got == expected);
    });
}

#[test]
fn a_client_on_the_same_runtime_is_echoed() {
    annulus::run(async {
        let listener = TcpListener::bind("[::1]:0")?;
        let address = listener.local_addr()?;
        annulus::spawn(async move {
            let (stream, _) = listener.accept().await?;
            echo(stream).await
        });
        let mut client = TcpStream::connect(address).await?;
        client.send("over and ").await?;
        client.send(b"over".to_vec()).await?;
        client.shutdown().await?;
        let mut got = Vec::new();
        while let Some(lease) = client.recv().await? {
            got.extend_from_slice(&lease);
        }
        assert_eq!(got, b"over and over");
        io::Result::Ok(())
    })
    .unwrap();
}

#[test]
fn drain_returns_although_a_complete_send_posts_no_event() {
    annulus::run(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut client = TcpStream::connect(listener.local_addr()?).await?;
        let (_silent, _) = listener.accept().await?;
        for _ in 0..10 {
            client.send("no answer comes").await?;
            client.drain().await?;
        }
        client.shutdown().await
    })
    .unwrap();
}

#[test]
fn a_lease_becomes_bytes_and_is_sent_without_a_copy() {
    let received = annulus::run(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mut ours = TcpStream::connect(listener.local_addr()?).await?;
        let (mut remote, _) = listener.accept().await?;
        ours.send(bytes::Bytes::from_static(b"some bytes")).await?;
        let lease = remote.recv().await?.expect("the stream ended too early");
        let start = lease.as_ptr();
        let shared = bytes::Bytes::from(lease.into_shared());
        assert_eq!(shared.as_ptr(), start);
        remote.send(shared.slice(5..)).await?;
        Ok::<_, std::io::Error>(ours.recv().await?.expect("the stream ended too early").to_vec())
    });
    assert_eq!(received.unwrap(), b"bytes");
}
