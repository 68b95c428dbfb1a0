//! Socket options read back the values that were set, and unsupported values are refused.

use crate::common::own_address;
use annulus::net::*;
use std::io::{self, ErrorKind};
use std::time::Duration;

const LOCAL: &str = "127.0.0.1:0";

async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(LOCAL)?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    Ok((client, listener.accept().await?.0))
}

pub(crate) async fn options_of_a_stream_read_back_as_set() -> io::Result<()> {
    let (stream, _peer) = pair().await?;
    assert!(stream.nodelay()?, "TCP_NODELAY is off by default");
    for on in [false, true] {
        stream.set_nodelay(on)?;
        stream.set_quickack(on)?;
        assert_eq!((stream.nodelay()?, stream.quickack()?), (on, on));
    }
    let time = Some(Duration::from_millis(1500));
    stream.set_user_timeout(time)?;
    assert_eq!(stream.user_timeout()?, time);
    stream.set_user_timeout(None)?;
    assert_eq!(stream.user_timeout()?, None);
    stream.set_ttl(9)?;
    stream.set_tos(0xb8)?;
    assert_eq!((stream.ttl()?, stream.tos()?), (9, 0xb8));
    stream.set_recv_buffer_size(20_000)?;
    stream.set_send_buffer_size(30_000)?;
    assert_eq!((stream.recv_buffer_size()?, stream.send_buffer_size()?), (40_000, 60_000));
    assert_eq!(stream.linger()?, None);
    stream.set_linger(Some(Duration::ZERO))?;
    assert_eq!(stream.linger()?, Some(Duration::ZERO));
    assert!(stream.take_error()?.is_none());
    Ok(())
}

pub(crate) async fn a_stream_is_probed_as_configured() -> io::Result<()> {
    let (stream, _peer) = pair().await?;
    assert_eq!(stream.keepalive()?, None);
    let keepalive =
        KeepAlive { time: Duration::from_millis(4001), retries: 3, ..KeepAlive::default() };
    stream.set_keepalive(Some(keepalive))?;
    let rounded = KeepAlive { time: Duration::from_secs(5), ..keepalive };
    assert_eq!(stream.keepalive()?, Some(rounded));
    stream.set_keepalive(None)?;
    assert_eq!(stream.keepalive()?, None);
    let unknown = [
        (KeepAlive { time: Duration::ZERO, ..keepalive }, "time of 0ns"),
        (KeepAlive { interval: Duration::from_secs(32_768), ..keepalive }, "interval of 32768s"),
        (KeepAlive { time: Duration::MAX, ..keepalive }, "time of 18446744073709551615.999999999s"),
        (KeepAlive { retries: 128, ..keepalive }, "retries of 128"),
    ];
    for (keepalive, named) in unknown {
        let error = stream.set_keepalive(Some(keepalive)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(named), "{error}");
    }
    assert_eq!(stream.keepalive()?, None, "a refused keep-alive was set");
    Ok(())
}

pub(crate) async fn a_close_that_would_wait_is_refused() -> io::Result<()> {
    let (stream, mut peer) = pair().await?;
    let error = stream.set_linger(Some(Duration::from_secs(3))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("3s"), "{error}");
    stream.set_linger(Some(Duration::ZERO))?;
    drop(stream);
    assert_eq!(peer.recv().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    Ok(())
}

pub(crate) async fn accepted_streams_inherit_the_options_of_their_listener() -> io::Result<()> {
    let keepalive = KeepAlive { retries: 4, ..KeepAlive::default() };
    let listener = ListenOptions::new()
        .nodelay(false)
        .user_timeout(Some(Duration::from_secs(7)))
        .ttl(11)
        .keepalive(keepalive)
        .bind(LOCAL)?;
    assert!(listener.reuse_address()?);
    assert!(!listener.reuse_port()?);
    assert_eq!(listener.ttl()?, 11);
    let _client = TcpStream::connect(listener.local_addr()?).await?;
    let (server, _) = listener.accept().await?;
    assert!(!server.nodelay()?);
    assert_eq!(server.user_timeout()?, Some(Duration::from_secs(7)));
    assert_eq!(server.ttl()?, 11);
    assert_eq!(server.keepalive()?, Some(keepalive));
    Ok(())
}

pub(crate) async fn a_client_connects_with_options_from_a_given_port() -> io::Result<()> {
    let listener = TcpListener::bind(LOCAL)?;
    let free = TcpListener::bind(own_address())?.local_addr()?;
    let options = ConnectOptions::new().nodelay(false).reuse_address(true).tos(0x10).bind(free);
    // The listener that had the port has been dropped in this turn.
    let client = options.connect(listener.local_addr()?).await?;
    let (_server, peer) = listener.accept().await?;
    assert_eq!((peer, client.local_addr()?), (free, free));
    assert_eq!((client.nodelay()?, client.tos()?), (false, 0x10));
    let bad = ConnectOptions::new().keepalive(KeepAlive { retries: 0, ..KeepAlive::default() });
    let error = bad.connect(listener.local_addr()?).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("retries of 0"), "{error}");
    Ok(())
}

