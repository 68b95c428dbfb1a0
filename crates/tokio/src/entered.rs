//! Makes annulus the guest of this thread's tokio runtime.

use crate::drive::drive;
use crate::state::{STATE, State};
use annulus::{Builder, Runtime};
use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinHandle;
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

thread_local! {
    static CLOCK_ORIGIN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns the time since annulus was entered, by tokio's clock, which a test may pause and
/// advance.
fn elapsed() -> Duration {
    CLOCK_ORIGIN.get().map_or(Duration::ZERO, |origin| Instant::now() - origin)
}

/// Makes an annulus runtime with default settings the guest of the current-thread tokio runtime on
/// this thread, until the returned value is dropped. Call it on the thread that calls `block_on`,
/// not in `spawn_blocking`: on any other thread, annulus would make no progress, and
/// [`Entered::failed`] would report that.
///
/// # Errors
/// See [`enter_with`].
///
/// # Panics
/// See [`enter_with`].
pub fn enter() -> io::Result<Entered> {
    enter_with(Runtime::builder())
}

/// Like [`enter`], but with settings.
///
/// # Errors
/// Returns `Unsupported` in a multi-threaded tokio runtime. Also fails outside a tokio runtime, if
/// this thread already has an annulus runtime, or if the annulus runtime cannot be built (see
/// [`Builder::build`]).
///
/// # Panics
/// If the tokio runtime was built without I/O or without time, with tokio's message. Use
/// `enable_all`.
pub fn enter_with(builder: Builder) -> io::Result<Entered> {
    let host = host()?;
    let guest = builder.build()?.into_guest()?;
    let notifier = guest.as_fd().try_clone_to_owned()?;
    // `with_interest` is deprecated, but the function that replaces it is unsafe and exists only
    // since tokio 1.51.6 and 1.53.3.
    #[allow(deprecated)]
    let notifier = AsyncFd::with_interest(notifier, Interest::READABLE)?;
    CLOCK_ORIGIN.set(Some(Instant::now()));
    guest.set_clock(elapsed)?;
    STATE.with(|state| *state.borrow_mut() = State::Idle(guest));
    // A turn runs annulus tasks, whose tokio operations must not use up the budget of this task.
    let task = host.spawn(unconstrained(drive(notifier, thread::current().id())));
    Ok(Entered { task, _stays_here: PhantomData })
}

/// Returns the current-thread tokio runtime of this thread.
///
/// # Panics
/// If the runtime has no time driver. Without this check, the task that takes the turns would panic
/// later.
fn host() -> io::Result<Handle> {
    let host = Handle::try_current().map_err(|_| {
        io::Error::other(match annulus::handle() {
            Err(_) => {
                "annulus was entered outside a tokio runtime: use annulus_tokio::run, or call enter inside \
                 block_on of a current-thread runtime"
            }
            Ok(_) => {
                "annulus was entered inside annulus::run, outside a tokio runtime: replace annulus::run with \
                 annulus_tokio::run"
            }
        })
    })?;
    match host.runtime_flavor() {
        RuntimeFlavor::CurrentThread => {
            // The only way to check for a time driver is to create a timer, which panics without
            // one.
            drop(tokio::time::sleep(Duration::ZERO));
            Ok(host)
        }
        _ => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "annulus was entered in a multi-threaded tokio runtime, which moves tasks between threads: use \
             #[tokio::main(flavor = \"current_thread\")], annulus_tokio::run, or annulus_tokio::run_each for a \
             loop per core",
        )),
    }
}

/// Keeps annulus part of this thread's tokio runtime; see [`enter`]. Dropping it ends annulus as
/// dropping a [`Runtime`] does: streams send their queued bytes, within the [shutdown
/// timeout](annulus::Builder::shutdown_timeout).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let entered = annulus_tokio::enter()?;
/// annulus::time::sleep(std::time::Duration::from_millis(1)).await;
/// drop(entered);
/// assert!(annulus::handle().is_err(), "outside an annulus runtime");
/// # Ok(())
/// # }
/// ```
#[must_use = "annulus ends when this is dropped"]
pub struct Entered {
    task: JoinHandle<io::Error>,
    _stays_here: PhantomData<*const ()>,
}

impl Entered {
    /// Waits until annulus cannot continue, and returns why, for example because of a call to
    /// [`annulus::Handle::stop`]. Code that waits for annulus would then wait forever, so a program
    /// that does not use [`run`](crate::run) should end or drop this value. Cancel-safe. Panics if
    /// called again after it has returned.
    pub async fn failed(&mut self) -> io::Error {
        poll_fn(|cx| self.poll_failed(cx)).await
    }

    pub(crate) fn poll_failed(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        Pin::new(&mut self.task).poll(cx).map(|ended| ended.unwrap_or_else(io::Error::other))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.task.abort();
        let left = STATE.try_with(|state| {
            let mut state = state.borrow_mut();
            match &*state {
                State::Turning => std::mem::replace(&mut *state, State::Ending),
                _ => std::mem::replace(&mut *state, State::None),
            }
        });
        // The state is no longer borrowed here: dropping the runtime drops tasks, which may use it.
        drop(left);
    }
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entered")
    }
}
