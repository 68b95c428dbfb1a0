//! A TCP proxy: each connection goes on to a target, direction by direction.
//! `cargo run --release -p annulus --example proxy -- 127.0.0.1:7000 127.0.0.1:8000 60 4000`
//!
//! An end of one direction is passed on while the other continues. A connection over which nothing has gone for so many
//! seconds, or up to a quarter more, is closed. While so many are open, further ones are closed at once. For each connection it prints how many bytes went each way, and how it ended.

use annulus::io::copy_bidirectional;
use annulus::net::{TcpListener, TcpStream};
use std::io;
use std::rc::Rc;
use std::time::Duration;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let listen = args.next().unwrap_or("127.0.0.1:7000".into());
    let target = args.next().unwrap_or("127.0.0.1:8000".into());
    let seconds = args.next().unwrap_or("60".into()).parse().map_err(io::Error::other)?;
    let most = args.next().unwrap_or("4000".into()).parse().map_err(io::Error::other)?;
    annulus::run(async {
        let listener = TcpListener::bind(listen)?;
        eprintln!("listening on {}", listener.local_addr()?);
        let target: Rc<str> = target.into();
        loop {
            let (client, peer) = listener.accept().await?;
            // Each connection has the target's address.
            if Rc::strong_count(&target) > most {
                eprintln!("{peer}: refused, since {most} connections are open");
                continue;
            }
            let target = target.clone();
            annulus::spawn(async move {
                let idle = Duration::from_secs(seconds);
                let ((up, down), end) = proxy(client, &target, idle).await;
                let how = match end {
                    Ok(()) => "closed".into(),
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => "timed out".into(),
                    Err(error) => error.to_string(),
                };
                eprintln!("{peer}: {up} bytes up, {down} bytes down, {how}");
            });
        }
    })
}

/// The bytes that went up and down, and how it ended.
async fn proxy(
    mut client: TcpStream,
    target: &str,
    idle: Duration,
) -> ((u64, u64), io::Result<()>) {
    let mut target = match TcpStream::connect(target).await {
        Ok(target) => target,
        Err(error) => return ((0, 0), Err(error)),
    };
    let mut copy = copy_bidirectional(&mut client, &mut target).idle_timeout(idle);
    let end = (&mut copy).await;
    (copy.copied(), end.map(drop))
}
