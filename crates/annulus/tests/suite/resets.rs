//! Connections that send something and are reset at once leave nothing behind. On io_uring the
//! kernel loses the end of a few of them (39 of 504,411 on Linux 6.18; see
//! `tools/peers/lost-wake-up.c`), so a short run shows little. `ANNULUS_RESETS` sets the number of
//! connections.

use crate::common::echo;
use crate::sim::seeds::number;
use annulus::net::{TcpListener, TcpStream};
use annulus::sim::{Sim, run_on};
use annulus::task::JoinSet;
use annulus::time::timeout;
use annulus::{DriverChoice, Runtime, spawn, stats};
use annulus_skip::skip;
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

/// Connections, unless `ANNULUS_RESETS` sets another number.
const CONNECTIONS: u64 = 2000;
/// How long the last connections may take to close.
const PATIENCE: Duration = Duration::from_secs(10);

fn connections() -> u64 {
    number("ANNULUS_RESETS", CONNECTIONS)
}

async fn send_and_reset(address: SocketAddr) -> io::Result<()> {
    for _ in 0..connections() {
        let mut stream = TcpStream::connect(address).await?;
        stream.send("data, and then").await?;
        stream.drain().await?;
        stream.abort();
    }
    Ok(())
}

/// Serves until the clients have ended and no connection has arrived for a while.
async fn serve(listener: TcpListener, have_ended: impl Fn() -> bool) -> io::Result<()> {
    let (mut echoes, mut has_served) = (JoinSet::new(), false);
    loop {
        match timeout(Duration::from_millis(100), listener.accept()).await {
            Ok(connection) => {
                echoes.spawn(echo(connection?.0));
                has_served = true;
                while echoes.try_join_next().is_some() {}
            }
            Err(_) if have_ended() => break,
            Err(_) => {}
        }
    }
    assert!(has_served, "every connection was reset before it was accepted");
    let all = async { while echoes.join_next().await.is_some() {} };
    timeout(PATIENCE, all).await.unwrap_or_else(|_| panic!("{} tasks are left", echoes.len()));
    let stats = stats().expect("the runtime has ended");
    assert_eq!((stats.resources.streams, stats.stream_buffers.lent), (0, 0));
    Ok(())
}

fn nothing_is_left_on(driver: DriverChoice) {
    let Ok(mut runtime) = Runtime::builder().driver(driver).build() else {
        skip!("no {driver} here");
        return;
    };
    let served = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let clients = thread::spawn(move || annulus::run(send_and_reset(address)));
        serve(listener, || clients.is_finished()).await?;
        clients.join().expect("the thread panicked")
    });
    served.unwrap();
}

#[test]
fn nothing_is_left_on_uring() {
    nothing_is_left_on(DriverChoice::Uring);
}

#[test]
fn nothing_is_left_on_epoll() {
    nothing_is_left_on(DriverChoice::Epoll);
}

#[test]
fn nothing_is_left_under_simulation() {
    let served = run_on(&Sim::builder(1).build(), Runtime::builder(), async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, ended) = (listener.local_addr()?, Rc::new(Cell::new(false)));
        let have_ended = ended.clone();
        let clients = spawn(async move {
            let sent = send_and_reset(address).await;
            ended.set(true);
            sent
        });
        serve(listener, || have_ended.get()).await?;
        clients.await.expect("the task panicked")
    });
    served.unwrap();
}
