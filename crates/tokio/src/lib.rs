//! annulus inside tokio: its sockets, files and timers in tokio tasks, on tokio's thread, beside everything of tokio.
//!
//! [`enter`] makes an annulus runtime the guest of the current-thread runtime of tokio that it is called in. From then on, and until
//! its [`Entered`] is dropped, code of that thread uses both:
//!
//! ```
//! use annulus::net::TcpListener;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> std::io::Result<()> {
//!     let _entered = annulus_tokio::enter()?;
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     // A client on tokio's own socket.
//!     let client = tokio::spawn(async move {
//!         let mut stream = tokio::net::TcpStream::connect(address).await?;
//!         stream.write_all(b"hello").await?;
//!         stream.shutdown().await?;
//!         let mut answer = String::new();
//!         stream.read_to_string(&mut answer).await.map(|_| answer)
//!     });
//!     let (mut stream, _) = listener.accept().await?;
//!     while let Some(lease) = stream.recv().await? {
//!         stream.send(lease).await?;
//!     }
//!     drop(stream);
//!     assert_eq!(client.await.unwrap()?, "hello");
//!     Ok(())
//! }
//! ```
//!
//! [`run`] makes both runtimes: `annulus_tokio::run(async { … })` in `main` takes the place of `#[tokio::main]`. [`run_with`] takes settings
//! of annulus, and [`run_each`] does it once a core. There is no attribute macro, which would save one line and hide the error that a
//! runtime which cannot be built is.
//!
//! Streams of annulus are not `Send`, so tasks that use them are spawned by [`tokio::task::spawn_local`], inside [`run`], a
//! [`LocalRuntime`] or a [`LocalSet`]; or by [`annulus::spawn`], everywhere. [`tokio::spawn`], which demands `Send`, works for all others.
//!
//! ```toml
//! [dependencies]
//! # A checkout beside Cargo.toml: they are not published yet.
//! annulus = { path = "annulus/crates/annulus" }
//! annulus-tokio = { path = "annulus/crates/tokio" }
//! tokio = { version = "1", features = ["io-util", "macros", "net", "rt", "time"] }
//! ```
//!
//! With feature `tokio-io` of `annulus`, which this crate switches on, its streams have tokio's `AsyncRead`, `AsyncBufRead` and
//! `AsyncWrite`.
//!
//! # What it costs
//!
//! A wait of the thread is tokio's, on its epoll instance, and a turn of annulus follows it: two system calls more than a runtime of
//! annulus alone makes for the same wait. Under load a turn serves many connections. With one connection that sends a request and waits for the
//! answer, a request is three system calls: the wait, a turn that takes the request, and one that sends the answer. A runtime of annulus
//! alone makes one, and tokio with its own sockets three.
//!
//! In a [`LocalSet`] that `block_on` runs, tokio polls its epoll instance once more for each wake of a local task: prefer [`run`], or
//! a [`LocalRuntime`] (`build_local` of tokio's builder, `#[tokio::main(flavor = "local")]`).
//!
//! # What to know
//!
//! - Timers of annulus have tokio's resolution here, a millisecond.
//! - tokio's runtime must have its I/O and time drivers: `enable_all`. Without one of them [`enter`] panics with tokio's message.
//! - The [task budget](annulus::Builder::task_budget) of annulus holds for its own tasks. Tasks of tokio share a larger one of annulus
//!   operations between two turns: then they wait until the others, and annulus, had their turn.
//! - A multi-threaded runtime is refused, since it moves its tasks between threads. [`run_each`] runs one loop a core.
//! - A current-thread runtime of tokio may be run by one thread after another. The thread that has entered annulus is the one that has to
//!   run it: if another one does, annulus ends there, and [`Entered::failed`] says so.
//!
//! [`LocalRuntime`]: tokio::runtime::LocalRuntime
//! [`LocalSet`]: tokio::task::LocalSet

#![cfg_attr(docsrs, feature(doc_cfg))]

mod drive;
mod each;
mod entered;
mod state;

pub use each::run_each;
pub use entered::{Entered, enter, enter_with};

use annulus::{Builder, Runtime};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use tokio::runtime::{Handle, LocalOptions};

/// Runs a future on a runtime of tokio with annulus in it: what `#[tokio::main]` does, for a program in guest mode.
/// [`tokio::spawn`] and [`tokio::task::spawn_local`] work in it, as do [`annulus::spawn`] and everything of both crates that needs a
/// runtime. When the future is ready, tasks that still run are dropped; then streams send what they have queued, within the
/// [shutdown timeout](annulus::Builder::shutdown_timeout).
///
/// ```
/// let answer = annulus_tokio::run(async {
///     let (mut one, mut other) = annulus::net::UnixStream::pair()?;
///     let task = tokio::task::spawn_local(async move { one.send("hello").await });
///     let lease = other.recv().await?.expect("a greeting");
///     task.await??;
///     std::io::Result::Ok(lease.to_vec())
/// })?;
/// assert_eq!(answer?, b"hello");
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// If one of the two runtimes cannot be built, if this thread runs one of annulus already, or if annulus cannot go on; see
/// [`Entered::failed`]. Inside another runtime of tokio: use [`enter`] there.
pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    run_with(Runtime::builder(), future)
}

/// As [`run`], with settings of annulus.
///
/// ```
/// use annulus::{DriverChoice, Runtime};
///
/// let settings = Runtime::builder().driver(DriverChoice::Epoll).task_budget(64);
/// let answer = annulus_tokio::run_with(settings, async { annulus::spawn(async { 42 }).await })?;
/// assert_eq!(answer.unwrap(), 42);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// As [`run`], and as [`Builder::build`] for settings that cannot be.
pub fn run_with<F: Future>(settings: Builder, future: F) -> io::Result<F::Output> {
    if Handle::try_current().is_ok() {
        return Err(io::Error::other(
            "annulus_tokio::run was called inside a runtime of tokio, and makes one of its own: call annulus_tokio::enter \
             there instead",
        ));
    }
    // The tasks of this runtime need not be `Send` without a `LocalSet`, each of whose wakes would cost a call of tokio's poll.
    let host = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    let mut entered = {
        let _context = host.enter();
        enter_with(settings)?
    };
    let output = host.block_on(until_failure(future, &mut entered));
    // Values of annulus that tasks still hold are dropped while it is there.
    drop(host);
    drop(entered);
    output
}

async fn until_failure<F: Future>(future: F, entered: &mut Entered) -> io::Result<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => entered.poll_failed(cx).map(Err),
    })
    .await
}
