//! quinn on simulated networks, in virtual time.

use crate::quinn::common::*;
use annulus::Runtime;
use annulus::net::UdpSocket;
use annulus::sim::{Faults, Link, Random, Sim, run_on};
use annulus::time::Instant;
use annulus_compat::quinn::Socket;
use quinn::udp::Transmit;
use quinn::{AsyncUdpSocket, ConnectionError, TransportConfig};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

const SERVER_ADDRESS: &str = "10.0.0.1:443";
const CLIENT_ADDRESS: &str = "10.0.0.2:0";

fn simulated(sim: &Rc<Sim>, body: impl Future<Output = Outcome>) -> io::Result<()> {
    run_on(sim, Runtime::builder(), async { body.await.map_err(io::Error::other) })
}

async fn converse(len: usize) -> Outcome {
    let (server, client) = endpoints(SERVER_ADDRESS, CLIENT_ADDRESS, TransportConfig::default())?;
    echo(&server);
    let connection = connect(&client, server.local_addr()?).await?;
    for salt in 0..3 {
        exchange(&connection, &pattern(salt, len)).await?;
    }
    connection.close(0u32.into(), b"");
    client.wait_idle().await;
    Ok(())
}

/// The networks delay, lose, duplicate and reorder datagrams.
#[test]
fn bytes_arrive_on_bad_networks() {
    for seed in 0..20 {
        let link = Link {
            latency: Duration::from_micros(seed * seed * 100),
            jitter: Duration::from_micros(seed * 100),
            loss: (seed % 4 * 20) as u16,
            duplication: (seed % 3 * 50) as u16,
            reordering: (seed % 5 * 30) as u16,
            ..Link::any(&mut Random::new(seed))
        };
        let link = Link { receive_buffer: 131_072, send_buffer: 131_072, ..link };
        let sim = Sim::builder(seed).link(link).faults(Faults::none()).build();
        simulated(&sim, converse(40_000)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// An hour of silence takes no real time, and the connection ends at quinn's idle timeout in
/// virtual time.
#[test]
fn vanished_peer_times_out_in_virtual_time() {
    let sim = Sim::builder(3).build();
    let idle = Duration::from_secs(3600);
    simulated(&sim, async {
        let mut transport = TransportConfig::default();
        transport.max_idle_timeout(Some(idle.try_into()?));
        transport.keep_alive_interval(Some(Duration::from_secs(60)));
        let (server, client) = endpoints(SERVER_ADDRESS, CLIENT_ADDRESS, transport)?;
        let (remote, ours) = pair(&server, &client).await?;
        annulus::time::sleep(3 * idle).await;
        assert!(ours.close_reason().is_none(), "keep-alive failed");
        let ip = |address: &str| address.split(':').next().unwrap_or_default().parse::<IpAddr>();
        sim.partition(ip(SERVER_ADDRESS)?, ip(CLIENT_ADDRESS)?);
        let start = Instant::now();
        assert_eq!(ours.closed().await, ConnectionError::TimedOut);
        let took = start.elapsed();
        assert!(took > idle / 2 && took < 2 * idle, "{took:?}");
        assert_eq!(remote.closed().await, ConnectionError::TimedOut);
        Ok(())
    })
    .unwrap();
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wakes {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The network is so slow that sends have to wait. Each waiting poller is woken once, and no other
/// poller is.
#[test]
fn only_waiting_pollers_are_woken() {
    let link = Link { latency: Duration::from_secs(1), send_buffer: 16_384, ..Link::default() };
    let sim = Sim::builder(1).link(link).faults(Faults::none()).build();
    simulated(&sim, async {
        let _receiver = UdpSocket::bind(SERVER_ADDRESS)?;
        let socket = Arc::new(Socket::new(UdpSocket::bind(CLIENT_ADDRESS)?)?);
        let transmit = Transmit {
            destination: SERVER_ADDRESS.parse()?,
            ecn: None,
            contents: &[0; 12_000],
            segment_size: Some(1200),
            src_ip: None,
        };
        let refused = loop {
            if let Err(error) = socket.try_send(&transmit) {
                break error;
            }
            annulus::task::yield_now().await;
        };
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        let wakes: [Arc<Wakes>; 3] = Default::default();
        let mut pollers = [(); 3].map(|()| socket.clone().create_io_poller());
        let mut poll = |at: usize| {
            let waker = wakes[at].clone().into();
            pollers[at].as_mut().poll_writable(&mut Context::from_waker(&waker))
        };
        assert!(poll(0).is_pending() && poll(1).is_pending());
        while wakes[0].count() == 0 {
            annulus::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!([0, 1, 2].map(|at| wakes[at].count()), [1, 1, 0]);
        for at in 0..3 {
            assert!(matches!(poll(at), Poll::Ready(Ok(()))));
        }
        socket.try_send(&transmit)?;
        Ok(())
    })
    .unwrap();
}
