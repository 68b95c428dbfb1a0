//! Peers that do not answer, and datagrams that the system rejects.

use crate::quinn::common::*;
use annulus::net::UdpSocket;
use annulus_compat::quinn::Socket;
use quinn::udp::Transmit;
use quinn::{AsyncUdpSocket, ConnectionError, TransportConfig};
use std::net::SocketAddr;
use std::time::Duration;

/// Transport settings that give up after 30 s of virtual time without an answer.
fn impatient() -> Outcome<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(Duration::from_secs(30).try_into()?));
    Ok(transport)
}

#[test]
fn an_idle_connection_ends() {
    simulated(async |_| {
        let (server, client) = endpoints("10.0.0.1:443", "10.0.0.2:0", impatient()?)?;
        let (remote, ours) = pair(&server, &client).await?;
        assert_eq!(ours.closed().await, ConnectionError::TimedOut);
        assert_eq!(remote.closed().await, ConnectionError::TimedOut);
        Ok(())
    });
}

#[test]
fn failed_attempt_leaves_the_endpoint_usable() {
    simulated(async |_| {
        let (server, client) = endpoints("10.0.0.1:443", "10.0.0.2:0", impatient()?)?;
        echo(&server);
        let silent = UdpSocket::bind("10.0.0.1:9")?;
        let unused = "10.0.0.1:10".parse()?;
        for address in [silent.local_addr()?, unused] {
            let error = client.connect(address, "localhost")?.await.map(drop).unwrap_err();
            assert_eq!(error, ConnectionError::TimedOut, "{address}");
        }
        exchange(&connect(&client, server.local_addr()?).await?, &pattern(1, 10_000)).await
    });
}

/// Errors of an attempt to a port without a listener, or from loopback to an unreachable network,
/// end neither the endpoint nor its other connections.
#[test]
fn errors_of_an_attempt_do_not_affect_other_connections() {
    everywhere(async || {
        let (server, client) = on_loopback()?;
        echo(&server);
        let connection = connect(&client, server.local_addr()?).await?;
        // Connected to itself, so that it rejects other senders, and nothing else gets the port.
        let unused = std::net::UdpSocket::bind("127.0.0.1:0")?;
        unused.connect(unused.local_addr()?)?;
        let attempts = [
            client.connect(unused.local_addr()?, "localhost")?,
            client.connect("192.0.2.1:9".parse()?, "localhost")?,
        ];
        for salt in 0..10 {
            exchange(&connection, &pattern(salt, 10_000)).await?;
        }
        exchange(&connect(&client, server.local_addr()?).await?, &pattern(1, 10_000)).await?;
        drop(attempts);
        Ok(())
    });
}

fn transmit(destination: SocketAddr, contents: &[u8]) -> Transmit<'_> {
    Transmit { destination, ecn: None, contents, segment_size: None, src_ip: None }
}

/// An error affects only its own datagram, whether the same send or the next one returns it.
#[test]
fn rejected_datagrams_are_lost_and_later_ones_are_sent() {
    everywhere(async || {
        let receiver = UdpSocket::bind("[::1]:0")?;
        let socket = Socket::new(UdpSocket::bind("[::1]:0")?)?;
        let (to, large) = (receiver.local_addr()?, vec![0; 70_000]);
        let unreachable = "[2001:db8::1]:9".parse()?;
        for round in 0..10u8 {
            socket.try_send(&transmit(unreachable, b"lost"))?;
            socket.try_send(&transmit(unreachable, &large[..6000]))?;
            socket.try_send(&transmit(to, &large))?;
            // Larger than the MTU: EMSGSIZE, because fragmentation is off.
            socket.try_send(&transmit(to, &large[..65_527]))?;
            socket.try_send(&transmit(to, &[round; 100]))?;
            let (got, _) = receiver.recv_from().await?;
            assert_eq!(*got, [round; 100]);
        }
        Ok(())
    });
}

#[test]
fn connected_socket_is_rejected_with_the_address_of_its_peer() {
    everywhere(async || {
        let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        one.connect(other.local_addr()?).await?;
        let error = Socket::new(one).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&other.local_addr()?.to_string()), "{error}");
        Ok(())
    });
}
