//! Connecting and accepting.

use crate::common::{echo, own_address, pair, pattern, receive, touch};
use crate::conformance::unix::TestPath;
use annulus::net::{
    ConnectOptions, ConnectionLimit, ListenOptions, TcpListener, TcpStream, UdpSocket,
    UnixListener, UnixOptions, UnixStream,
};
use annulus::process::{Command, Stdio};
use annulus::task::yield_now;
use annulus::time::{sleep, timeout};
use annulus::{counters, spawn};
use futures_util::future::{Either, select};
use futures_util::poll;
use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// An address on which nothing listens.
const CLOSED: &str = "127.0.0.1:1";

pub(crate) async fn both_ends_know_both_addresses() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut client = TcpStream::connect(address).await?;
    let (server, from) = listener.accept().await?;
    assert_eq!(client.peer_addr()?, address);
    assert_eq!(server.local_addr()?, address);
    assert_eq!((client.local_addr()?, from), (from, server.peer_addr()?));
    spawn(echo(server));
    client.send("to and fro").await?;
    assert_eq!(receive(&mut client, 10).await?, b"to and fro");
    Ok(())
}

pub(crate) async fn a_client_connects_from_the_given_address() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let source = IpAddr::from([127, 0, 0, 9]);
    for _ in 0..3 {
        let options = ConnectOptions::new().source(source);
        let client = options.connect(listener.local_addr()?).await?;
        let (_server, from) = listener.accept().await?;
        assert_eq!(from.ip(), source);
        assert_eq!(client.local_addr()?, from);
    }
    Ok(())
}

/// A reset crosses the network on its own. If a connection is accepted before its reset arrives, it
/// has an address; the test then tries again with another connection.
pub(crate) async fn a_reset_before_the_accept_is_counted() -> io::Result<()> {
    let aborted = || counters().unwrap().aborted_accepts;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // From now on, the listener accepts connections.
    assert!(touch(listener.accept()).is_none());
    for _ in 0..100 {
        let before = aborted();
        TcpStream::connect(listener.local_addr()?).await?.abort();
        let client = TcpStream::connect(listener.local_addr()?).await?;
        let (_stream, mut from) = listener.accept().await?;
        let counted = aborted() - before;
        if counted == 0 {
            assert_ne!(
                from,
                client.local_addr()?,
                "the connection that was reset is neither counted nor accepted"
            );
            from = listener.accept().await?.1;
        }
        assert_eq!(from, client.local_addr()?);
        if counted > 0 {
            assert_eq!(counted, 1);
            return Ok(());
        }
    }
    panic!("none of 100 connections that were reset immediately was skipped");
}

pub(crate) async fn a_refusal_contains_the_address() -> io::Result<()> {
    for _ in 0..10 {
        let error = TcpStream::connect(CLOSED).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains(CLOSED), "{error}");
    }
    // Listeners can still be reached.
    pair().await.map(drop)
}

/// Only one socket at a time can have a local port, so each attempt must give it up.
pub(crate) async fn a_local_port_serves_one_attempt_after_another() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (closed, open) = (CLOSED.parse().unwrap(), listener.local_addr()?);
    let local = TcpListener::bind(own_address())?.local_addr()?;
    let options = ConnectOptions::new().bind(local);
    for _ in 0..3 {
        let error = options.connect(closed).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
        // Dropped before the turn in which it starts, and after it.
        assert!(touch(options.connect(closed)).is_none());
        _ = timeout(Duration::ZERO, options.connect(closed)).await;
    }
    let client = options.connect(&[closed, closed, open][..]).await?;
    assert_eq!((client.local_addr()?, client.peer_addr()?), (local, open));
    Ok(())
}

/// Linux connects a socket to its own port if nothing listens there.
pub(crate) async fn a_connection_to_oneself_is_refused() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    drop(listener);
    yield_now().await;
    let options = ConnectOptions::new().bind(address).reuse_address(true);
    let unspecified = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
    for to in [address, unspecified] {
        let error = options.connect(to).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains(&to.to_string()), "{error}");
    }
    // The port is free at once.
    let listener = TcpListener::bind(address)?;
    drop(TcpStream::connect(listener.local_addr()?).await?);
    Ok(())
}

