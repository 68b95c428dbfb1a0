//! quinn handles on threads other than their runtime's.

use crate::quinn::common::*;
use annulus::net::UdpSocket;
use annulus_compat::quinn::Socket;
use quinn::AsyncUdpSocket;
use quinn::udp::Transmit;
use std::time::Duration;

/// Endpoints, connections and streams work on a thread that has its own runtime.
#[test]
fn connections_can_be_opened_and_used_on_another_thread() {
    everywhere(async || {
        let (server, client) = on_loopback()?;
        echo(&server);
        let (address, from) = (server.local_addr()?, client.local_addr()?);
        let thread = std::thread::spawn(move || {
            annulus::run(async move {
                let connection = connect(&client, address).await?;
                exchange(&connection, &pattern(5, 100_000)).await?;
                connection.close(0u32.into(), b"");
                Outcome::Ok(())
            })
        });
        server.wait_idle().await;
        while !thread.is_finished() {
            annulus::time::sleep(Duration::from_millis(1)).await;
        }
        thread.join().expect("the thread panicked")?;
        // The last handle was dropped on the other thread, but the socket is closed on this thread.
        while UdpSocket::bind(from).is_err() {
            annulus::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    });
}

#[test]
fn socket_fails_on_another_thread_and_is_closed_on_its_own() {
    on_drivers(async || {
        let socket = Socket::new(UdpSocket::bind("127.0.0.1:0")?)?;
        let to = socket.local_addr()?;
        let used = std::thread::spawn(move || {
            let transmit = Transmit {
                destination: to,
                ecn: None,
                contents: b"x",
                segment_size: None,
                src_ip: None,
            };
            (socket.try_send(&transmit), socket.local_addr())
        });
        let (sent, local) = used.join().expect("the thread panicked");
        for error in [sent.unwrap_err(), local.unwrap_err()] {
            assert!(error.to_string().contains("a thread other than"), "{error}");
        }
        while UdpSocket::bind(to).is_err() {
            annulus::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    });
}
