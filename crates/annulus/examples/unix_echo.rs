//! Echoes what it receives on a Unix socket. Run `cargo run --release -p annulus --example
//! unix_echo -- /tmp/echo.sock`.
//!
//! Limits: one client per available descriptor, and further clients wait; 256 KiB per direction,
//! and a quarter of the machine's memory in total; no timeouts. SIGINT and SIGTERM end the server
//! once queued bytes have been sent, and remove the socket's path.

use annulus::net::{UnixListener, UnixStream};
use annulus::signal::until_terminated;

fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or("/tmp/echo.sock".into());
    annulus::run(until_terminated(async {
        let listener = UnixListener::bind(&path)?;
        eprintln!("listening on unix:{path}");
        loop {
            let (stream, _peer) = listener.accept().await?;
            annulus::spawn(echo(stream));
        }
    }))
}

async fn echo(mut stream: UnixStream) -> std::io::Result<()> {
    while let Some(lease) = stream.recv().await? {
        stream.send(lease).await?;
    }
    Ok(())
}