pub(crate) async fn a_thousand_connections_echo() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            spawn(echo(stream));
        }
    });
    let client = move |number: usize| async move {
        let mut stream = TcpStream::connect(address).await?;
        for round in 0..2 {
            let sent = pattern(number + round)[number.saturating_sub(100)..].to_vec();
            stream.send(sent.clone()).await?;
            assert!(receive(&mut stream, sent.len()).await? == sent, "connection {number}");
        }
        io::Result::Ok(stream)
    };
    let clients: Vec<_> = (1..=1000).map(|number| spawn(client(number))).collect();
    let mut open = Vec::new();
    for client in clients {
        open.push(client.await.expect("the task panicked")?);
    }
    assert_eq!(open.len(), 1000, "not all connections are open at once");
    Ok(())
}

/// The listeners share a limit. Each client waits for an answer and disconnects.
pub(crate) async fn a_limit_applies_across_several_listeners() -> io::Result<()> {
    let limit = ConnectionLimit::new(3);
    let mut clients = Vec::new();
    for _ in 0..2 {
        let listener = ListenOptions::new().limit(&limit).bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let limit = limit.clone();
        spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                assert!((1..=limit.max()).contains(&limit.open()), "{limit:?}");
                spawn(echo(stream));
            }
        });
        for number in 0..20 {
            clients.push(spawn(async move {
                let mut client = TcpStream::connect(address).await?;
                client.send(pattern(number + 1)).await?;
                assert!(receive(&mut client, number + 1).await? == pattern(number + 1));
                io::Result::Ok(())
            }));
        }
    }
    for client in clients {
        client.await.expect("the task panicked")?;
    }
    // Waits until the servers have received the end of the last connections.
    while limit.open() > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// While one connection is open, no other is accepted, even if accepts are dropped in the meantime.
pub(crate) async fn a_limit_counts_until_the_close() -> io::Result<()> {
    let limit = ConnectionLimit::new(1);
    let (process, thread) = (std::process::id(), std::thread::current().id());
    let name = format!("annulus limit {process} {thread:?}");
    let name = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    let listener = UnixOptions::new().limit(&limit).listen_addr(&name)?;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(UnixStream::connect_addr(&name).await?);
    }
    for client in &mut clients {
        let (mut server, _) = listener.accept().await?;
        assert_eq!(limit.open(), 1);
        for _ in 0..3 {
            let early = timeout(Duration::from_millis(1), listener.accept()).await;
            assert!(early.is_err(), "a second connection was accepted within a limit of one");
        }
        server.send("welcome").await?;
        assert_eq!(client.recv().await?.as_deref(), Some(&b"welcome"[..]));
    }
    drop(listener);
    assert_eq!(limit.open(), 0);
    Ok(())
}

/// Each accept belongs to a task of its own, so the limit cannot recognise a task that it knows.
pub(crate) async fn dropped_accepts_at_a_limit_keep_no_waker() -> io::Result<()> {
    struct Task(#[expect(dead_code, reason = "it is only counted")] Arc<()>);
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let limit = ConnectionLimit::new(1);
    let options = ListenOptions::new().limit(&limit);
    let (one, other) = (options.bind("127.0.0.1:0")?, options.bind("127.0.0.1:0")?);
    let mut clients = Vec::new();
    for listener in [&one, &one, &other, &other] {
        clients.push(TcpStream::connect(listener.local_addr()?).await?);
    }
    let first = one.accept().await?;
    let [mut on_one, mut on_other] = [&one, &other].map(|listener| Box::pin(listener.accept()));
    let kept = Arc::new(());
    for number in 0..200 {
        assert!(poll!(&mut on_one).is_pending() && poll!(&mut on_other).is_pending());
        let mut early = Box::pin(if number % 2 == 0 { one.accept() } else { other.accept() });
        let waker = Waker::from(Arc::new(Task(kept.clone())));
        assert!(early.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop((early, waker));
        yield_now().await;
        let kept = Arc::strong_count(&kept) - 1;
        assert!(kept <= 4, "the limit keeps the wakers of {kept} dropped accepts");
    }
    // The waits that are left are woken.
    drop(first);
    let (Either::Left((next, last)) | Either::Right((next, last))) = select(on_one, on_other).await;
    drop(next?);
    drop(last.await?);
    yield_now().await;
    assert_eq!(Arc::strong_count(&kept), 1);
    Ok(())
}

pub(crate) async fn a_connection_that_other_code_accepts_returns_its_permit() -> io::Result<()> {
    let limit = ConnectionLimit::new(1);
    let options = ListenOptions::new().limit(&limit);
    let (shared, other) = (options.bind("127.0.0.1:0")?, options.bind("127.0.0.1:0")?);
    let duplicate = std::net::TcpListener::from(shared.as_fd().try_clone_to_owned()?);
    spawn(async move { shared.accept().await });
    yield_now().await;
    let _client = std::net::TcpStream::connect(duplicate.local_addr()?)?;
    while limit.open() == 0 {
        yield_now().await;
    }
    // The runtime has taken a permit, and on io_uring its accept has not started yet.
    if duplicate.accept().is_ok() {
        let _client = TcpStream::connect(other.local_addr()?).await?;
        let _accepted = other.accept().await?;
        assert_eq!(limit.open(), 1);
    }
    Ok(())
}

pub(crate) async fn connections_are_accepted_before_a_task_waits() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(TcpStream::connect(address).await?);
    }
    let mut expected = HashSet::new();
    let mut seen = HashSet::new();
    for client in &clients {
        expected.insert(client.local_addr()?);
        seen.insert(listener.accept().await?.1);
    }
    assert_eq!(seen, expected);
    Ok(())
}

