//! Helpers shared by the tests: tokio runtimes with annulus in them.
#![allow(dead_code)] // No test file uses all of it.

use annulus::net::TcpStream;
use annulus::{Builder, DriverChoice, Runtime};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::task::LocalSet;
use tokio::time::timeout;

/// How long a test may hang before it fails.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Runs a body on both drivers, each in a current-thread runtime with a `LocalSet` and in a local
/// runtime.
pub(crate) fn on_both<F: Future<Output = io::Result<()>>>(body: impl Fn() -> F) {
    for driver in [DriverChoice::Auto, DriverChoice::Epoll] {
        on(Runtime::builder().driver(driver), body());
        let within = async { timeout(LONG, body()).await.expect("the test hangs") };
        annulus_tokio::run_with(Runtime::builder().driver(driver), within).unwrap().unwrap();
    }
}

fn on(builder: Builder, body: impl Future<Output = io::Result<()>>) {
    let host = host();
    let local = LocalSet::new();
    let body = async {
        let entered = annulus_tokio::enter_with(builder)?;
        timeout(LONG, body).await.expect("the test hangs")?;
        drop(entered);
        io::Result::Ok(())
    };
    host.block_on(local.run_until(body)).unwrap();
}

pub(crate) fn host() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Polls a future once and drops it.
pub(crate) fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

pub(crate) async fn echo(mut stream: TcpStream) -> io::Result<()> {
    while let Some(lease) = stream.recv().await? {
        stream.send(lease).await?;
    }
    Ok(())
}
