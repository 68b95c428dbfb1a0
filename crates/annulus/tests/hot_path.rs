//! Invariants 11, 17 and 18: the hot path does not allocate, a request takes one system call, and
//! an idle runtime sleeps.

#[path = "common/allocations.rs"]
mod allocations;
mod common;

use allocations::allocations;
use annulus::internals::nop;
use annulus::io::{AsyncSend, copy_bidirectional};
use annulus::net::{TcpStream, UdpSocket};
use annulus::{Builder, Runtime, counters, spawn};
use common::{echo, pair, receive, receives_are_armed_once, run, run_on};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::time::Duration;

/// Allocations allowed for growth of the runtime's lists, when more is queued than ever before: on
/// a busy machine, more may arrive at once than during the warm-up. One allocation per hundred
/// small messages would exceed this.
const LISTS: u64 = 32;

async fn ping(client: &mut TcpStream, rounds: usize) -> io::Result<()> {
    for _ in 0..rounds {
        client.send("ping").await?;
        receive_exactly(client, 4).await?;
    }
    Ok(())
}

async fn receive_exactly(client: &mut TcpStream, mut len: usize) -> io::Result<()> {
    while len > 0 {
        len -= client.recv().await?.expect("the stream ended too early").len();
    }
    Ok(())
}

#[test]
fn a_request_allocates_nothing() {
    requests_allocate_nothing(Runtime::builder());
}

#[test]
fn a_measured_request_allocates_nothing() {
    let no_poll = Duration::from_secs(3600);
    requests_allocate_nothing(Runtime::builder().slow_poll(Some(no_poll)));
    requests_allocate_nothing(Runtime::builder().measure(true));
}

fn requests_allocate_nothing(builder: Builder) {
    run_on(builder, async {
        let mut clients = Vec::new();
        for _ in 0..50 {
            let (client, server) = pair().await?;
            spawn(echo(server));
            clients.push(client);
        }
        for client in &mut clients {
            ping(client, 10).await?;
        }
        let before = allocations();
        for client in &mut clients {
            ping(client, 100).await?;
        }
        let allocated = allocations() - before;
        assert!(allocated <= LISTS, "{allocated} allocations for 5,000 requests");
        Ok(())
    });
}

#[test]
fn a_message_forwarded_by_a_copy_allocates_nothing() {
    run(async {
        let ((mut client, mut near), (mut far, server)) = (pair().await?, pair().await?);
        spawn(echo(server));
        spawn(async move { copy_bidirectional(&mut near, &mut far).await });
        ping(&mut client, 10).await?;
        let before = allocations();
        ping(&mut client, 4000).await?;
        let allocated = allocations() - before;
        assert!(allocated <= LISTS, "{allocated} allocations for 4,000 messages");
        Ok(())
    });
}

#[test]
fn a_nop_allocates_nothing() {
    run(async {
        nop().await?;
        let before = allocations();
        for _ in 0..100 {
            nop().await?;
        }
        assert_eq!(allocations() - before, 0);
        Ok(())
    });
}

/// Bounces a message over each connection until `bytes` in total have moved, after the same amount
/// to warm up. Returns the allocations of the second half.
async fn thrown_to_and_fro(pairs: usize, message: usize, bytes: u64) -> io::Result<u64> {
    let moved = Rc::new(Cell::new(0));
    for _ in 0..pairs {
        let (mut client, server) = pair().await?;
        client.send(vec![7; message]).await?;
        for mut stream in [client, server] {
            let moved = moved.clone();
            spawn(async move {
                while let Some(lease) = stream.recv().await? {
                    moved.set(moved.get() + lease.len() as u64);
                    stream.send(lease).await?;
                }
                io::Result::Ok(())
            });
        }
    }
    let mut halves = Vec::new();
    for half in [bytes, 2 * bytes] {
        while moved.get() < half {
            annulus::task::yield_now().await;
        }
        halves.push(allocations());
    }
    Ok(halves[1] - halves[0])
}

#[test]
fn many_connections_allocate_nothing() {
    run(async {
        let allocated = thrown_to_and_fro(200, 128, 4 << 20).await?;
        assert!(allocated <= LISTS, "{allocated} allocations for 32,768 messages");
        Ok(())
    });
}

#[test]
fn large_messages_allocate_nothing() {
    run(async {
        let allocated = thrown_to_and_fro(10, 1 << 20, 256 << 20).await?;
        assert!(allocated <= LISTS, "{allocated} allocations for 256 MiB");
        Ok(())
    });
}