pub(crate) async fn an_address_is_free_at_once_for_another_socket() -> io::Result<()> {
    let mut listener = TcpListener::bind("127.0.0.1:0")?;
    let mut socket = UdpSocket::bind("127.0.0.1:0")?;
    let (address, datagrams) = (listener.local_addr()?, socket.local_addr()?);
    for waits in [true, false, true] {
        // Drops both handles in the turn of their first operation, and then in a later turn.
        for later in [false, true] {
            assert!(touch(listener.accept()).is_none());
            assert!(touch(socket.recv_from()).is_none());
            if later {
                yield_now().await;
            }
            if waits {
                sleep(Duration::from_millis(1)).await;
            }
            drop((listener, socket));
            (listener, socket) = (TcpListener::bind(address)?, UdpSocket::bind(datagrams)?);
        }
    }
    // The new listener serves connections.
    let client = TcpStream::connect(address).await?;
    drop((client, listener.accept().await?));
    drop(listener);
    // The listener closes at the end of this turn or, with a polling kernel thread, once that
    // thread has taken the cancel.
    while TcpStream::connect(address).await.is_ok() {
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Code that uses a descriptor for a call that this crate lacks must not block the loop.
pub(crate) async fn exposed_descriptors_are_non_blocking() -> io::Result<()> {
    let (client, server) = pair().await?;
    let path = TestPath::new();
    let listener = UnixListener::bind(&path)?;
    let unix_client = UnixStream::connect(&path).await?;
    let (unix_server, _unnamed) = listener.accept().await?;
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    let all: [(&str, &dyn AsFd); 6] = [
        ("connected", &client),
        ("accepted", &server),
        ("a connected Unix stream", &unix_client),
        ("an accepted Unix stream", &unix_server),
        ("a listener", &listener),
        ("a UDP socket", &udp),
    ];
    for (what, socket) in all {
        let flags = rustix::fs::fcntl_getfl(socket.as_fd())?;
        assert!(flags.contains(rustix::fs::OFlags::NONBLOCK), "{what}");
    }
    Ok(())
}

/// Accepted, connected and paired sockets each become the standard streams of a child that cannot
/// handle `EAGAIN`.
pub(crate) async fn sockets_are_blocking_as_standard_streams_of_a_child() -> io::Result<()> {
    let (client, server) = pair().await?;
    let tcp = [(client, "connected"), (server, "accepted")];
    let (one, other) = UnixStream::pair()?;
    let mut sockets = Vec::new();
    for (stream, what) in tcp {
        sockets.push((stream.into_parts().await?.socket, what));
    }
    sockets.push((one.into_parts().await?.socket, "a pair"));
    let halves = other.into_split();
    let whole =
        UnixStream::reunite(halves.0, halves.1).expect("the halves belong to different streams");
    sockets.push((whole.into_parts().await?.socket, "two halves"));
    for (socket, what) in &sockets {
        let flags = rustix::fs::fcntl_getfl(socket)?;
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "{what}");
    }
    // A runtime takes one end back, and a child inherits the other: the child waits for data that
    // is sent later.
    let (mut near, far) = pair().await?;
    let near_parts = near.into_parts().await?;
    near = TcpStream::from_parts(near_parts)?;
    let socket = far.into_parts().await?.socket;
    let mut command = Command::new("cat");
    command.stdin(Stdio::from(socket.try_clone()?)).stdout(Stdio::from(socket));
    let mut child = command.spawn()?;
    // In this process, only the command holds descriptors of the child's end.
    drop(command);
    near.send("echo").await?;
    assert_eq!(&*near.recv_exact(4).await?, b"echo");
    near.shutdown().await?;
    assert!(near.recv().await?.is_none());
    assert!(child.wait().await?.success());
    Ok(())
}

/// Only with real descriptors: `into_parts` is refused on a simulated kernel.
pub(crate) async fn a_connection_moves_with_its_received_bytes() -> io::Result<()> {
    let (mut client, mut server) = pair().await?;
    client.send("already here, ").await?;
    assert_eq!(receive(&mut server, 7).await?.len(), 14);
    client.send("in flight").await?;
    let parts = match server.into_parts().await {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => return Ok(()),
        parts => parts?,
    };
    let mut moved = TcpStream::from_parts(parts)?;
    client.shutdown().await?;
    assert_eq!(receive(&mut moved, 100).await?, b"in flight");
    moved.send("and back").await?;
    assert_eq!(receive(&mut client, 8).await?, b"and back");
    Ok(())
}

/// A move without an error would make the bytes before the reset look like a complete message.
pub(crate) async fn a_connection_that_was_reset_does_not_move() -> io::Result<()> {
    // Only the move itself shows that the reset has arrived. That takes long on a slow machine, so
    // the wait grows.
    for wait in [5, 50, 500, 5000].map(Duration::from_millis) {
        let (mut client, mut server) = pair().await?;
        client.send("half a message").await?;
        client.drain().await?;
        assert!(touch(server.recv()).is_none());
        client.abort();
        sleep(wait).await;
        if let Err(error) = server.into_parts().await {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
            return Ok(());
        }
    }
    panic!("connections that were reset were moved");
}

/// A standard library stream gets the bytes that were not received here.
pub(crate) async fn a_connection_converts_to_the_standard_library() -> io::Result<()> {
    let (mut client, server) = pair().await?;
    client.send("to be read there").await?;
    client.drain().await?;
    let mut server = server.into_std().await?;
    let mut bytes = [0; 16];
    assert_eq!((io::Read::read(&mut server, &mut bytes)?, &bytes), (16, b"to be read there"));
    let waits = io::Read::read(&mut server, &mut bytes).unwrap_err();
    assert_eq!(waits.kind(), io::ErrorKind::WouldBlock);
    let (mut one, mut other) = annulus::net::UnixStream::pair()?;
    one.send("received ahead").await?;
    other.fill_at_least(1).await?;
    let error = other.into_std().await.unwrap_err();
    assert!(error.to_string().contains("14 bytes"), "{error}");
    Ok(())
}

/// A close is ready once the descriptor is closed and the kernel has everything that was accepted.
pub(crate) async fn a_close_waits_for_sent_bytes() -> io::Result<()> {
    let streams = || annulus::stats().expect("not in a runtime").resources.streams;
    let (mut one, mut other) = pair().await?;
    let before = streams();
    let bytes = pattern(1_000_000);
    // The send is dropped after one poll, but its bytes have been accepted and are still sent.
    _ = touch(one.send(bytes.clone()));
    let close = spawn(one.close());
    yield_now().await;
    assert!(!close.is_finished(), "the close ended before the peer had read");
    assert!(receive(&mut other, bytes.len()).await? == bytes);
    close.await.expect("the task panicked")?;
    assert_eq!(streams(), before - 1);
    assert!(other.recv().await?.is_none());
    let (one, other) = pair().await?;
    other.abort();
    // The close returns the reset only if it has arrived in time.
    sleep(Duration::from_millis(5)).await;
    _ = one.close().await;
    let (mut one, other) = pair().await?;
    other.abort();
    while one.recv().await.is_ok() {}
    assert_eq!(one.close().await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    Ok(())
}
