//! Sends what it receives back, on a Unix socket: `cargo run --release -p annulus --example unix_echo -- /tmp/echo.sock`

use annulus::net::{UnixListener, UnixStream};

fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "/tmp/echo.sock".into());
    annulus::run(async {
        let listener = UnixListener::bind(&path)?;
        println!("unix echo on {path}");
        loop {
            let (stream, _) = listener.accept().await?;
            annulus::spawn(echo(stream));
        }
    })
}

async fn echo(mut stream: UnixStream) -> std::io::Result<()> {
    while let Some(lease) = stream.recv().await? {
        stream.send(lease).await?;
    }
    Ok(())
}
