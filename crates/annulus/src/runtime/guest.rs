//! A runtime whose turns are run by another event loop.

use super::Runtime;
use super::core::{Core, Inner};
use crate::runtime::current::{self, CurrentGuard};
use crate::tasks::{budget, run_queue};
use crate::timers::HostClock;
use crate::unwind::contained;
use annulus_driver::Driver;
use annulus_kernel::EventFd;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::Waker;
use std::time::Duration;

/// A [`Runtime`] as the guest of another event loop on the same thread, for programs that already
/// have such a loop. It is this thread's current runtime until it is dropped, so its sockets, files
/// and timers work in the host's tasks, and [`spawn`](crate::spawn) works anywhere on the thread.
///
/// The host calls [`turn`](Self::turn)
/// - at the start, and when the previous [`turn`](Self::turn) asked for it: once the host's own
///   tasks have run, or when the timeout has expired;
/// - when the descriptor becomes readable. Watch it edge-triggered (`EPOLLET`); a level-triggered
///   host calls [`clear`](Self::clear) before the turn;
/// - when the waker passed to the last turn is woken: code outside a turn has used the runtime, and
///   may have started something that needs a turn.
///
/// A turn never waits. A complete host for one future:
///
/// ```
/// use annulus::{GuestNext, Runtime, time::sleep};
/// use std::pin::pin;
/// use std::task::{Context, Poll, Waker};
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// let mut guest = Runtime::new()?.into_guest()?;
/// let mut future = pin!(sleep(Duration::from_millis(5)));
/// while future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
///     if let GuestNext::Wait(timeout) = guest.turn(Waker::noop())? {
///         wait(&guest, timeout);
///         guest.clear();
///     }
/// }
/// # Ok(())
/// # }
///
/// /// Waits until the descriptor is readable or the timeout has expired; here with `poll`.
/// fn wait(guest: &impl std::os::fd::AsFd, timeout: Option<Duration>) {
///     let timeout = timeout.map(|left| rustix::time::Timespec::try_from(left).unwrap());
///     let mut polled = [rustix::event::PollFd::new(guest, rustix::event::PollFlags::IN)];
///     _ = rustix::event::poll(&mut polled, timeout.as_ref());
/// }
/// # use std::future::Future;
/// ```
///
/// The [task budget](crate::Builder::task_budget) applies to tasks of this runtime. Between two
/// turns, the host's tasks together may complete 1024 operations that are ready at once; after
/// that, every operation is pending until the next turn, for which the host is woken.
///
/// Dropping the guest ends the runtime, as dropping a [`Runtime`] does. That may wait for up to the
/// [shutdown timeout](crate::Builder::shutdown_timeout).
pub struct Guest {
    notifier: EventFd,
    // Dropped before the runtime, which makes itself current again in order to end.
    current_guard: Option<CurrentGuard>,
    runtime: Runtime,
}

/// What the host has to do after a turn of its [`Guest`].
///
/// ```
/// use annulus::{GuestNext, Runtime};
/// use std::task::Waker;
///
/// let mut guest = Runtime::new()?.into_guest()?;
/// annulus::spawn(async { println!("runs in the guest's turn") });
/// // How long the host may wait; `None` means forever.
/// let timeout = loop {
///     match guest.turn(Waker::noop())? {
///         GuestNext::Turn => {}
///         GuestNext::Wait(timeout) => break timeout,
///     }
/// };
/// assert_eq!(timeout, None); // No timer runs.
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestNext {
    /// Run the tasks that were woken, and take another turn without waiting.
    Turn,
    /// Take a turn once the descriptor is readable, the waker is woken, or this timeout has
    /// expired; `None` means no timeout.
    Wait(Option<Duration>),
}

/// Ready operations that the host's tasks together may complete between two turns.
const HOST_BUDGET: u32 = 1024;

/// Asks the host of this thread's guest for another turn.
fn request_turn() {
    // In a forked child there is no turn to ask for.
    _ = current::with(|core| core.request_turn());
}

impl Runtime {
    /// Makes this runtime the guest of another event loop on this thread: see [`Guest`].
    ///
    /// # Errors
    /// If a runtime is already running on this thread, under a simulated kernel (`Unsupported`), or
    /// if no descriptor is left.
    pub fn into_guest(self) -> io::Result<Guest> {
        let Some(wake_fd) = self.core.remote.wake_fd() else {
            let text = "a simulated kernel has no descriptor that another event loop could watch";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        };
        let notifier = self.core.borrow()?.watch_from_outside(wake_fd)?;
        let current_guard = current::set_current(&self.core)?;
        // Between turns, wake-ups of the runtime's tasks take the same path as those from other
        // threads, because that path ends the host's wait.
        run_queue::clear_owner_thread();
        budget::renew_for_host(HOST_BUDGET, request_turn);
        Ok(Guest { notifier: notifier.into(), current_guard: Some(current_guard), runtime: self })
    }
}

