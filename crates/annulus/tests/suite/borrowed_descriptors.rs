//! Descriptors borrowed from handles, and handles made from descriptors of other code, on both
//! drivers. Tests run one at a time, since one of them counts descriptors.

use crate::common;

use annulus::fs::File;
use annulus::net::*;
use annulus::pipe::pipe;
use annulus::sim::Sim;
use annulus::task::yield_now;
use annulus::time::{Instant, sleep};
use annulus::{DriverChoice, Runtime, spawn};
use common::rerun::{self, rerun};
use common::{open_descriptors, run_on, touch};
use rustix::fs::fstat;
use rustix::io::{Errno, fcntl_getfd};
use rustix::net::{getsockname, sockopt};
use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::net;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net as unix;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const LOCAL: &str = "127.0.0.1:0";

fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn drivers() -> [DriverChoice; 2] {
    [DriverChoice::Auto, DriverChoice::Epoll]
}

fn on_each<F: Future<Output = io::Result<()>>>(body: fn() -> F) {
    let _alone = alone();
    drivers().into_iter().for_each(|choice| run_on(Runtime::builder().driver(choice), body()));
}

#[test]
fn options_missing_here_are_set_on_the_descriptor() {
    on_each(|| async {
        let (stream, _peer) = common::pair().await?;
        assert!(!sockopt::socket_oobinline(&stream)?);
        sockopt::set_socket_oobinline(&stream, true)?;
        assert!(sockopt::socket_oobinline(stream.as_fd())?);
        let listener = TcpListener::bind(LOCAL)?;
        assert!(sockopt::socket_acceptconn(&listener)?);
        let (one, _other) = UnixDatagram::pair()?;
        let (sender, receiver) = pipe()?;
        for fd in [one.as_fd(), sender.as_fd(), receiver.as_fd()] {
            fcntl_getfd(fd)?;
        }
        assert_ne!(sender.as_raw_fd(), receiver.as_raw_fd());
        Ok(())
    });
}

#[test]
fn a_borrowed_descriptor_stays_open_after_the_runtime_ends() {
    // Descriptors belong to the whole process, so this test needs a process of its own.
    if !rerun::is_alone(rerun!(a_borrowed_descriptor_stays_open_after_the_runtime_ends)) {
        return;
    }
    for choice in drivers() {
        let before = open_descriptors();
        let mut runtime = Runtime::builder().driver(choice).build().unwrap();
        let (mut stream, mut peer, listener) = runtime.block_on(async {
            let (stream, peer) = common::half_pair().await.unwrap();
            (stream, peer, TcpListener::bind(LOCAL).unwrap())
        });
        let address = stream.local_addr().unwrap();
        runtime.block_on(async { assert!(touch(stream.recv()).is_none()) });
        let (borrowed, listening) = (stream.as_fd(), listener.as_fd());
        drop(runtime);
        // Sockets opened now do not get the number of the borrowed descriptor.
        let others: Vec<_> = (0..8).map(|_| net::UdpSocket::bind(LOCAL).unwrap()).collect();
        assert_eq!(getsockname(borrowed).unwrap(), address.into());
        fcntl_getfd(listening).unwrap();
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the peer got bytes instead of the end");
        // A descriptor borrowed from now on is unusable.
        assert_eq!(getsockname(stream.as_fd()), Err(Errno::BADF));
        drop((stream, listener, others, peer));
        assert!(open_descriptors() <= before);
    }
}

#[test]
fn a_duplicate_of_a_listener_outlives_the_runtime() {
    let _alone = alone();
    for driver in drivers() {
        let (listener, duplicate) = run_on(Runtime::builder().driver(driver), async {
            let listener = TcpListener::bind(LOCAL)?;
            let duplicate = listener.as_fd().try_clone_to_owned()?;
            yield_now().await;
            Ok((listener, duplicate))
        });
        let successor = net::TcpListener::from(duplicate);
        let _client = net::TcpStream::connect(successor.local_addr().unwrap()).unwrap();
        successor.set_nonblocking(false).unwrap();
        successor.accept().unwrap();
        drop(listener);
    }
}