pub(crate) async fn an_ipv6_listener_accepts_one_protocol_or_both() -> io::Result<()> {
    let both = ListenOptions::new().only_v6(false).bind("[::]:0")?;
    assert!(!both.only_v6()?);
    let port = both.local_addr()?.port();
    let client = TcpStream::connect(("127.0.0.1", port)).await?;
    let (server, peer) = both.accept().await?;
    assert_eq!(peer.ip().to_canonical(), client.local_addr()?.ip());
    // An IPv4 connection uses the IPv4 options, even on an IPv6 socket.
    server.set_ttl(5)?;
    assert_eq!(server.ttl()?, 5);
    let one = ListenOptions::new().only_v6(true).bind("[::]:0")?;
    assert!(one.only_v6()?);
    let port = one.local_addr()?.port();
    let refused = TcpStream::connect(("127.0.0.1", port)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    Ok(())
}

pub(crate) async fn options_of_a_udp_socket_read_back_as_set() -> io::Result<()> {
    let socket = UdpOptions::new().reuse_address(true).broadcast(true).ttl(3).bind(LOCAL)?;
    assert!(socket.reuse_address()? && socket.broadcast()? && !socket.reuse_port()?);
    assert_eq!((socket.ttl()?, socket.multicast_ttl()?, socket.multicast_loop()?), (3, 1, true));
    socket.set_broadcast(false)?;
    socket.set_multicast_ttl(4)?;
    socket.set_multicast_loop(false)?;
    socket.set_send_buffer_size(30_000)?;
    assert!(!socket.broadcast()? && !socket.multicast_loop()?);
    assert_eq!((socket.multicast_ttl()?, socket.send_buffer_size()?), (4, 60_000));
    assert!(socket.take_error()?.is_none());
    Ok(())
}

pub(crate) async fn options_of_unix_sockets_read_back_as_set() -> io::Result<()> {
    let (stream, _peer) = UnixOptions::new().send_buffer_size(30_000).pair()?;
    assert_eq!(stream.send_buffer_size()?, 60_000);
    let (socket, _peer) = UnixDatagram::pair()?;
    socket.set_recv_buffer_size(20_000)?;
    assert_eq!(socket.recv_buffer_size()?, 40_000);
    assert!(socket.take_error()?.is_none() && stream.take_error()?.is_none());
    Ok(())
}

pub(crate) async fn sockets_are_bound_to_an_interface() -> io::Result<()> {
    let socket = UdpOptions::new().bind_device("lo").bind(LOCAL)?;
    assert_eq!(socket.device()?.as_deref(), Some("lo"));
    let (stream, _peer) = pair().await?;
    assert_eq!(stream.device()?, None);
    for name in ["", "a name of more than 15 bytes", "a/b"] {
        let error = stream.bind_device(Some(name)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(name), "{error}");
    }
    let error = ListenOptions::new().bind_device("nosuch0").bind(LOCAL).unwrap_err();
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
    Ok(())
}
