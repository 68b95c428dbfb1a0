//! The state that the handles of a runtime share, and how they borrow it.

use super::guest::Host;
use super::nop::Nops;
#[cfg(feature = "macros")]
use super::select::Choices;
use super::shutdown::LastWrites;
use super::signals::SimulatedSignals;
use crate::blocking::Blocking;
use crate::bytes::thread_bound::stays;
use crate::file_policy::InlinePolicy;
use crate::fork_guard::{self, ForkGuard};
use crate::slots::connects::Connects;
use crate::slots::custom_ops::CustomOps;
use crate::slots::datagrams::Datagrams;
use crate::slots::file_ops::FileOps;
use crate::slots::listeners::Listeners;
use crate::slots::loop_state::{KernelHeld, LoopState};
use crate::slots::polls::Polls;
use crate::slots::streams::Streams;
use crate::stats::recorder::Recorder;
use crate::tasks::RunQueue;
use crate::tasks::remote::Remote;
use crate::timers::HostClock;
use annulus_driver::{BufferRegistry, Counters, PoolSize};
use annulus_kernel::{Fd, Kernel, Linux};
use rustix::io::Errno;
use std::cell::{Cell, RefCell, RefMut};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use std::{io, mem, thread};

/// State that is borrowed as a whole, briefly. No user code runs while it is borrowed, except that
/// wakers are cloned.
pub(crate) struct Inner {
    /// Driver, timers and memory, which every family uses. The families below own the slots of
    /// their operations.
    pub(crate) state: LoopState,
    pub(crate) streams: Streams,
    pub(crate) listeners: Listeners,
    pub(crate) connects: Connects,
    pub(crate) polls: Polls,
    pub(crate) nops: Nops,
    pub(crate) file_ops: FileOps,
    pub(crate) custom_ops: CustomOps,
    pub(crate) datagrams: Datagrams,
    /// The poll of the descriptor through which other threads wake the loop.
    pub(crate) wake_poll: Option<u32>,
}

impl Inner {
    pub(crate) fn new(state: LoopState, datagrams: PoolSize) -> Self {
        Self {
            streams: Streams::new(&state),
            listeners: Listeners::default(),
            connects: Connects::default(),
            polls: Polls::default(),
            nops: Nops::default(),
            file_ops: FileOps::default(),
            custom_ops: CustomOps::default(),
            datagrams: Datagrams::new(datagrams),
            wake_poll: None,
            state,
        }
    }
}

/// The part of a runtime that its streams, timers and tasks share.
pub(crate) struct Core {
    /// `None` once the runtime has ended.
    inner: RefCell<Option<KernelHeld<Inner>>>,
    /// The tasks of the runtime. Kept outside `inner`, because tasks are woken and spawned while
    /// `inner` is borrowed.
    pub(crate) run_queue: Rc<RunQueue>,
    /// The part shared with other threads: their inbox and the wake-up of the loop.
    pub(crate) remote: Arc<Remote>,
    /// The driver's kernel, for calls that need no slot, and for the clock.
    pub(crate) kernel: Rc<dyn Kernel>,
    /// The buffers that file calls may use as registered ones, if the driver has such calls.
    pub(crate) buffer_registry: Option<Rc<BufferRegistry>>,
    /// Decides where file calls are made. Kept outside `inner`, because an inline call does not
    /// borrow `inner`.
    pub(crate) inline_policy: InlinePolicy,
    /// Descriptors that were exposed when the runtime ended, kept until the last handle is gone.
    pub(super) kept: RefCell<Vec<OwnedFd>>,
    /// Accepted file writes whose tasks were dropped by the end of the runtime; they are completed
    /// within the shutdown timeout.
    pub(super) last_writes: LastWrites,
    /// The results of operations whose futures have outlived the runtime.
    pub(super) ended_ops: RefCell<CustomOps>,
    pub(crate) blocking: Blocking,
    /// Detects a forked child, in which the runtime must not be used.
    guard: ForkGuard,
    /// The flight recorder of turns and polls, and the timings that were requested.
    pub(crate) recorder: Recorder,
    /// When the runtime was built, by the kernel's clock.
    pub(crate) began: Duration,
    /// The host loop, if this runtime is a guest.
    pub(crate) host: Host,
    /// Chooses the branch that a `select!` polls first.
    #[cfg(feature = "macros")]
    pub(super) choices: Choices,
    /// The signals that a test sends to a simulated host.
    pub(crate) simulated_signals: SimulatedSignals,
    /// The host's clock, if it replaces the kernel's. [`LoopState`] has a copy.
    pub(super) host_clock: Cell<Option<HostClock>>,
    /// Whether the loop is running on this thread.
    running: Cell<bool>,
    /// Whether a panic has interrupted the loop's own code.
    broken: Cell<bool>,
    /// Whether the runtime has ended and the kernel no longer uses its memory.
    pub(super) over: Cell<bool>,
}

