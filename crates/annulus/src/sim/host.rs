//! A host of a simulated network: a runtime that takes turns with the others.

use crate::runtime::current;
use crate::{Builder, JoinHandle, Runtime};
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(super) type Failure = Box<dyn Error + Send + Sync>;
pub(super) type Main = Pin<Box<dyn Future<Output = Result<(), Failure>>>>;

pub(super) fn boxed<E: Into<Failure> + 'static>(
    program: impl Future<Output = Result<(), E>> + 'static,
) -> Main {
    Box::pin(async { program.await.map_err(Into::into) })
}

/// What a host runs.
pub(super) enum Program {
    Service(Box<dyn FnMut() -> Main>),
    /// `None` once it runs.
    Client(Option<Main>),
}

/// A host.
pub(super) struct Host {
    pub(super) name: String,
    pub(super) ip: IpAddr,
    program: Program,
    /// `None` before the start, after a crash, and while it takes a turn.
    pub(super) running: Option<Running>,
    /// Its program is not to be started: it has crashed, or was a client.
    pub(super) is_down: bool,
    /// Its program has ended.
    pub(super) has_ended: bool,
}

impl Host {
    pub(super) fn new(name: &str, ip: IpAddr, program: Program) -> Self {
        Self { name: name.to_owned(), ip, program, running: None, is_down: false, has_ended: false }
    }

    pub(super) fn is_service(&self) -> bool {
        matches!(self.program, Program::Service(_))
    }

    /// The next run of its program.
    pub(super) fn main(&mut self) -> Option<Main> {
        self.has_ended = false;
        match &mut self.program {
            Program::Service(start) => Some(start()),
            Program::Client(main) => main.take(),
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
    pub(super) fn start(builder: Builder, main: Main) -> io::Result<Self> {
        let runtime = builder.build()?;
        let entered = current::enter(runtime.core())?;
        runtime.core().recorder.iter().for_each(|recorder| recorder.turn_begins());
        let main = crate::spawn(main);
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

    /// Whether a task was woken since its turn, by a task of another host.
    pub(super) fn is_woken(&self) -> bool {
        !self.runtime.core().remote.park()
    }

    /// What the program has returned, once.
    ///
    /// # Panics
    /// With the program's own panic.
    pub(super) fn take_outcome(&mut self) -> Option<Result<(), Failure>> {
        let main = self.main.as_mut().filter(|main| main.is_finished())?;
        let outcome = Pin::new(main).poll(&mut Context::from_waker(Waker::noop()));
        self.main = None;
        match outcome {
            Poll::Ready(Ok(outcome)) => Some(outcome),
            Poll::Ready(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
            Poll::Ready(Err(error)) => Some(Err(error.into())),
            Poll::Pending => None,
        }
    }

    /// What each of its tasks waits for.
    pub(super) fn waiting(&self) -> Vec<String> {
        self.runtime.waiting()
    }
}
