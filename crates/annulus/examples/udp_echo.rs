//! Sends every datagram back to its source: `cargo run --release -p annulus --example udp_echo -- 127.0.0.1:7000`

use annulus::net::{Transmit, UdpSocket};
use annulus::signal::until_terminated;
use std::io;

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:7000".into());
    annulus::run(until_terminated(async {
        let socket = UdpSocket::bind(address)?;
        socket.set_packet_info(true)?;
        eprintln!("listening on udp://{}", socket.local_addr()?);
        loop {
            let datagram = socket.recv_datagram().await?;
            let to = Transmit::to(datagram.source);
            // From the address that was asked, which is one of several for a socket on 0.0.0.0.
            let to = datagram.local.map_or(to, |asked| to.source(asked));
            // An error is that of an earlier datagram to this address, whose receiver is gone: the next one may be there.
            _ = socket.send_with(datagram.bytes, &to).await;
        }
    }))
}
