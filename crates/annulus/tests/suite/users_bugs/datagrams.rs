//! Datagrams that lost their sender, their buffer or some bytes.

use crate::common::{pattern, run_on, touch};
use crate::users_bugs::{simulate, unkind};
use annulus::net::{UdpOptions, UdpSocket};
use annulus::sim::Sim;
use annulus::task::yield_now;
use annulus::time::{sleep, timeout};
use annulus::{Builder, DriverChoice, Runtime};
use annulus_skip::skip;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::time::Duration;

/// Runs a body on a simulated kernel and on each driver that works on this machine.
fn everywhere<F: Future<Output = io::Result<()>>>(
    settings: fn(Builder) -> Builder,
    body: impl Fn() -> F,
) {
    let sim = Sim::builder(1).poison(4096).build();
    annulus::sim::run_on(&sim, settings(Runtime::builder()), body()).unwrap();
    run_on(settings(Runtime::builder().driver(DriverChoice::Epoll)), body());
    if annulus_ring::Features::detect().is_ok() {
        run_on(settings(Runtime::builder().driver(DriverChoice::Uring)), body());
    } else {
        skip!("io_uring is blocked here");
    }
}

/// A datagram could not be received together with its sender's address. Here, each datagram arrives
/// with its own sender, in any order.
#[test]
fn liburing_397_recvfrom() {
    everywhere(
        |builder| builder,
        || async {
            let receiver = UdpSocket::bind("127.0.0.1:0")?;
            let senders = (0..8).map(|_| UdpSocket::bind("127.0.0.1:0"));
            let senders = senders.collect::<io::Result<Vec<_>>>()?;
            for _ in 0..50 {
                for sender in &senders {
                    let name = sender.local_addr()?.to_string();
                    sender.send_to(name, receiver.local_addr()?).await?;
                }
                for _ in &senders {
                    let (name, from) = receiver.recv_from().await?;
                    assert_eq!(*name, *from.to_string().as_bytes());
                }
            }
            Ok(())
        },
    );
}

/// A truncated datagram used more of the buffer ring than it filled, and the following datagrams
/// were garbled. Here, each datagram has its own buffer, truncated or not, and all buffers are used
/// many times.
#[test]
fn liburing_1619_msg_trunc_over_consumes() {
    everywhere(
        |builder| builder.datagram_buffer_size(4096).datagram_buffer_count(8),
        || async {
            let (receiver, sender) =
                (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
            for round in 0..100u32 {
                let text = pattern(5000 + round as usize);
                sender.send_to(text.clone(), receiver.local_addr()?).await?;
                sender.send_to(round.to_ne_bytes().to_vec(), receiver.local_addr()?).await?;
                let cut = receiver.recv_datagram().await?;
                assert_eq!(cut.whole_len, text.len());
                assert!(cut.is_truncated() && text.starts_with(&cut.bytes));
                assert_eq!(*receiver.recv().await?, round.to_ne_bytes());
            }
            Ok(())
        },
    );
}

/// A multishot receive of messages failed with EFAULT once it had filled some of the buffers. Here,
/// one receive delivers many more datagrams than there are buffers, which are held and dropped in
/// turn.
#[test]
fn liburing_1433_recvmsg_multishot_fails_in_mid_ring() {
    everywhere(
        |builder| builder.datagram_buffer_size(4096).datagram_buffer_count(8),
        || async {
            let (receiver, sender) =
                (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
            let mut held = Vec::new();
            for round in 0..500usize {
                let text = pattern(1 + round * 7 % 3500);
                sender.send_to(text.clone(), receiver.local_addr()?).await?;
                let datagram = receiver.recv().await?;
                assert!(*datagram == *text, "datagram {round}");
                held.push(datagram);
                if held.len() > round % 12 {
                    held.clear();
                }
            }
            Ok(())
        },
    );
}

/// Like `compio_746_cancel_loses_the_provided_buffer`, but for datagrams: sockets are dropped while
/// their receives deliver something.
#[test]
fn compio_746_cancel_loses_a_datagrams_buffer() {
    for seed in 0..20 {
        let sim = unkind(seed);
        let builder = Runtime::builder()
            .stream_buffer_size(4096)
            .stream_buffer_count(4)
            .datagram_buffer_size(4096)
            .datagram_buffer_count(4);
        let lose = async {
            let sender = UdpSocket::bind("127.0.0.1:0")?;
            for round in 0..50 {
                let receiver = UdpSocket::bind("127.0.0.1:0")?;
                assert!(touch(receiver.recv()).is_none());
                for _ in 0..3 {
                    sender.send_to(pattern(1000), receiver.local_addr()?).await?;
                }
                let wait = Duration::from_micros(round * 7 % 150);
                match round % 2 {
                    0 => sleep(wait).await,
                    _ => drop(timeout(wait, receiver.recv()).await),
                }
            }
            sleep(Duration::from_secs(60)).await;
            assert_eq!(
                sim.buffers_held(),
                8,
                "the kernel does not have all four buffers again, and the streams' buffers"
            );
            io::Result::Ok(())
        };
        annulus::sim::run_on(&sim, builder, lose).unwrap();
    }
}

/// One failed datagram ended the socket, or its error was returned for another datagram.
#[test]
fn an_error_belongs_to_its_datagram() {
    let sim = unkind(7);
    simulate(&sim, async {
        let socket = UdpOptions::new().bind("127.0.0.1:0")?;
        let gone = UdpSocket::bind("127.0.0.1:0")?;
        let closed = gone.local_addr()?;
        drop(gone);
        yield_now().await;
        for round in 0..20u32 {
            let error = socket.send_to(vec![0; 70_000], closed).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            drop(socket.send_to("never received", closed).await);
            socket.send_to(round.to_ne_bytes().to_vec(), socket.local_addr()?).await?;
            assert_eq!(*socket.recv().await?, round.to_ne_bytes());
        }
        Ok(())
    });
}