#[test]
fn a_truncated_stream_is_reset_even_if_its_descriptor_was_exposed() {
    let _alone = alone();
    for choice in drivers() {
        let builder = Runtime::builder().driver(choice).shutdown_timeout(Duration::ZERO);
        let mut runtime = builder.build().unwrap();
        let (mut stream, mut peer) = runtime.block_on(common::half_pair()).unwrap();
        runtime.block_on(async {
            let more_than_sockets_hold = vec![1; 64 << 20];
            assert!(touch(stream.send(more_than_sockets_hold)).is_none());
        });
        let borrowed = stream.as_fd();
        drop(runtime);
        fcntl_getfd(borrowed).unwrap();
        let error = io::copy(&mut peer, &mut io::sink()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn a_borrowed_descriptor_is_closed_with_its_handle() {
    on_each(|| async {
        let listener = TcpListener::bind(LOCAL)?;
        yield_now().await;
        let before = open_descriptors();
        for _ in 0..20 {
            let stream = TcpStream::connect(listener.local_addr()?).await?;
            let (peer, _) = listener.accept().await?;
            assert!(stream.as_raw_fd() != peer.as_raw_fd());
        }
        while open_descriptors() > before {
            yield_now().await;
        }
        Ok(())
    });
}

/// The close resets the connection, because the peer has sent bytes that nobody reads.
#[test]
fn sent_bytes_arrive_before_an_exposed_descriptor_is_closed() {
    on_each(|| async {
        for closes in [false, true] {
            let (mut client, mut server) = common::pair().await?;
            server.as_fd();
            client.send("nobody reads this").await?;
            client.drain().await?;
            let bytes = common::pattern(4 << 20);
            let expected = bytes.clone();
            let reading = spawn(async move {
                let mut got = Vec::new();
                while got.len() < expected.len() {
                    sleep(Duration::from_micros(50)).await;
                    let lease = client.recv().await?.expect("the stream ended too early");
                    got.extend_from_slice(&lease);
                }
                assert!(got == expected);
                io::Result::Ok(())
            });
            server.send(bytes).await?;
            if closes {
                server.close().await?;
            } else {
                drop(server);
            }
            reading.await.expect("the task panicked")?;
        }
        Ok(())
    });
}

/// With a time to linger, `close` waits that long if the peer does not acknowledge all bytes.
#[test]
fn a_close_does_not_block_if_other_code_has_set_a_time_to_linger() {
    const LINGER: Duration = Duration::from_secs(6);
    let _alone = alone();
    for choice in drivers() {
        let builder = Runtime::builder().driver(choice).linger(Duration::from_millis(50));
        run_on(builder, async {
            let listener = net::TcpListener::bind(LOCAL)?;
            // Bytes that the peer has no space for stay unacknowledged.
            sockopt::set_socket_recv_buffer_size(&listener, 4096)?;
            let connect = || {
                let stream = net::TcpStream::connect(listener.local_addr()?)?;
                sockopt::set_socket_linger(&stream, Some(LINGER))?;
                io::Result::Ok(stream)
            };
            let adopted = TcpStream::from_std(connect()?)?;
            let moved = TcpStream::from_parts(Parts::new(connect()?.into(), Vec::new()))?;
            assert_eq!((adopted.linger()?, moved.linger()?), (None, None));
            let exposed = TcpStream::connect(listener.local_addr()?).await?;
            sockopt::set_socket_linger(&exposed, Some(LINGER))?;
            let mut peers = Vec::new();
            for mut stream in [adopted, moved, exposed] {
                peers.push(listener.accept()?);
                stream.set_send_buffer_size(1 << 20)?;
                stream.send(vec![0; 256 * 1024]).await?;
                stream.drain().await?;
                assert!(stream.unacknowledged() > 0, "the peer has acknowledged everything");
            }
            let dropped = Instant::now();
            sleep(Duration::from_millis(200)).await;
            assert!(dropped.elapsed() < LINGER / 2, "a close has blocked the loop on {choice}");
            Ok(())
        });
    }
}

#[test]
fn connections_do_not_inherit_a_time_to_linger_from_an_adopted_listener() {
    on_each(|| async {
        let listener = net::TcpListener::bind(LOCAL)?;
        sockopt::set_socket_linger(&listener, Some(Duration::from_secs(6)))?;
        let listener = TcpListener::from_std(listener)?;
        let _client = TcpStream::connect(listener.local_addr()?).await?;
        assert_eq!(listener.accept().await?.0.linger()?, None);
        Ok(())
    });
}

#[test]
fn a_simulation_exposes_no_descriptor() {
    let _alone = alone();
    run_on(Runtime::builder().kernel(Sim::builder(1).build()), async {
        let listener = TcpListener::bind(LOCAL)?;
        assert_eq!(fcntl_getfd(&listener).map(drop), Err(Errno::BADF));
        assert_eq!(fstat(&listener).map(drop), Err(Errno::BADF));
        assert_eq!(getsockname(&listener), Err(Errno::BADF));
        assert!(listener.as_fd().try_clone_to_owned().is_err());
        let error = UdpSocket::from_std(net::UdpSocket::bind(LOCAL)?).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        Ok(())
    });
}

#[test]
fn std_streams_and_listeners_are_adopted() {
    on_each(|| async {
        let listener = TcpListener::from_std(net::TcpListener::bind(LOCAL)?)?;
        let mut std_stream = net::TcpStream::connect(listener.local_addr()?)?;
        let (mut accepted, _) = listener.accept().await?;
        let mut taken = TcpStream::from_std(std_stream.try_clone()?)?;
        taken.send("from here").await?;
        assert_eq!(accepted.recv().await?.as_deref(), Some(&b"from here"[..]));
        // The other owner of the socket finds it non-blocking.
        assert_eq!(std_stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        std_stream.write_all(b"and from there")?;
        assert_eq!(accepted.recv().await?.as_deref(), Some(&b"and from there"[..]));
        let (one, mut other) = unix::UnixStream::pair()?;
        let mut one = UnixStream::from_std(one)?;
        other.write_all(b"unix")?;
        assert_eq!(one.recv().await?.as_deref(), Some(&b"unix"[..]));
        let parts = one.into_parts().await?;
        drop(unix::UnixStream::from(parts.socket));
        assert_eq!(other.read(&mut [0])?, 0);
        Ok(())
    });
}

#[test]
fn std_datagram_sockets_are_adopted_with_their_peer() {
    on_each(|| async {
        let std_socket = net::UdpSocket::bind(LOCAL)?;
        let connected = net::UdpSocket::bind(LOCAL)?;
        connected.connect(std_socket.local_addr()?)?;
        let taken = UdpSocket::from_std(connected)?;
        taken.send("to its peer").await?;
        let echo = UdpSocket::from_std(std_socket)?;
        let (bytes, source) = echo.recv_from().await?;
        assert_eq!((&*bytes, source), (&b"to its peer"[..], taken.local_addr()?));
        let (one, other) = unix::UnixDatagram::pair()?;
        let one = UnixDatagram::from_std(one)?;
        one.send("unix").await?;
        one.drain().await?;
        let mut bytes = [0; 8];
        assert_eq!(other.recv(&mut bytes)?, 4);
        Ok(())
    });
}

#[test]
fn a_std_unix_listener_is_adopted() {
    on_each(|| async {
        let path = std::env::temp_dir().join(format!("annulus-taken-{}", std::process::id()));
        _ = std::fs::remove_file(&path);
        let listener = UnixListener::from_std(unix::UnixListener::bind(&path)?)?;
        let accepted = spawn(async move { listener.accept().await.map(|(stream, _)| stream) });
        let mut client = UnixStream::connect(&path).await?;
        std::fs::remove_file(&path)?;
        accepted.await.expect("the task panicked")?.send("hello").await?;
        assert_eq!(client.recv().await?.as_deref(), Some(&b"hello"[..]));
        Ok(())
    });
}

#[test]
fn descriptors_of_another_kind_are_refused() {
    on_each(|| async {
        let fd = |fd: net::UdpSocket| OwnedFd::from(fd);
        let udp = || net::UdpSocket::bind(LOCAL).map(fd);
        let listening = || net::TcpListener::bind(LOCAL).map(OwnedFd::from);
        let unix = || unix::UnixDatagram::unbound().map(OwnedFd::from);
        let file = || std::fs::File::open("/dev/null").map(OwnedFd::from);
        let refused = [
            (
                TcpStream::try_from(udp()?).map(drop),
                "is an IPv4 datagram socket; a TCP connection is required",
            ),
            (TcpStream::try_from(listening()?).map(drop), "is a listening IPv4 stream socket; "),
            (TcpListener::try_from(udp()?).map(drop), "a listening TCP socket"),
            (UdpSocket::try_from(unix()?).map(drop), "is a Unix datagram socket; a UDP socket"),
            (UnixStream::try_from(unix()?).map(drop), "a Unix stream"),
            (UnixListener::try_from(listening()?).map(drop), "a listening Unix socket"),
            (UnixDatagram::try_from(udp()?).map(drop), "a Unix datagram socket"),
            (TcpStream::try_from(file()?).map(drop), "is not a socket"),
        ];
        for (outcome, text) in refused {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(text), "{error} has no `{text}`");
        }
        Ok(())
    });
}

#[test]
fn std_files_are_adopted_and_exposed() {
    on_each(|| async {
        let path = std::env::temp_dir().join(format!("annulus-lent-{}", std::process::id()));
        std::fs::write(&path, "content")?;
        let file = File::from_std(std::fs::File::open(&path)?)?;
        std::fs::remove_file(&path)?;
        let (count, bytes) = file.read_at(vec![0; 16], 0).await;
        assert_eq!(&bytes[..count?], b"content");
        let mut copy = std::fs::File::from(file.as_fd().try_clone_to_owned()?);
        let mut text = String::new();
        copy.read_to_string(&mut text)?;
        assert_eq!(text, "content");
        Ok(())
    });
}
