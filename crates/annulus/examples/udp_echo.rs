//! Sends every datagram back to where it came from: `cargo run --release -p annulus --example udp_echo -- 127.0.0.1:7000`

use annulus::net::UdpSocket;

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".into());
    annulus::run(async {
        let socket = UdpSocket::bind(&address)?;
        println!("udp echo on {}", socket.local_addr()?);
        loop {
            let (datagram, from) = socket.recv_from().await?;
            socket.send_to(datagram, from).await?;
        }
    })
}
