//! A host of a simulated network: a runtime that takes turns with the others.

use crate::base::budget;
use crate::runtime::current;
use crate::runtime::spawn::spawn_at;
use crate::signal::Signal;
use crate::tasks::JoinError;
use crate::tasks::remote::LostPanic;
use crate::{Builder, JoinHandle, Runtime};
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

/// How a program has ended: with its result, or by a panic.
type Outcome = Result<Result<(), Failure>, JoinError>;

pub(super) fn boxed<E: Into<Failure> + 'static>(
    program: impl Future<Output = Result<(), E>> + 'static,
) -> Main {
    Box::pin(async { program.await.map_err(Into::into) })
}

/// The program that a host runs.
pub(super) enum Program {
    Service(Box<dyn FnMut() -> Main>),
    Client(Main),
}

impl Program {
    /// A run of it, and what is left for the next.
    pub(super) fn start(self) -> (Main, Option<Self>) {
        match self {
            Self::Service(mut start) => (start(), Some(Self::Service(start))),
            Self::Client(main) => (main, None),
        }
    }
}

/// The error of a host's program.
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

/// The error of a run in which a host's program has failed.
pub(super) fn failed(host: &str, error: Failure) -> io::Error {
    let kind = error.downcast_ref().map_or(ErrorKind::Other, io::Error::kind);
    io::Error::new(kind, HostFailed { host: host.to_owned(), error })
}

/// A host.
pub(super) struct Host {
    pub(super) name: String,
    pub(super) ip: IpAddr,
    /// Where it was added: there its program is spawned, for reports.
    pub(super) added_at: &'static Location<'static>,
    /// It is a host that runs a service, and no client.
    pub(super) is_service: bool,
    /// `None` while it is started, after that of a client, and after the run.
    pub(super) program: Option<Program>,
    /// `None` before the start, after a crash, and while it takes a turn.
    pub(super) running: Option<Running>,
    /// The host has crashed.
    pub(super) is_down: bool,
    /// The number of the disturbance that has crashed it, and is to start it again.
    pub(super) down_by: Option<u64>,
    /// The program has ended.
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

/// A host that runs.
pub(super) struct Running {
    main: Option<JoinHandle<Result<(), Failure>>>,
    runtime: Runtime,
    /// When its next timer is due.
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
        let entered = current::enter(runtime.core())?;
        let main = spawn_at(main, added_at);
        drop(entered);
        Ok(Self { main: Some(main), runtime, deadline: None })
    }

    /// Takes a turn. True if there is nothing left to do.
    pub(super) fn turn(&mut self) -> io::Result<bool> {
        let core = self.runtime.core();
        let _entered = current::enter(core)?;
        let is_idle = core.turn_for_host()?;
        self.deadline = core.until_timer()?.map(|left| core.kernel.now() + left);
        Ok(is_idle)
    }

    /// Brings a signal. False if its program does not catch it.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        let core = self.runtime.core();
        core.arrivals.deliver(signal.number(), core.kernel.now())
    }

    /// Whether a task was woken since its turn, by a task of another host.
    pub(super) fn is_woken(&self) -> bool {
        !self.runtime.core().remote.park()
    }

    /// How the program has ended, once.
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

    /// The panic of a task that its program cannot take any more.
    pub(super) fn lost_panic(&self) -> Option<&LostPanic> {
        self.runtime.core().remote.lost_panic()
    }

    /// A line for each task of the host: the events it waits for.
    pub(super) fn waiting(&self) -> Vec<String> {
        self.runtime.waiting()
    }
}
