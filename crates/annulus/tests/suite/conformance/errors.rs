//! Errors name the operation and the peer or path.

use crate::common::pair;
use annulus::io::os_error;
use annulus::net::{OpError, Operation, UdpSocket, UnixStream};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix;

pub(crate) async fn errors_contain_operation_and_peer() -> io::Result<()> {
    let (client, mut server) = pair().await?;
    let peer = client.local_addr()?;
    client.abort();
    let reset = server.recv().await.unwrap_err();
    // The kernel has forgotten the peer by now.
    assert!(server.peer_addr().is_err());
    let names = |error: &io::Error, operation| {
        let what = OpError::of(error).expect("the error contains the operation");
        assert_eq!((what.operation(), what.address()), (operation, Some(peer)));
        assert_eq!(what.error().kind(), error.kind());
    };
    names(&reset, Operation::Recv);
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    assert_eq!((reset.raw_os_error(), os_error(&reset)), (None, Some(104)));
    let text = format!("receiving from {peer}: Connection reset by peer (os error 104)");
    assert_eq!(reset.to_string(), text);
    let broken = loop {
        match server.send("to no peer").await {
            Ok(()) => annulus::yield_now().await,
            Err(error) => break error,
        }
    };
    names(&broken, Operation::Send);
    assert!(broken.to_string().starts_with(&format!("sending to {peer}: ")), "{broken}");
    names(&server.drain().await.unwrap_err(), Operation::Send);
    assert_eq!(os_error(&io::Error::other("none")), None);
    Ok(())
}

pub(crate) async fn errors_contain_operation_and_path() -> io::Result<()> {
    let path = std::env::temp_dir().join("annulus-no-listener");
    let error = UnixStream::connect(&path).await.unwrap_err();
    let what = OpError::of(&error).expect("the error contains the operation");
    assert_eq!(what.operation(), Operation::Connect);
    assert_eq!(
        what.unix_address().as_ref().and_then(unix::net::SocketAddr::as_pathname),
        Some(&*path)
    );
    assert_eq!((what.address(), os_error(&error)), (None, Some(2)));
    // The address of an unnamed peer is left out.
    let (mut one, other) = UnixStream::pair()?;
    drop(other);
    let error = loop {
        match one.send("to no peer").await {
            Ok(()) => annulus::yield_now().await,
            Err(error) => break error,
        }
    };
    assert_eq!(error.to_string(), "sending: Broken pipe (os error 32)");
    Ok(())
}

pub(crate) async fn the_error_of_a_refused_datagram_contains_the_peer() -> io::Result<()> {
    let closed: SocketAddr = "127.0.0.1:1".parse().expect("not an address");
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(closed).await?;
    socket.send("to no socket").await?;
    let error = socket.recv().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let what = OpError::of(&error).expect("the error contains the operation");
    assert_eq!((what.operation(), what.address()), (Operation::Recv, Some(closed)));
    let text = "receiving from 127.0.0.1:1: Connection refused (os error 111)";
    assert_eq!(error.to_string(), text);
    Ok(())
}
