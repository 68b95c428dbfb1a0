//! Errors name the operation and the peer or path.

use super::unix::TestPath;
use crate::common::pair;
use annulus::fs::{self, File, OpenOptions};
use annulus::io::{copy_bidirectional, raw_os_error};
use annulus::net::{
    OpError, Operation, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream,
};
use annulus::process::Command;
use std::error::Error;
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
    assert_eq!((reset.raw_os_error(), raw_os_error(&reset)), (None, Some(104)));
    let text = format!("receiving from {peer}: Connection reset by peer (os error 104)");
    assert_eq!(reset.to_string(), text);
    let broken = loop {
        match server.send("to no peer").await {
            Ok(()) => annulus::task::yield_now().await,
            Err(error) => break error,
        }
    };
    names(&broken, Operation::Send);
    assert!(broken.to_string().starts_with(&format!("sending to {peer}: ")), "{broken}");
    names(&server.drain().await.unwrap_err(), Operation::Send);
    assert_eq!(raw_os_error(&io::Error::other("none")), None);
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
    assert_eq!((what.address(), raw_os_error(&error)), (None, Some(2)));
    // The address of an unnamed peer is left out.
    let (mut one, other) = UnixStream::pair()?;
    drop(other);
    let error = loop {
        match one.send("to no peer").await {
            Ok(()) => annulus::task::yield_now().await,
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

/// Checks that an error with a longer text has the kind and the number of its cause, and contains
/// the text of its cause once.
fn check_wrapped(error: &io::Error, number: i32) {
    let cause = io::Error::from_raw_os_error(number);
    assert_eq!(raw_os_error(error), Some(number), "{error}");
    assert_eq!(error.kind(), cause.kind(), "{error}");
    assert_eq!(error.raw_os_error(), None, "{error} has no text of its own");
    assert!(error.source().is_none(), "the text of the cause is printed twice");
    // Other libraries wrap errors in `io::Error::other`, sometimes twice.
    assert_eq!(raw_os_error(&io::Error::other(io::Error::other(cause))), Some(number));
}

pub(crate) async fn errors_of_sockets_keep_kind_and_number() -> io::Result<()> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    annulus::task::yield_now().await;
    check_wrapped(&TcpStream::connect(address).await.unwrap_err(), libc::ECONNREFUSED);
    // With several addresses, the error has the number of the last attempt's error.
    let both = [address, address];
    check_wrapped(&TcpStream::connect(&both[..]).await.unwrap_err(), libc::ECONNREFUSED);
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let again = TcpListener::bind(taken.local_addr()?).unwrap_err();
    check_wrapped(&again, libc::EADDRINUSE);
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let again = UdpSocket::bind(socket.local_addr()?).unwrap_err();
    check_wrapped(&again, libc::EADDRINUSE);
    let path = TestPath::new();
    let path = &path.0;
    check_wrapped(&UnixStream::connect(path).await.unwrap_err(), libc::ENOENT);
    let listener = UnixListener::bind(path)?;
    check_wrapped(&UnixListener::bind(path).unwrap_err(), libc::EADDRINUSE);
    check_wrapped(&UnixDatagram::bind(path).unwrap_err(), libc::EADDRINUSE);
    drop(listener);
    let (client, mut server) = pair().await?;
    let (_other, mut near) = UnixStream::pair()?;
    client.abort();
    let copied = copy_bidirectional(&mut server, &mut near).await;
    check_wrapped(&copied.unwrap_err(), libc::ECONNRESET);
    Ok(())
}

pub(crate) async fn errors_of_files_and_processes_keep_kind_and_number() -> io::Result<()> {
    let directory = std::env::temp_dir();
    let missing = &directory.join("annulus-no-file");
    // On the same file system, since otherwise the kernel reports EXDEV first.
    let other = &directory.join("annulus-no-other-file");
    check_wrapped(&File::open(missing).await.unwrap_err(), libc::ENOENT);
    check_wrapped(&fs::read(missing).await.unwrap_err(), libc::ENOENT);
    check_wrapped(&fs::read(&directory).await.unwrap_err(), libc::EISDIR);
    check_wrapped(&fs::metadata(missing).await.unwrap_err(), libc::ENOENT);
    check_wrapped(&fs::remove_file(missing).await.unwrap_err(), libc::ENOENT);
    check_wrapped(&fs::remove_dir(missing).await.unwrap_err(), libc::ENOENT);
    check_wrapped(&fs::create_dir(&directory).await.unwrap_err(), libc::EEXIST);
    check_wrapped(&fs::rename(missing, other).await.unwrap_err(), libc::ENOENT);
    check_wrapped(&fs::hard_link(missing, other).await.unwrap_err(), libc::ENOENT);
    check_wrapped(&fs::copy(missing, other).await.unwrap_err(), libc::ENOENT);
    check_wrapped(&fs::read_dir(missing).await.map(drop).unwrap_err(), libc::ENOENT);
    check_wrapped(&Command::new(missing).spawn().map(drop).unwrap_err(), libc::ENOENT);
    // The kind of this error says more than its number.
    let outside = OpenOptions::new().read(true).beneath(true).open("/etc/passwd").await;
    let error = outside.unwrap_err();
    assert_eq!(
        (error.kind(), raw_os_error(&error)),
        (ErrorKind::PermissionDenied, Some(libc::EXDEV))
    );
    Ok(())
}
