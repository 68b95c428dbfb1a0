//! TCP sockets that are configured before they listen or connect.

use crate::common::{echo, own_address, touch};
use annulus::net::{KeepAlive, TcpListener, TcpSocket, TcpStream};
use annulus::spawn;
use annulus::task::yield_now;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

fn local() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

pub(crate) async fn options_apply_to_listeners_and_their_connections() -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    assert!(socket.nodelay()? && !socket.reuse_address()? && !socket.reuse_port()?);
    socket.set_reuse_address(true)?;
    socket.set_recv_buffer_size(20_000)?;
    socket.set_user_timeout(Some(Duration::from_secs(7)))?;
    let keepalive = KeepAlive { time: Duration::from_secs(60), ..KeepAlive::default() };
    socket.set_keepalive(Some(keepalive))?;
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_ttl(9)?;
    assert!(socket.reuse_address()? && socket.take_error()?.is_none());
    assert_eq!((socket.recv_buffer_size()?, socket.ttl()?), (40_000, 9));
    assert_eq!(socket.linger()?, Some(Duration::ZERO));
    assert_eq!(socket.keepalive()?, Some(keepalive));
    socket.bind(local())?;
    let bound = socket.local_addr()?;
    assert_ne!(bound.port(), 0);
    let listener = socket.listen(16)?;
    assert_eq!(listener.local_addr()?, bound);
    let client = TcpStream::connect(bound).await?;
    let (accepted, _) = listener.accept().await?;
    assert_eq!(accepted.keepalive()?, Some(keepalive));
    assert_eq!(accepted.user_timeout()?, Some(Duration::from_secs(7)));
    assert_eq!((accepted.recv_buffer_size()?, accepted.ttl()?), (40_000, 9));
    assert_eq!(client.keepalive()?, None);
    Ok(())
}

pub(crate) async fn socket_connects_with_its_options_from_its_address() -> io::Result<()> {
    let listener = TcpListener::bind(local())?;
    let socket = TcpSocket::new_v4()?;
    socket.set_nodelay(false)?;
    socket.set_send_buffer_size(30_000)?;
    socket.bind(local())?;
    let from = socket.local_addr()?;
    let mut stream = socket.connect(listener.local_addr()?).await?;
    let (accepted, peer) = listener.accept().await?;
    assert_eq!((peer, stream.local_addr()?), (from, from));
    assert_eq!((stream.nodelay()?, stream.send_buffer_size()?), (false, 60_000));
    spawn(echo(accepted));
    stream.send("through the socket").await?;
    assert_eq!(&*stream.recv_exact(18).await?, b"through the socket");
    Ok(())
}

pub(crate) async fn errors_of_a_socket_contain_its_address() -> io::Result<()> {
    let address = own_address();
    let taken = TcpListener::bind(address)?.local_addr()?;
    // No socket listens there now.
    annulus::task::yield_now().await;
    let error = TcpSocket::new_v4()?.connect(taken).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    let listener = TcpListener::bind(address)?;
    let taken = listener.local_addr()?;
    let error = TcpSocket::new_v4()?.bind(taken).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    // The version of the address is checked with a message that names the fix.
    let v6: SocketAddr = "[::1]:1".parse().expect("an address");
    let error = TcpSocket::new_v4()?.bind(v6).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("TcpSocket::new_v6"), "{error}");
    let error = TcpSocket::new_v6()?.connect(taken).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("TcpSocket::new_v4"), "{error}");
    Ok(())
}

pub(crate) async fn ipv6_socket_is_for_one_protocol_or_both() -> io::Result<()> {
    for only in [false, true] {
        let socket = TcpSocket::new_v6()?;
        socket.set_only_v6(only)?;
        assert_eq!(socket.only_v6()?, only);
        socket.bind("[::]:0".parse().expect("an address"))?;
        let listener = socket.listen(16)?;
        let port = listener.local_addr()?.port();
        let connected = TcpStream::connect(("127.0.0.1", port)).await;
        assert_eq!(connected.is_err(), only, "{connected:?}");
        TcpStream::connect(("::1", port)).await?;
    }
    Ok(())
}

/// Other code has begun to connect the socket. A listener with a full backlog does not answer until
/// it accepts a connection.
pub(crate) async fn a_connect_that_other_code_has_begun_is_awaited() -> io::Result<()> {
    let listener = std::net::TcpListener::bind(local())?;
    net::listen(&listener, 0)?;
    let address = listener.local_addr()?;
    let _filler = std::net::TcpStream::connect(address)?;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let begun = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    assert_eq!(net::connect(&begun, &address), Err(Errno::INPROGRESS));
    let connecting = spawn(TcpSocket::try_from(begun)?.connect(address));
    yield_now().await;
    listener.accept()?;
    let stream = connecting.await.expect("the task panicked")?;
    assert_eq!(stream.peer_addr()?, address);
    assert_eq!(listener.accept()?.1, stream.local_addr()?);
    Ok(())
}

/// A dropped socket and a dropped connect free the address. Sockets with `SO_REUSEADDR` could bind
/// it even if they did not.
pub(crate) async fn dropped_sockets_leave_nothing() -> io::Result<()> {
    let listener = TcpListener::bind(local())?;
    let socket = TcpSocket::new_v4()?;
    socket.bind(own_address())?;
    let bound = socket.local_addr()?;
    drop(socket);
    let socket = TcpSocket::new_v4()?;
    socket.bind(bound)?;
    // A reset leaves no connection in TIME_WAIT.
    socket.set_linger(Some(Duration::ZERO))?;
    assert!(touch(socket.connect(listener.local_addr()?)).is_none());
    for _ in 0..100 {
        annulus::task::yield_now().await;
        if TcpSocket::new_v4()?.bind(bound).is_ok() {
            return Ok(());
        }
    }
    panic!("the address of a dropped connect is still in use");
}
