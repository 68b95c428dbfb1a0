//! How runtimes end. `mode.rs` checks after every body that nothing is left.

use crate::common::{pair, pattern, receive, touch};
use crate::conformance::mode::{Mode, nothing_left};
use annulus::net::{TcpListener, TcpStream};
use annulus::spawn;
use annulus::task::yield_now;
use annulus::time::sleep;
use std::future::pending;
use std::io;
use std::time::Duration;

/// When the body ends, any of these may be in flight: an accept, connects, receives, unread sends,
/// a drain, a shutdown, a timer.
pub(crate) async fn everything_may_be_in_flight() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    spawn(async move { listener.accept().await.map(drop) });
    for stage in 0..4 {
        let (mut client, mut server) = pair().await?;
        spawn(async move { server.recv().await.map(drop) });
        spawn(async move {
            client.send(pattern(100_000)).await?;
            match stage {
                0 => client.drain().await?,
                1 => client.shutdown().await?,
                2 => drop(client.recv().await?),
                _ => client.abort(),
            }
            io::Result::Ok(())
        });
    }
    spawn(async { sleep(Duration::MAX).await });
    spawn(pending::<()>());
    yield_now().await;
    spawn(TcpStream::connect(address));
    assert!(touch(TcpStream::connect(address)).is_none());
    yield_now().await;
    spawn(TcpStream::connect(address));
    Ok(())
}

/// Runs two runtimes of a mode at once on one thread, and one after them.
pub(crate) fn side_by_side(mode: Mode) {
    if !mode.is_available() {
        return;
    }
    let ping = async |text: &'static str| {
        let (mut client, mut server) = pair().await?;
        client.send(text).await?;
        io::Result::Ok(receive(&mut server, text.len()).await? == text.as_bytes())
    };
    let ((mut first, one), (mut second, other)) = (mode.runtime(), mode.runtime());
    for _ in 0..3 {
        assert!(first.block_on(ping("first")).unwrap());
        assert!(second.block_on(ping("second")).unwrap());
    }
    drop(first);
    assert!(second.block_on(ping("alone")).unwrap());
    drop(second);
    one.iter().chain(&other).for_each(|sim| nothing_left(1, sim));
}
