//! Sends every datagram back to its source: `cargo run --release -p annulus --example udp_echo -- 127.0.0.1:7000`

use annulus::net::UdpSocket;
use annulus::signal::until_terminated;
use std::io;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:7000".into());
    annulus::run(until_terminated(async {
        let socket = UdpSocket::bind(address)?;
        eprintln!("listening on udp://{}", socket.local_addr()?);
        loop {
            let (datagram, from) = socket.recv_from().await?;
            // An error is that of an earlier datagram to this address, whose receiver is gone: the next one may be there.
            _ = socket.send_to(datagram, from).await;
        }
    }))
}
