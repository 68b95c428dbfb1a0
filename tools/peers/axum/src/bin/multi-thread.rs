//! axum as its documentation runs it: `axum::serve` on tokio's multi-threaded runtime, with one
//! worker per core.

use axum::serve::ListenerExt;
use peer_axum::{Address, BACKLOG, announce, arguments, must, router};
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpSocket;
use tokio::runtime::Builder;

fn main() {
    let (address, _) = arguments(&[]);
    must(must(Builder::new_multi_thread().enable_all().build()).block_on(serve(address)));
}

async fn serve(address: SocketAddr) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(BACKLOG as u32)?;
    announce(&Address::Tcp(listener.local_addr()?));
    // A connection works without TCP_NODELAY, too, so a failure is ignored. Annulus's streams set
    // the option as well.
    axum::serve(listener.tap_io(|stream| _ = stream.set_nodelay(true)), router()).await
}
