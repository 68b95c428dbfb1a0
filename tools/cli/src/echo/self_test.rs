//! Checks that this process is allowed to make the system calls that a server needs, before the
//! server announces itself.
//!
//! A system-call filter, such as a container's or service manager's seccomp profile, may let a
//! server start and listen, but not accept, receive or send. So the server makes each call once,
//! over its own Unix socket. If it cannot open one, the test is skipped.

use super::mode::Mode;
use annulus::net::{UnixListener, UnixStream};
use annulus::{DriverChoice, DriverKind, Runtime, time};
use annulus_kernel::named;
use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvFlags, SendFlags, Shutdown, SocketFlags, accept, accept_with, getpeername, recv, send,
    shutdown,
};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, SocketAddr};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The time limit for an echo and for the end of a thread. Both usually take microseconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The context of every error.
const CANNOT_SERVE: &str = "cannot serve";

/// Makes the calls of a server with threads, including the start and end of a thread.
pub(super) fn with_threads() -> Result<()> {
    with_plain_calls(Mode::Threads).context(CANNOT_SERVE)?;
    let (sender, ended) = mpsc::channel();
    let first = thread::Builder::new().spawn(|| ()).context("cannot start a thread")?;
    let second = thread::Builder::new().spawn(move || sender.send(first.join()));
    second.context("cannot start a thread")?;
    // A thread that is denied `exit` never ends.
    let timed_out = |_| {
        anyhow!("{CANNOT_SERVE}: exit: a thread does not end; a seccomp filter may deny the call")
    };
    ended.recv_timeout(CALL_TIMEOUT).map_err(timed_out).map(drop)
}

/// Echoes once on a temporary runtime. With the epoll driver, first makes each system call by
/// itself, so that an error names the call.
pub(super) fn on_runtime(choice: DriverChoice) -> Result<()> {
    // If the runtime cannot be built, the workers will report the error.
    let builder = Runtime::builder().driver(choice).shutdown_timeout(Duration::ZERO);
    let Ok(mut runtime) = builder.build() else { return Ok(()) };
    if runtime.driver().kind == DriverKind::Epoll {
        with_plain_calls(Mode::Tasks(choice)).context(CANNOT_SERVE)?;
    }
    let served = runtime.try_block_on(async { time::timeout(CALL_TIMEOUT, echo_once()).await });
    let timed_out =
        |_| Err(io::Error::new(io::ErrorKind::TimedOut, "the self-test echo timed out"));
    served.context(CANNOT_SERVE)?.unwrap_or_else(timed_out).context(CANNOT_SERVE)
}

/// Returns an abstract socket name that only this process uses.
fn address(purpose: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("annulus-echo-{}-{purpose}", std::process::id()))
}

/// Makes the calls of the epoll driver or of threads. An error contains the name of the call.
fn with_plain_calls(mode: Mode) -> io::Result<()> {
    let address = address("calls")?;
    let Ok(listener) = net::UnixListener::bind_addr(&address) else { return Ok(()) };
    let Ok(client) = net::UnixStream::connect_addr(&address) else { return Ok(()) };
    // The runtime falls back from `accept4` to `accept`. The standard library, which the threads
    // use, does not.
    let server = match mode {
        Mode::Threads => accept_with(&listener, SocketFlags::CLOEXEC).map_err(named("accept4"))?,
        _ => accept(&listener).map_err(named("accept"))?,
    };
    getpeername(&server).map_err(named("getpeername"))?;
    send(&client, b"x", SendFlags::NOSIGNAL).map_err(named("sendto"))?;
    recv(&server, &mut [0; 1], RecvFlags::empty()).map_err(named("recvfrom"))?;
    if mode == Mode::Threads {
        poll(&mut [PollFd::new(&server, PollFlags::IN)], Some(&Timespec::default()))
            .map_err(named("ppoll"))?;
    }
    shutdown(&server, Shutdown::Both).map_err(named("shutdown"))
}

/// Accepts a connection and echoes once.
async fn echo_once() -> io::Result<()> {
    let address = address("runtime")?;
    let Ok(listener) = UnixListener::bind_addr(&address) else { return Ok(()) };
    let Ok(mut client) = UnixStream::connect_addr(&address).await else { return Ok(()) };
    let (mut server, _) = listener.accept().await?;
    client.send("x").await?;
    let lease = server.recv().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    server.send(lease).await?;
    client.recv().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(())
}
