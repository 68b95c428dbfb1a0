//! Several addresses for one host, one of which does not answer.

use super::{SECOND, echo, ping};
use annulus::net::{ConnectOptions, TcpStream};
use annulus::sim::Network;
use annulus::stats;
use annulus::task::yield_now;
use annulus::time::{Instant, timeout};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(250);
/// Far longer than a round trip, and far shorter than the delay.
const SOON: Duration = Duration::from_millis(100);

/// Runs a client with the address of a host that does not answer and the address of a server.
fn run<F: Future<Output = io::Result<()>> + 'static>(
    client: impl FnOnce(SocketAddr, SocketAddr) -> F,
) -> io::Result<()> {
    let network = Network::new(3);
    let silent = network.host("silent", echo)?;
    let server = network.host("server", echo)?;
    let client = client((silent, 7).into(), (server, 7).into());
    let cut_off = network.clone();
    network.client("client", async move {
        cut_off.partition("client", "silent")?;
        client.await
    })?;
    network.run()
}

async fn no_attempt_is_left() {
    while stats().expect("not in a runtime").resources.connects > 0 {
        yield_now().await;
    }
}

#[test]
fn a_silent_address_delays_a_connect_by_a_quarter_of_a_second() -> io::Result<()> {
    run(async |silent, server| {
        for addresses in [vec![silent, server], vec![silent, silent, server]] {
            let start = Instant::now();
            let mut stream = TcpStream::connect(&addresses[..]).await?;
            let expected = DELAY * (addresses.len() as u32 - 1);
            let took = start.elapsed();
            assert!((expected..expected + SOON).contains(&took), "{took:?}");
            assert_eq!(stream.peer_addr()?, server);
            ping(&mut stream).await?;
            no_attempt_is_left().await;
        }
        Ok(())
    })
}

#[test]
fn a_refused_address_does_not_delay_a_connect() -> io::Result<()> {
    run(async |_, server| {
        let closed = SocketAddr::new(server.ip(), 9);
        let start = Instant::now();
        let stream = TcpStream::connect(&[closed, closed, server][..]).await?;
        assert!(start.elapsed() < SOON && stream.peer_addr()? == server);
        Ok(())
    })
}

#[test]
fn the_limit_applies_to_each_attempt_and_the_error_lists_all() -> io::Result<()> {
    run(async |silent, server| {
        let closed = SocketAddr::new(server.ip(), 9);
        let start = Instant::now();
        let options = ConnectOptions::new().timeout(SECOND);
        let error = options.connect(&[silent, closed, silent][..]).await.unwrap_err();
        // The third attempt starts when the second is refused.
        let took = start.elapsed();
        assert!((SECOND + DELAY..SECOND + DELAY + SOON).contains(&took), "{took:?}");
        let text = error.to_string();
        assert_eq!((error.kind(), text.matches("10.0.0.1:7").count()), (ErrorKind::TimedOut, 2));
        assert!(text.contains("10.0.0.2:9"), "{text}");
        no_attempt_is_left().await;
        Ok(())
    })
}

#[test]
fn with_an_endless_delay_addresses_are_tried_in_sequence() -> io::Result<()> {
    run(async |silent, server| {
        let start = Instant::now();
        let options = ConnectOptions::new().attempt_delay(Duration::MAX).timeout(SECOND);
        options.connect(&[silent, server][..]).await?;
        assert!((SECOND..SECOND + SOON).contains(&start.elapsed()));
        let options = ConnectOptions::new().attempt_delay(Duration::ZERO);
        let start = Instant::now();
        options.connect(&[silent, server][..]).await?;
        assert!(start.elapsed() < SOON);
        Ok(())
    })
}

#[test]
fn a_dropped_race_leaves_no_attempt() -> io::Result<()> {
    run(async |silent, _| {
        let addresses = [silent; 5];
        assert!(timeout(SECOND, TcpStream::connect(&addresses[..])).await.is_err());
        no_attempt_is_left().await;
        Ok(())
    })
}

#[test]
fn addresses_are_tried_in_sequence_from_a_port_that_is_not_shared() -> io::Result<()> {
    run(async |silent, server| {
        let from = |port| ConnectOptions::new().timeout(SECOND).bind(([0, 0, 0, 0], port).into());
        let start = Instant::now();
        let stream = from(5000).connect(&[silent, server][..]).await?;
        let took = start.elapsed();
        assert!((SECOND..SECOND + SOON).contains(&took), "{took:?}");
        assert_eq!((stream.local_addr()?.port(), stream.peer_addr()?), (5000, server));
        let start = Instant::now();
        let shared = from(5001).reuse_address(true);
        let stream = shared.connect(&[silent, server][..]).await?;
        let took = start.elapsed();
        assert!((DELAY..DELAY + SOON).contains(&took), "{took:?}");
        assert_eq!((stream.local_addr()?.port(), stream.peer_addr()?), (5001, server));
        Ok(())
    })
}