#[test]
fn answers_of_one_turn_are_sent_together_and_allocate_nothing() {
    // Each message takes an entry for the send, and one for the client's next receive unless that
    // is still armed.
    let entries = if receives_are_armed_once() { 1 } else { 2 };
    run(async move {
        let (mut client, mut server) = pair().await?;
        for round in 0..200 {
            let before = (allocations(), counters().unwrap().sqes);
            for _ in 0..16 {
                server.send("an answer").await?;
            }
            receive_exactly(&mut client, 16 * "an answer".len()).await?;
            let after = (allocations(), counters().unwrap().sqes);
            if round >= 100 {
                let made = (after.0 - before.0, after.1 - before.1);
                assert_eq!(made, (0, entries), "round {round}");
            }
        }
        Ok(())
    });
}

#[test]
fn copied_writes_allocate_nothing_either() {
    run(async {
        let (mut client, server) = pair().await?;
        spawn(echo(server));
        let write = |client: &mut TcpStream, cx: &mut std::task::Context<'_>| {
            client.poll_write(cx, b"ping")
        };
        for round in 0..200 {
            let before = allocations();
            assert_eq!(std::future::poll_fn(|cx| write(&mut client, cx)).await?, 4);
            receive_exactly(&mut client, 4).await?;
            assert!(round < 100 || allocations() == before, "round {round}");
        }
        Ok(())
    });
}

#[test]
fn a_request_on_one_connection_takes_one_system_call() {
    let requests = 1000;
    run(async {
        let listener = annulus::net::TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let client = std::thread::spawn(move || {
            let mut client = std::net::TcpStream::connect(address).unwrap();
            client.set_nodelay(true).unwrap();
            let mut got = [0; 4];
            for _ in 0..requests {
                client.write_all(b"ping").unwrap();
                client.read_exact(&mut got).unwrap();
            }
        });
        let (stream, _) = listener.accept().await?;
        let before = counters().unwrap().enters;
        echo(stream).await?;
        let enters = counters().unwrap().enters - before;
        client.join().unwrap();
        assert!(enters as f64 <= requests as f64 * 1.02, "{enters} enters for {requests} requests");
        Ok(())
    });
}

#[test]
fn an_idle_runtime_sleeps() {
    run(async {
        let (mut client, server) = pair().await?;
        spawn(echo(server));
        ping(&mut client, 10).await?;
        let before = counters().unwrap().enters;
        annulus::time::sleep(Duration::from_millis(300)).await;
        let enters = counters().unwrap().enters - before;
        assert!(enters <= 3, "{enters} enters while nothing happened");
        Ok(())
    });
}

#[test]
fn a_short_sleep_does_not_take_long() {
    run(async {
        let (mut client, server) = pair().await?;
        spawn(echo(server));
        assert_eq!(receive_after_sleep(&mut client).await?, b"pong");
        Ok(())
    });
}

async fn receive_after_sleep(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let start = annulus::time::Instant::now();
    annulus::time::sleep(Duration::from_millis(2)).await;
    assert!(start.elapsed() >= Duration::from_millis(2));
    client.send("pong").await?;
    receive(client, 4).await
}

async fn udp_echo(socket: UdpSocket) -> io::Result<()> {
    loop {
        let (datagram, from) = socket.recv_from().await?;
        if datagram.is_empty() {
            return Ok(());
        }
        socket.send_to(datagram, from).await?;
    }
}

#[test]
fn a_datagram_allocates_nothing() {
    run(async {
        let server = UdpSocket::bind("127.0.0.1:0")?;
        let address = server.local_addr()?;
        spawn(udp_echo(server));
        let client = UdpSocket::bind("127.0.0.1:0")?;
        let mut before = 0;
        for round in 0..400 {
            if round == 200 {
                before = allocations();
            }
            for _ in 0..10 {
                client.send_to("ping", address).await?;
            }
            for _ in 0..10 {
                assert_eq!(&*client.recv().await?, b"ping");
            }
        }
        assert_eq!(allocations() - before, 0);
        Ok(())
    });
}

#[test]
fn a_datagram_from_one_client_takes_one_system_call() {
    let requests = 1000;
    run(async {
        let server = UdpSocket::bind("127.0.0.1:0")?;
        let address = server.local_addr()?;
        let client = std::thread::spawn(move || {
            let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            client.connect(address).unwrap();
            let mut got = [0; 4];
            for _ in 0..requests {
                client.send(b"ping").unwrap();
                client.recv(&mut got).unwrap();
            }
            client.send(b"").unwrap();
        });
        let before = counters().unwrap().enters;
        udp_echo(server).await?;
        let enters = counters().unwrap().enters - before;
        client.join().unwrap();
        assert!(
            enters as f64 <= requests as f64 * 1.02,
            "{enters} enters for {requests} datagrams"
        );
        Ok(())
    });
}