impl Guest {
    /// Runs ready tasks, starts queued operations and dispatches events. Does not wait.
    ///
    /// After [`GuestNext::Wait`], `host` is woken once if the runtime is used before the next turn.
    ///
    /// # Errors
    /// The errors of [`Runtime::try_block_on`]. After an error other than `Interrupted` the runtime
    /// can only be dropped.
    pub fn turn(&mut self, host: &Waker) -> io::Result<GuestNext> {
        let core = &self.runtime.core;
        core.host.set(host);
        core.watch_uses(false);
        run_queue::set_owner_thread(&core.remote, &core.run_queue);
        let next = core.guest_turn();
        run_queue::clear_owner_thread();
        budget::renew_for_host(HOST_BUDGET, request_turn);
        if matches!(next, Ok(GuestNext::Wait(_))) {
            core.watch_uses(true);
        }
        next
    }

    /// Sets the runtime's clock, for a host whose clock can be paused or advanced, as in tests.
    /// `elapsed` returns the time since some fixed moment and never decreases; it must not use the
    /// runtime.
    ///
    /// # Errors
    /// In a forked child.
    pub fn set_clock(&self, elapsed: fn() -> Duration) -> io::Result<()> {
        let core = &self.runtime.core;
        let clock = HostClock::new(core.kernel.now(), elapsed);
        core.borrow()?.state.clock = Some(clock);
        core.host_clock.set(Some(clock));
        Ok(())
    }

    /// Makes the descriptor unreadable, for a level-triggered host. Call it before a turn.
    pub fn clear(&self) {
        // On epoll the descriptor is not an eventfd, and the turn itself makes it unreadable.
        self.notifier.clear();
    }

    /// Returns the guest's runtime, for its handle, statistics and driver.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

impl AsFd for Guest {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notifier.as_fd()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.runtime.core.watch_uses(false);
        self.current_guard = None;
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guest({})", self.runtime.driver())
    }
}

/// The event loop that runs the turns of a guest.
#[derive(Default)]
pub(crate) struct Host(RefCell<Option<Waker>>);

impl Host {
    /// Sets the waker of the host, for [`wake`](Self::wake).
    pub(super) fn set(&self, waker: &Waker) {
        let is_same = self.0.borrow().as_ref().is_some_and(|host| host.will_wake(waker));
        if !is_same {
            let previous = self.0.replace(Some(waker.clone()));
            drop(previous);
        }
    }

    /// Wakes the host, so that it runs a turn.
    pub(crate) fn wake(&self) {
        let host = self.0.borrow().clone();
        if let Some(waker) = host {
            contained(|| waker.wake());
        }
    }
}

impl Inner {
    /// Returns a descriptor that becomes readable when the runtime needs a turn.
    fn watch_from_outside(&mut self, wake_fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let notifier = self.state.driver.notifier(wake_fd)?;
        if matches!(*self.state.driver, Driver::Uring(_))
            && let Some(poll) = self.wake_poll.take()
        {
            // The ring signals this descriptor and must not poll it as well.
            self.polls.drop_poll(&mut self.state, poll);
        }
        Ok(notifier)
    }
}

impl Core {
    fn guest_turn(&self) -> io::Result<GuestNext> {
        self.check_not_broken()?;
        self.borrow()?.state.driver.disable_notifier();
        let is_idle = self.turn_for_host()?;
        let inner = &mut *self.borrow()?;
        // Once enabled, the notifier reports later events.
        if is_idle && inner.state.driver.enable_notifier() {
            Ok(GuestNext::Wait(inner.until_timer()))
        } else {
            Ok(GuestNext::Turn)
        }
    }

    /// Runs ready tasks and a turn that does not wait. Returns true if nothing is left to do; the
    /// loop is then parked.
    pub(crate) fn turn_for_host(&self) -> io::Result<bool> {
        self.check_not_broken()?;
        self.remote.unpark();
        self.recorder.turn_resumes();
        self.run_tasks()?;
        self.turn(true, None)?;
        let drops_done = self.run_deferred_drops()?;
        let inner = &mut *self.borrow()?;
        let is_idle =
            drops_done && self.run_queue.is_empty() && self.poison_on_panic(|| inner.is_idle());
        Ok(is_idle && self.remote.park())
    }

    #[cfg(feature = "sim")]
    pub(crate) fn until_timer(&self) -> io::Result<Option<Duration>> {
        Ok(self.borrow()?.until_timer())
    }
}
