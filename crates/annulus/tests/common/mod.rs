//! Helpers shared by several tests.
#![allow(dead_code, reason = "each test file uses only some of it")]

pub(crate) mod denied;
pub(crate) mod foreign;
pub(crate) mod fuse;
pub(crate) mod host;
pub(crate) mod piecewise;
pub(crate) mod rerun;

use annulus::io::AsyncRecv;
use annulus::net::{TcpListener, TcpStream};
use annulus::shards::Shards;
use annulus::time::{sleep, timeout};
use annulus::{Builder, DriverChoice, DriverKind, Runtime};
use annulus_skip::skip;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(crate) fn run_on<T>(builder: Builder, future: impl Future<Output = io::Result<T>>) -> T {
    let mut runtime = builder.build().expect("no runtime can be built");
    runtime.block_on(future).expect("a step of the test failed")
}

/// Runs a test's future on a runtime with default settings.
pub(crate) fn run<T>(future: impl Future<Output = io::Result<T>>) -> T {
    run_on(Runtime::builder(), future)
}

/// Returns true if one armed receive delivers many messages. Before Linux 6.17, io_uring cannot
/// limit such a receive, so each receive is armed separately.
pub(crate) fn receives_are_armed_once() -> bool {
    let runtime = Runtime::new().expect("no runtime can be built");
    let driver = runtime.driver();
    driver.kind == DriverKind::Epoll || driver.features.has("receive limit")
}

/// Returns two ends of one connection, both on this runtime.
pub(crate) async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?).await?;
    let (server, _) = listener.accept().await?;
    Ok((client, server))
}

/// Returns a connection with one end on this runtime; the other is a blocking socket of the
/// standard library.
pub(crate) async fn half_pair() -> io::Result<(TcpStream, std::net::TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let std_side = std::net::TcpStream::connect(listener.local_addr()?)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, std_side))
}

/// Waits for a socket's error, such as a reset, without reading from it and without blocking the
/// loop.
pub(crate) async fn error_of(socket: &std::net::TcpStream) -> io::Result<io::Error> {
    let seen = async {
        loop {
            if let Some(error) = socket.take_error()? {
                return Ok(error);
            }
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(20), seen).await.expect("no error arrived in time")
}

/// Returns bytes in which every shift, swap or loss is visible: a sequence with a prime period.
/// Each page but the first begins with its number. Pages are copied, since computing each byte
/// would dominate the time of an unoptimised test.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    const PERIOD: usize = 251;
    const PAGE: usize = 4096;
    let sequence: Vec<u8> = (0..PERIOD + PAGE).map(|i| (i * 31 % PERIOD) as u8).collect();
    let mut bytes = Vec::with_capacity(len + PAGE);
    for page in 0..len.div_ceil(PAGE) {
        bytes.extend_from_slice(&sequence[bytes.len() % PERIOD..][..PAGE]);
        if page > 0 {
            bytes[page * PAGE..][..4].copy_from_slice(&(page as u32).to_be_bytes());
        }
    }
    bytes.truncate(len);
    bytes
}

/// Receives until this many bytes have arrived, or the stream ends.
pub(crate) async fn receive(stream: &mut impl AsyncRecv, len: usize) -> io::Result<Vec<u8>> {
    let mut got = Vec::new();
    while got.len() < len {
        let Some(lease) = stream.recv().await? else { break };
        got.extend_from_slice(&lease);
    }
    Ok(got)
}

pub(crate) async fn echo(mut stream: TcpStream) -> io::Result<()> {
    while let Some(lease) = stream.recv().await? {
        stream.send(lease).await?;
    }
    Ok(())
}

/// Returns a loopback address with port 0 that no other test uses, so that a port bound at this
/// address stays free after its close.
pub(crate) fn own_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = std::process::id().to_be_bytes();
    ([127, 64 + number % 128, high, low], 0).into()
}

pub(crate) fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Polls a future once and drops it.
pub(crate) fn touch<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Returns true if Python is available. Otherwise reports the test as skipped.
pub(crate) fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        skip!("no python3: apt-get install python3");
    }
    found
}

/// Serves an echo on this runtime at the returned address, for as long as the runtime runs.
pub(crate) fn echo_server() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    annulus::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            annulus::spawn(echo(stream));
        }
    });
    Ok(address)
}

/// Returns functions that create shards, one per driver that works here.
pub(crate) fn drivers() -> Vec<fn(usize) -> Shards> {
    let epoll = |count| shards_on(DriverChoice::Epoll, count);
    let uring = |count| shards_on(DriverChoice::Uring, count);
    if annulus_ring::Features::detect().is_err() {
        skip!("io_uring is blocked here");
        return vec![epoll];
    }
    vec![epoll, uring]
}

fn shards_on(choice: DriverChoice, count: usize) -> Shards {
    Shards::new(count).runtime(move |_| Runtime::builder().driver(choice))
}
