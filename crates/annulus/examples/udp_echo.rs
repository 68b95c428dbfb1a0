//! Sends every datagram back to its source. Run `cargo run --release -p annulus --example udp_echo
//! -- 127.0.0.1:7000`.
//!
//! One task handles one datagram at a time, so no limit is needed: the kernel drops any excess.
//! SIGINT and SIGTERM end the server.

use annulus::net::{Transmit, UdpSocket};
use annulus::signal::until_terminated;

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:7000".into());
    annulus::run(until_terminated(async {
        let socket = UdpSocket::bind(address)?;
        socket.set_packet_info(true)?;
        eprintln!("listening on udp://{}", socket.local_addr()?);
        loop {
            let datagram = socket.recv_datagram().await?;
            // Sends from the address that was asked: a socket on 0.0.0.0 has several. Errors are
            // ignored: they may concern an earlier datagram, whose receiver is gone.
            let to = Transmit::to(datagram.source);
            let to = datagram.local.map_or(to, |asked| to.source(asked));
            _ = socket.send_with(datagram.bytes, &to).await;
        }
    }))
}
