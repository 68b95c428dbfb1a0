//! Partitions of the simulated network: datagrams are lost, connections stall but lose nothing, and
//! other hosts are not affected.

use annulus::net::{ConnectOptions, TcpListener, TcpStream, UdpSocket};
use annulus::sim::{Link, Sim, run_on};
use annulus::time::{Instant, sleep, timeout};
use annulus::{Runtime, spawn};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const C: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
const SECOND: Duration = Duration::from_secs(1);

fn at(ip: IpAddr) -> SocketAddr {
    SocketAddr::new(ip, 7000)
}

/// Runs a future on a simulated network with a latency of 10 ms.
fn simulated<F: Future<Output = io::Result<()>>>(future: impl FnOnce(Rc<Sim>) -> F) {
    let link = Link { latency: Duration::from_millis(10), ..Link::default() };
    let sim = Sim::builder(3).link(link).build();
    run_on(&sim, Runtime::builder(), future(sim.clone())).expect("a step of the test failed");
}

/// Returns both ends of a connection between two addresses.
async fn connected(from: IpAddr, to: IpAddr) -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(at(to))?;
    let client = ConnectOptions::new().source(from).connect(at(to)).await?;
    let (server, peer) = listener.accept().await?;
    assert_eq!(peer.ip(), from);
    Ok((client, server))
}

/// Receives exactly these bytes, and returns how long that took.
async fn all(stream: &mut TcpStream, expected: &[u8]) -> io::Result<Duration> {
    let (start, mut got) = (Instant::now(), Vec::new());
    while got.len() < expected.len() {
        got.extend_from_slice(&stream.recv().await?.expect("the stream ended too early"));
    }
    assert_eq!(got, expected);
    Ok(start.elapsed())
}

#[test]
fn a_partition_loses_datagrams_only_between_its_hosts() {
    simulated(async |sim| {
        let [a, b, c] =
            [A, B, C].map(|ip| UdpSocket::bind(at(ip)).expect("the socket cannot be bound"));
        sim.partition(B, A);
        for (from, to) in [(&a, B), (&b, A), (&a, C), (&c, B)] {
            from.send_to(vec![7], at(to)).await?;
        }
        assert_eq!((b.recv_from().await?.1, c.recv_from().await?.1), (at(C), at(A)));
        for socket in [&a, &b] {
            assert!(
                timeout(SECOND, socket.recv_from()).await.is_err(),
                "a datagram arrived from a host that was cut off"
            );
        }
        sim.repair(A, B);
        a.send_to(vec![8], at(B)).await?;
        let (datagram, from) = b.recv_from().await?;
        assert_eq!((&*datagram, from), (&[8][..], at(A)));
        Ok(())
    });
}

#[test]
fn a_connection_stalls_and_loses_nothing() {
    simulated(async |sim| {
        let (mut client, mut server) = connected(A, B).await?;
        let (mut other, mut other_server) = connected(C, A).await?;
        client.send("in flight, ").await?;
        client.drain().await?;
        sim.partition(A, B);
        let sent = spawn(async move {
            for _ in 0..100 {
                client.send(vec![b'x'; 10_000]).await?;
            }
            client.shutdown().await?;
            io::Result::Ok(client)
        });
        assert!(
            timeout(SECOND, server.recv()).await.is_err(),
            "bytes arrived from a host that was cut off"
        );
        other.send("not concerned").await?;
        assert!(all(&mut other_server, b"not concerned").await? < SECOND);
        sleep(100 * SECOND).await;
        sim.repair(A, B);
        let expected = [b"in flight, ".to_vec(), vec![b'x'; 1_000_000]].concat();
        assert!(all(&mut server, &expected).await? < SECOND);
        assert!(server.recv().await?.is_none(), "bytes arrived after the end");
        server.send("back").await?;
        let mut client = sent.await.expect("the task panicked")?;
        assert!(all(&mut client, b"back").await? < SECOND);
        // A closed end remains until the other end learns of it, which is only after the partition.
        sim.partition(A, B);
        drop((client, server, other, other_server));
        sleep(SECOND).await;
        assert_eq!(sim.sockets(), 2);
        sim.repair(A, B);
        sleep(SECOND).await;
        assert_eq!(sim.sockets(), 0);
        Ok(())
    });
}

#[test]
fn connecting_waits_for_the_end_of_a_partition_or_times_out() {
    simulated(async |sim| {
        let listener = TcpListener::bind(at(B))?;
        sim.partition(A, B);
        let start = Instant::now();
        async fn connect() -> io::Result<TcpStream> {
            ConnectOptions::new().source(A).connect(at(B)).await
        }
        let error = connect().await.expect_err("the connect succeeded");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(start.elapsed() > 30 * SECOND);
        let waiting = spawn(connect());
        sleep(2 * SECOND).await;
        sim.repair(A, B);
        waiting.await.expect("the task panicked")?;
        listener.accept().await?;
        Ok(())
    });
}

/// The answer is on its way when the partition begins.
#[test]
fn connect_whose_answer_meets_a_partition_times_out() {
    simulated(async |sim| {
        let listener = TcpListener::bind(at(B))?;
        let connect = || spawn(async { ConnectOptions::new().source(A).connect(at(B)).await });
        let (start, lost) = (Instant::now(), connect());
        // The attempt arrives after 10 ms, and its answer would arrive after 20.
        let (mut server, _) = listener.accept().await?;
        sim.partition(A, B);
        let error = lost.await.expect("the task panicked").expect_err("the connect succeeded");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!((60 * SECOND..70 * SECOND).contains(&start.elapsed()), "{:?}", start.elapsed());
        sim.repair(A, B);
        let error = timeout(SECOND, server.recv()).await?.expect_err("nobody has connected");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);

        // An answer that arrives in time connects, and the attempt is not given up later.
        let waiting = connect();
        let (mut server, _) = listener.accept().await?;
        sim.partition(A, B);
        sleep(30 * SECOND).await;
        sim.repair(A, B);
        let mut client = waiting.await.expect("the task panicked")?;
        sim.partition(A, B);
        sleep(60 * SECOND).await;
        sim.repair(A, B);
        client.send("hello").await?;
        all(&mut server, b"hello").await?;

        // The same for a refusal.
        drop(listener);
        sleep(SECOND).await;
        let refused = connect();
        sleep(Duration::from_millis(15)).await;
        sim.partition(A, B);
        let error = refused.await.expect("the task panicked").expect_err("nothing listens");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        Ok(())
    });
}

#[test]
fn a_partition_ends_only_with_the_repair_of_its_pair() {
    simulated(async |sim| {
        let (mut client, mut server) = connected(A, B).await?;
        sim.partition(A, B);
        sim.partition(B, A);
        sim.partition(A, C);
        client.send("hello").await?;
        sim.repair(A, C);
        assert!(
            timeout(SECOND, server.recv()).await.is_err(),
            "bytes arrived from a host that was cut off"
        );
        // Segments that were due by the end of the partition were held as well, and stay in order.
        client.send(" world").await?;
        client.drain().await?;
        sim.compute(SECOND);
        sim.repair(A, B);
        client.send("!").await?;
        all(&mut server, b"hello world!").await.map(drop)
    });
}