stays!(Sync Core);

impl Core {
    pub(crate) fn new(
        inner: Inner,
        remote: Arc<Remote>,
        inline_policy: InlinePolicy,
        blocking: Blocking,
        guard: ForkGuard,
        (measures, slow_poll): (bool, Option<Duration>),
    ) -> Self {
        let kernel = inner.state.driver.kernel().clone();
        let buffer_registry = inner.state.driver.buffer_registry().cloned();
        let run_queue = Rc::new(RunQueue::new());
        Self {
            recorder: Recorder::new(measures, slow_poll, kernel.clone(), run_queue.clone()),
            began: kernel.now(),
            #[cfg(feature = "macros")]
            choices: Choices::of(&*kernel),
            kernel,
            buffer_registry,
            inner: RefCell::new(Some(KernelHeld::new(inner))),
            run_queue,
            remote,
            inline_policy,
            blocking,
            kept: RefCell::default(),
            last_writes: LastWrites::default(),
            ended_ops: RefCell::default(),
            guard,
            host: Host::default(),
            simulated_signals: SimulatedSignals::default(),
            host_clock: Cell::new(None),
            running: Cell::new(false),
            broken: Cell::new(false),
            over: Cell::new(false),
        }
    }

    /// Returns the time of the runtime's clock since its origin.
    pub(crate) fn time(&self) -> Duration {
        self.host_clock.get().map_or_else(|| self.kernel.now(), HostClock::now)
    }

    /// Checks that the kernel is not a simulated one.
    ///
    /// # Errors
    /// `Unsupported` with this text under a simulated kernel.
    pub(crate) fn require_real(&self, text: &'static str) -> io::Result<()> {
        if self.kernel.real_descriptors() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    /// Borrows the runtime's state.
    ///
    /// # Errors
    /// After the runtime's end, in a forked child, or while the state is already borrowed. The last
    /// happens if cloning a waker, which runs foreign code under the borrow, uses the runtime.
    #[inline]
    pub(crate) fn borrow(&self) -> io::Result<RefMut<'_, Inner>> {
        if !self.guard.is_unwatched_owner() {
            self.on_watched_use()?;
        }
        let inner = self.inner.try_borrow_mut().map_err(|_| borrowed())?;
        RefMut::filter_map(inner, Option::as_deref_mut).map_err(|_| ended())
    }

    /// Calls `f` with the runtime's state, for what a dropped handle or future leaves behind. Does
    /// nothing after the runtime's end, when its slot is gone, and in a forked child, where the
    /// slot belongs to the parent.
    #[inline]
    pub(crate) fn if_alive(&self, f: impl FnOnce(&mut Inner)) {
        if let Ok(mut inner) = self.borrow() {
            f(&mut inner);
        }
    }

    /// Handles the first use since the guest's last turn: tells the host that a turn is needed.
    ///
    /// # Errors
    /// In a forked child.
    #[cold]
    fn on_watched_use(&self) -> io::Result<()> {
        if !self.guard.in_owner_process() {
            return Err(fork_guard::forked());
        }
        self.guard.watch(false);
        self.host.wake();
        Ok(())
    }

    /// Asks the host, if there is one, for another turn.
    ///
    /// # Errors
    /// In a forked child.
    #[inline]
    pub(crate) fn request_turn(&self) -> io::Result<()> {
        if self.guard.is_unwatched_owner() { Ok(()) } else { self.on_watched_use() }
    }

    /// Sets whether the next use notifies the host.
    pub(crate) fn watch_uses(&self, on: bool) {
        self.guard.watch(on);
    }

