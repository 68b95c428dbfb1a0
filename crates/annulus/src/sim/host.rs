//! A host of a simulated network: a runtime that takes turns with the runtimes of other hosts.

use crate::runtime::current;
use crate::runtime::spawn::spawn_at;
use crate::signal::Signal;
use crate::task::JoinHandle;
use crate::tasks::JoinError;
use crate::tasks::budget;
use crate::tasks::remote::LostPanic;
use crate::{Builder, Runtime};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(super) type Failure = Box<dyn Error + Send + Sync>;
pub(super) type Main = Pin<Box<dyn Future<Output = Result<(), Failure>>>>;

/// How a program ended: with a result or by a panic.
type Outcome = Result<Result<(), Failure>, JoinError>;

pub(super) fn boxed<E: Into<Failure> + 'static>(
    program: impl Future<Output = Result<(), E>> + 'static,
) -> Main {
    Box::pin(async { program.await.map_err(Into::into) })
}

pub(super) enum Program {
    Service(Box<dyn FnMut() -> Main>),
    Client(Main),
}

impl Program {
    /// Starts the program. Returns its future, and the program if it can be started again.
    pub(super) fn start(self) -> (Main, Option<Self>) {
        match self {
            Self::Service(mut start) => (start(), Some(Self::Service(start))),
            Self::Client(main) => (main, None),
        }
    }
}

/// The error that a host's program has returned.
#[derive(Debug)]
struct HostFailed {
    host: String,
    error: Failure,
}

impl fmt::Display for HostFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.host, self.error)
    }
}

impl Error for HostFailed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.error)
    }
}

/// Creates the error that a run returns after a host's program has failed.
pub(super) fn failed(host: &str, error: Failure) -> io::Error {
    let kind = error.downcast_ref().map_or(ErrorKind::Other, io::Error::kind);
    io::Error::new(kind, HostFailed { host: host.to_owned(), error })
}

pub(super) struct Host {
    pub(super) name: String,
    pub(super) ip: IpAddr,
    /// The place that added the host. Reports show it as the place that spawned the host's program.
    pub(super) added_at: &'static Location<'static>,
    /// Whether the host runs a service. Otherwise it is a client.
    pub(super) is_service: bool,
    /// `None` while the program is being started, once a client has been started, and after the
    /// run.
    pub(super) program: Option<Program>,
    /// `None` before the start, after a crash or a fatal signal, and while the host takes a turn.
    pub(super) running: Option<Running>,
    /// Whether the host has crashed or a signal has ended it.
    pub(super) is_down: bool,
    /// The number of the disturbance that crashed the host and will start it again.
    pub(super) down_by: Option<u64>,
    /// Whether the program has ended.
    pub(super) has_ended: bool,
}

impl Host {
    pub(super) fn new(
        name: &str,
        ip: IpAddr,
        program: Program,
        added_at: &'static Location<'static>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            ip,
            added_at,
            is_service: matches!(program, Program::Service(_)),
            program: Some(program),
            running: None,
            is_down: false,
            down_by: None,
            has_ended: false,
        }
    }
}

/// The running program of a host, and its runtime.
pub(super) struct Running {
    main: Option<JoinHandle<Result<(), Failure>>>,
    runtime: Runtime,
    /// When the next timer is due.
    pub(super) deadline: Option<Duration>,
}

impl Running {
    pub(super) fn start(
        builder: Builder,
        main: Main,
        added_at: &'static Location<'static>,
    ) -> io::Result<Self> {
        let runtime = builder.build()?;
        runtime.core().remote.keep_lost_panics();
        let current_guard = current::set_current(runtime.core())?;
        let main = spawn_at(main, added_at);
        drop(current_guard);
        Ok(Self { main: Some(main), runtime, deadline: None })
    }

    /// Runs one turn. Returns true if there is nothing left to do.
    pub(super) fn turn(&mut self) -> io::Result<bool> {
        let core = self.runtime.core();
        let _entered = current::set_current(core)?;
        let is_idle = core.turn_for_host()?;
        self.deadline = core.until_timer()?.map(|left| core.kernel.now() + left);
        Ok(is_idle)
    }

    /// Delivers a signal. Returns false if the signal ends the program, because it is not caught,
    /// or because it repeats a request to end.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        let core = self.runtime.core();
        core.simulated_signals.deliver(signal.number(), core.kernel.now())
    }

    /// Returns true if a task of another host has woken one of this host since its turn.
    pub(super) fn is_woken(&self) -> bool {
        !self.runtime.core().remote.park()
    }

    /// Takes the outcome of the program if it has ended.
    pub(super) fn take_outcome(&mut self) -> Option<Outcome> {
        let main = self.main.as_mut().filter(|main| main.is_finished())?;
        let cx = &mut Context::from_waker(Waker::noop());
        let outcome = budget::poll_free(|| Pin::new(main).poll(cx));
        self.main = None;
        match outcome {
            Poll::Ready(Ok(outcome)) => Some(Ok(outcome)),
            Poll::Ready(Err(error)) => Some(Err(error)),
            Poll::Pending => None,
        }
    }

    /// Returns the first panic of a task that the program can no longer take, if any.
    pub(super) fn lost_panic(&self) -> Option<&LostPanic> {
        self.runtime.core().remote.lost_panic()
    }

    /// Returns a line per task of the host that says which events it waits for.
    pub(super) fn waiting(&self) -> Vec<String> {
        self.runtime.waiting()
    }
}
