//! annulus inside tokio: its sockets, files and timers in tokio tasks, on tokio's thread, beside
//! everything that tokio offers. [`enter`] makes an annulus runtime the guest of the current-thread
//! tokio runtime in which it is called. Until the returned [`Entered`] is dropped, code on that
//! thread can use both:
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
//! [`run`] creates both runtimes: `annulus_tokio::run(async { … })` in `main` replaces
//! `#[tokio::main]`. [`run_with`] takes annulus settings, and [`run_each`] runs one loop per
//! core. An attribute macro would save one line and hide the error when a runtime cannot be built,
//! so this crate has none. annulus streams are not `Send`. Spawn tasks that use them with
//! [`tokio::task::spawn_local`] inside [`run`], a [`LocalRuntime`] or a [`LocalSet`], or with
//! [`annulus::spawn`] anywhere. [`tokio::spawn`], which requires `Send`, works for all other tasks.
//!
//! ```toml
//! [dependencies]
//! # Not published yet: use a checkout beside Cargo.toml.
//! annulus = { path = "annulus/crates/annulus" }
//! annulus-tokio = { path = "annulus/crates/tokio" }
//! tokio = { version = "1", features = ["io-util", "macros", "net", "rt", "time"] }
//! ```
//! This crate enables the feature `tokio-io` of `annulus`, with which its streams implement tokio's
//! `AsyncRead`, `AsyncBufRead` and `AsyncWrite`.
//!
//! # What it costs
//! The thread waits in tokio, on its epoll instance, and then takes an annulus turn. annulus alone
//! makes two system calls fewer for the same wait. Under load, one turn serves many connections.
//! With a single connection that sends a request and waits for the answer, a request costs three
//! system calls: the wait, a turn that receives the request, and one that sends the answer. annulus
//! alone makes one, and tokio with its own sockets makes three. In a [`LocalSet`] run by
//! `block_on`, tokio polls its epoll instance one more time for each wake of a local task: prefer
//! [`run`] or a [`LocalRuntime`] (`build_local` of tokio's builder, `#[tokio::main(flavor =
//! "local")]`).
//!
//! # What to know
//! - annulus timers have tokio's resolution of one millisecond here.
//! - The tokio runtime must have I/O and time drivers: use `enable_all`. Without one of them,
//!   [`enter`] panics with tokio's message.
//! - The [task budget](annulus::Builder::task_budget) of annulus applies to its own tasks. Between
//!   two turns, all tokio tasks share a larger budget of annulus operations. Once it is used up,
//!   they wait until other tasks and annulus have run.
//! - A multi-threaded runtime is refused, because it moves tasks between threads. [`run_each`] runs
//!   one loop per core.
//! - Different threads may run a current-thread tokio runtime one after another, but only the
//!   thread that has entered annulus may continue to run it. If another thread does, annulus stops,
//!   and [`Entered::failed`] reports that.
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

/// Runs a future on a new tokio runtime with annulus in it, instead of `#[tokio::main]`.
/// [`tokio::spawn`], [`tokio::task::spawn_local`], [`annulus::spawn`] and everything else in both
/// crates that needs a runtime work there. When the future is ready, tasks that are still running
/// are dropped; then streams send their queued bytes, within the [shutdown
/// timeout](annulus::Builder::shutdown_timeout).
///
/// ```
/// let answer = annulus_tokio::run(async {
///     let (mut one, mut other) = annulus::net::UnixStream::pair()?;
///     let task = tokio::task::spawn_local(async move { one.send("hello").await });
///     let lease = other.recv().await?.expect("the stream has ended");
///     task.await??;
///     std::io::Result::Ok(lease.to_vec())
/// })?;
/// assert_eq!(answer?, b"hello");
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// Fails if one of the two runtimes cannot be built, if this thread already has an annulus runtime,
/// or if annulus cannot continue (see [`Entered::failed`]). Also fails inside another tokio
/// runtime: use [`enter`] there.
pub fn run<F: Future>(future: F) -> io::Result<F::Output> {
    run_with(Runtime::builder(), future)
}

/// Like [`run`], but with annulus settings.
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
/// Fails like [`run`], and like [`Builder::build`] for invalid settings.
pub fn run_with<F: Future>(settings: Builder, future: F) -> io::Result<F::Output> {
    if Handle::try_current().is_ok() {
        return Err(io::Error::other(
            "annulus_tokio::run was called inside a tokio runtime, but creates its own: call annulus_tokio::enter \
             there instead",
        ));
    }
    // In a local runtime, tasks need not be `Send`. With a `LocalSet`, tokio would also poll epoll
    // for each wake of such a task.
    let host = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    let mut entered = {
        let _context = host.enter();
        enter_with(settings)?
    };
    let output = host.block_on(until_failure(future, &mut entered));
    // Tasks are dropped first, so that annulus values that they hold are dropped while annulus
    // still exists.
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
