//! Sends that are queued behind one which settles by silence, when nothing else happens: the peers are threads with sockets of the standard library,
//! since a peer in the runtime would have the loop turn by its events.

use crate::common;

use annulus::net::{TcpStream, Transmit, UdpSocket, UnixDatagram};
use annulus::pipe::Sender;
use annulus::time::timeout;
use annulus::{DriverChoice, Runtime, spawn_blocking, yield_now};
use common::{run_on, touch};
use std::io::{self, Read};
use std::net::{self, Ipv4Addr};
use std::os::unix::net::UnixDatagram as StdUnixDatagram;
use std::time::Duration;

/// Runs a body on each driver.
fn on_each<F: Future<Output = io::Result<()>>>(body: fn() -> F) {
    let mut drivers = vec![DriverChoice::Epoll];
    match annulus_ring::Features::detect() {
        Ok(_) => drivers.push(DriverChoice::Uring),
        Err(_) => eprintln!("skipped on io_uring, which is blocked here"),
    }
    drivers.into_iter().for_each(|driver| run_on(Runtime::builder().driver(driver), body()));
}

/// Queues sends in one poll while a thread waits for their bytes, which are returned.
async fn brought(
    read: impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static,
    queue: impl FnOnce() -> Option<io::Result<()>>,
) -> io::Result<Vec<u8>> {
    let reads = spawn_blocking(read);
    yield_now().await;
    queue().expect("there is space")?;
    // The timer of the time-out is the only other event.
    timeout(Duration::from_secs(20), reads).await.expect("a part has never left").expect("no panic")
}

/// As many bytes as this.
fn read_exact(mut from: impl Read, count: usize) -> io::Result<Vec<u8>> {
    let mut got = vec![0; count];
    from.read_exact(&mut got)?;
    Ok(got)
}

#[test]
fn of_a_tcp_stream() {
    on_each(|| async {
        let listener = net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut stream = TcpStream::connect(listener.local_addr()?).await?;
        let peer = listener.accept()?.0;
        let got = brought(
            || read_exact(peer, 4),
            || {
                touch(stream.send("a"))?.ok()?;
                touch(stream.write(b"b"))?.ok()?;
                touch(stream.write_vectored(&[io::IoSlice::new(b"c")]))?.ok()?;
                touch(stream.send("d"))
            },
        );
        assert_eq!(got.await?, b"abcd");
        Ok(())
    });
}

#[test]
fn of_a_pipe() {
    on_each(|| async {
        let (reader, writer) = io::pipe()?;
        let mut sender = Sender::try_from(std::os::fd::OwnedFd::from(writer))?;
        let got = brought(
            || read_exact(reader, 3),
            || {
                touch(sender.send("a"))?.ok()?;
                touch(sender.write(b"b"))?.ok()?;
                touch(sender.send("c"))
            },
        );
        assert_eq!(got.await?, b"abc");
        Ok(())
    });
}

/// One of them leaves a turn.
#[test]
fn of_a_unix_datagram_socket() {
    on_each(|| async {
        let (socket, peer) = StdUnixDatagram::pair()?;
        let socket = UnixDatagram::try_from(socket)?;
        let read = move || {
            let mut got = vec![0; 5];
            got.iter_mut().try_for_each(|byte| peer.recv(std::slice::from_mut(byte)).map(drop))?;
            Ok(got)
        };
        let queue = || (0..5u8).try_for_each(|byte| touch(socket.send(vec![byte]))?.ok()).map(Ok);
        assert_eq!(brought(read, queue).await?, [0, 1, 2, 3, 4]);
        Ok(())
    });
}

#[test]
fn of_a_udp_socket() {
    on_each(|| async {
        let peer = net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let to = peer.local_addr()?;
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let read = move || {
            let mut buffer = [0; 8192];
            (0..3).map(|_| peer.recv(&mut buffer).map(|len| len as u8)).collect()
        };
        let queue = || {
            touch(socket.send_to(vec![1; 1], to))?.ok()?;
            socket.try_send(&[1; 2], &Transmit::to(to)).ok()?;
            touch(socket.send_to(vec![1; 3], to))
        };
        assert_eq!(brought(read, queue).await?, [1, 2, 3]);
        Ok(())
    });
}