    /// Like [`borrow`](Self::borrow), but for a poll that may be pending. Fails unless the loop
    /// runs, because a pending poll would never be woken.
    ///
    /// # Errors
    /// The errors of [`borrow`](Self::borrow), and if this runtime's loop is not running.
    #[inline]
    pub(crate) fn borrow_running(&self) -> io::Result<RefMut<'_, Inner>> {
        let inner = self.borrow()?;
        if self.running.get() { Ok(inner) } else { Err(not_running()) }
    }

    pub(crate) fn set_running(&self, running: bool) {
        self.running.set(running);
    }

    /// Returns true while the loop runs, except in a forked child.
    pub(crate) fn is_running(&self) -> bool {
        self.running.get() && self.in_owner_process()
    }

    #[inline]
    pub(crate) fn turns(&self) -> u64 {
        self.inline_policy.turns()
    }

    /// Returns the counters, or `None` in a forked child and after the end.
    pub(crate) fn counters(&self) -> Option<Counters> {
        let mut inner = self.borrow().ok()?;
        let inner = &mut *inner;
        inner.datagrams.count_all_drops(&mut inner.state);
        let mut counters = self.inline_policy.add_to(inner.state.counters());
        (counters.remote_wakes, counters.wakeups) = self.remote.counts();
        Some(counters)
    }

    /// Returns false in a forked child.
    #[inline]
    pub(crate) fn in_owner_process(&self) -> bool {
        self.guard.in_owner_process()
    }

    /// Takes the state out. From then on, handles return an error saying that the runtime has
    /// ended.
    pub(crate) fn take_inner(&self) -> Option<KernelHeld<Inner>> {
        self.set_running(false);
        self.inner.try_borrow_mut().ok()?.take()
    }

    /// Fails after a panic has interrupted the loop's own code, because it is then uncertain which
    /// operations are in flight.
    pub(crate) fn check_not_broken(&self) -> io::Result<()> {
        if self.broken.get() { Err(broken()) } else { Ok(()) }
    }

    /// Exposes a descriptor of a handle; it stays open as long as the handle. Returns `None` after
    /// the end, and under a simulated kernel, whose descriptors mean nothing to other code.
    pub(crate) fn expose(&self, fd: io::Result<Fd>) -> Option<Fd> {
        let fd = fd.ok().filter(|_| self.kernel.real_descriptors())?;
        self.borrow().ok()?.state.expose(fd);
        Some(fd)
    }

    /// Closes a file off the loop, because closing it may hang.
    pub(crate) fn close_isolated(&self, group: u64, fd: Fd) {
        match self.borrow() {
            Ok(mut inner) => inner.state.driver.close_isolated(group, fd),
            Err(_) => {
                // The runtime has ended. If no thread can be started, the file stays open, because
                // a close here might not return.
                let close = move || Linux.close(fd);
                _ = thread::Builder::new().name("annulus-close".into()).spawn(close);
            }
        }
    }

    /// Returns true after the end if the kernel uses none of the runtime's memory. Returns false in
    /// a forked child.
    pub(crate) fn is_over(&self) -> bool {
        self.over.get() && self.in_owner_process()
    }

    /// Returns the result of an operation that a program defines, once the runtime
    /// [is over](Self::is_over).
    pub(crate) fn take_ended_op(&self, slot: u32) -> Result<u32, Errno> {
        self.ended_ops.borrow_mut().take_ended(slot)
    }

    /// Runs a part of the loop that calls no foreign code. A panic in it is a bug and makes the
    /// runtime unusable.
    #[inline]
    pub(crate) fn poison_on_panic<R>(&self, work: impl FnOnce() -> R) -> R {
        struct Unwinding<'a>(&'a Cell<bool>);

        impl Drop for Unwinding<'_> {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }

        let unwinding = Unwinding(&self.broken);
        let done = work();
        mem::forget(unwinding);
        done
    }

    /// Publishes the number of open streams for other threads.
    pub(crate) fn publish_streams(&self) -> io::Result<()> {
        self.remote.publish_streams(self.borrow()?.streams.len());
        Ok(())
    }
}

fn not_running() -> io::Error {
    io::Error::other(
        "polled outside its runtime; use it inside block_on of the runtime that created it",
    )
}

fn borrowed() -> io::Error {
    io::Error::other("used while a waker was being cloned, when the runtime is already borrowed")
}

fn broken() -> io::Error {
    io::Error::other(
        "a panic has interrupted the runtime's own work; drop the runtime and build another one",
    )
}

fn ended() -> io::Error {
    io::Error::other("the runtime has ended; its streams and timers end with it")
}
