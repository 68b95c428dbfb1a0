//! Sends back what it receives, on a Unix socket: `cargo run --release -p annulus --example unix_echo -- /tmp/echo.sock`
//! Limits: as many clients as descriptors, others wait; no time; 256 KiB a direction, and a quarter of the machine's memory for all. SIGINT
//! and SIGTERM end it, once what is queued was sent, and the path is gone.

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
