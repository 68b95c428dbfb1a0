//! Waiting for signals.
//!
//! A signal that is caught here no longer has its default effect, such as ending the process, even
//! after the value that caught it has been dropped. If several values catch a signal, each of them
//! receives it.
//!
//! # Ignored signals
//!
//! A signal that the process ignores stays ignored and never arrives here: `nohup` starts a program
//! with SIGHUP ignored, and a shell without job control starts `program &` with SIGINT and SIGQUIT
//! ignored, so that the programs keep running. [`signals_even_if_ignored`] catches such a signal.
//! Two signals are caught even if they are ignored: SIGPIPE, which the standard library ignores in
//! every program, and SIGCHLD.
//!
//! # A second signal
//!
//! A user who presses Ctrl-C a second time expects the program to end now. After a signal has ended
//! [`until_terminated`], a further SIGINT or SIGTERM ends the process, as it does by default; so
//! does a further SIGINT after [`ctrl_c`] has been ready. There are two exceptions: signals within
//! 100 ms of the first one, because some programs send theirs twice, and signals that a [`Signals`]
//! or another `ctrl_c` is waiting for. A program that handles further signals itself keeps a
//! `Signals`.
//!
//! # Forked children
//!
//! A child that is forked without a new program inherits the handlers. There, a signal that the
//! parent catches has no effect, and does not arrive at the parent, until the child catches it
//! itself.

#![allow(unsafe_code)]

use crate::fork_guard::ForkGuard;
use crate::io::AsyncFd;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::runtime::signals::EndRequest;
use annulus_kernel::{Kernel, Linux, descriptor, process, with_text};
use signal_hook::SigId;
use signal_hook::consts::{self, FORBIDDEN};
use signal_hook::low_level::{self, emulate_default_handler, signal_name, unregister};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

/// A signal, by its number.
///
/// ```
/// use annulus::process::Command;
/// use annulus::signal::Signal;
/// use std::os::unix::process::ExitStatusExt;
///
/// # annulus::run(async {
/// let mut child = Command::new("sleep").arg("1000").spawn()?;
/// child.signal(Signal::SIGTERM)?;
/// assert_eq!(child.wait().await?.signal(), Some(Signal::SIGTERM.number()));
///
/// let reload = Signal::from_number(34)?; // The first real-time signal has no name.
/// println!("{reload}");
/// assert!(Signal::from_number(9).is_err()); // SIGKILL cannot be caught.
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signal(i32);

/// The highest signal number on Linux.
const MAX_SIGNAL: i32 = 64;

impl Signal {
    /// The terminal was closed; for a service: reload the configuration.
    pub const SIGHUP: Self = Self(consts::SIGHUP);
    /// Ctrl-C.
    pub const SIGINT: Self = Self(consts::SIGINT);
    /// Ctrl-\\.
    pub const SIGQUIT: Self = Self(consts::SIGQUIT);
    /// A breakpoint.
    pub const SIGTRAP: Self = Self(consts::SIGTRAP);
    /// An abort that another process requested.
    pub const SIGABRT: Self = Self(consts::SIGABRT);
    /// An access to mapped memory beyond the end of its file; caught only if another process sends
    /// it.
    pub const SIGBUS: Self = Self(consts::SIGBUS);
    /// The meaning is the program's choice.
    pub const SIGUSR1: Self = Self(consts::SIGUSR1);
    /// The meaning is the program's choice, as for `SIGUSR1`.
    pub const SIGUSR2: Self = Self(consts::SIGUSR2);
    /// A pipe without a reader was written to.
    pub const SIGPIPE: Self = Self(consts::SIGPIPE);
    /// A real-time timer has expired.
    pub const SIGALRM: Self = Self(consts::SIGALRM);
    /// The signal that a service manager sends first to end a service.
    pub const SIGTERM: Self = Self(consts::SIGTERM);
    /// A child process has ended or was stopped.
    pub const SIGCHLD: Self = Self(consts::SIGCHLD);
    /// The process continues after a stop.
    pub const SIGCONT: Self = Self(consts::SIGCONT);
    /// Ctrl-Z.
    pub const SIGTSTP: Self = Self(consts::SIGTSTP);
    /// Reading from the terminal in the background.
    pub const SIGTTIN: Self = Self(consts::SIGTTIN);
    /// Writing to the terminal in the background.
    pub const SIGTTOU: Self = Self(consts::SIGTTOU);
    /// Urgent data on a socket.
    pub const SIGURG: Self = Self(consts::SIGURG);
    /// The CPU time limit was reached.
    pub const SIGXCPU: Self = Self(consts::SIGXCPU);
    /// The file size limit was reached.
    pub const SIGXFSZ: Self = Self(consts::SIGXFSZ);
    /// A timer of user-mode CPU time has expired.
    pub const SIGVTALRM: Self = Self(consts::SIGVTALRM);
    /// A timer of CPU time has expired.
    pub const SIGPROF: Self = Self(consts::SIGPROF);
    /// The terminal was resized.
    pub const SIGWINCH: Self = Self(consts::SIGWINCH);
    /// A descriptor is ready.
    pub const SIGIO: Self = Self(consts::SIGIO);
    /// A system call that a seccomp filter denies.
    pub const SIGSYS: Self = Self(consts::SIGSYS);

    /// Returns the signal with this number. Real-time signals have only numbers.
    ///
    /// # Errors
    /// `InvalidInput` if no signal has this number, if the signal cannot be caught (SIGKILL,
    /// SIGSTOP), or if continuing after it is undefined behaviour (SIGILL, SIGFPE, SIGSEGV).
    pub fn from_number(number: i32) -> io::Result<Self> {
        let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if !(1..=MAX_SIGNAL).contains(&number) {
            return refused(format!("signal number {number} is out of range (1–{MAX_SIGNAL})"));
        }
        if FORBIDDEN.contains(&number) {
            return refused(format!("signal {number} cannot be caught"));
        }
        Ok(Self(number))
    }

    /// Returns true if the process ignores the signal and must keep ignoring it. SIGPIPE is an
    /// exception, because the standard library ignores it in every program. So is SIGCHLD: it does
    /// nothing by default, so ignoring it protects nothing.
    fn stays_ignored(self) -> bool {
        !matches!(self, Self::SIGPIPE | Self::SIGCHLD) && process::ignores(self.0)
    }

    /// Returns the signal's number.
    pub fn number(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match signal_name(self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Waits for SIGINT (Ctrl-C). The signal is caught from this call on, not only once the future is
/// polled. After the future has been ready, [another SIGINT ends the process](self#a-second-signal)
/// unless the program is waiting for it. A program for which each SIGINT is a command, such as an
/// interpreter, uses [`signals`] instead. An [ignored](self#ignored-signals) SIGINT never arrives.
///
/// # Errors
/// The errors of [`signals`], returned when the future is polled.
///
/// ```no_run
/// # async fn serve() -> std::io::Result<()> { Ok(()) }
/// # annulus::run(async {
/// annulus::spawn(serve());
/// annulus::signal::ctrl_c().await
/// # }).unwrap();
/// ```
pub fn ctrl_c() -> impl Future<Output = io::Result<()>> {
    let signals = ends(Signal::SIGINT).and_then(|()| signals(&[Signal::SIGINT]));
    async {
        let mut signals = signals?;
        signals.recv().await?;
        let core = current::get()?;
        ending(&core).request(Signal::SIGINT.number(), core.kernel.now());
        Ok(())
    }
}

/// Runs a future until a signal requests the end of the process: SIGINT (Ctrl-C) or SIGTERM (from
/// service managers and container runtimes). Both are caught from the first poll on, unless they
/// are [ignored](self#ignored-signals). If a signal arrives first, the future is dropped and this
/// returns `Ok`. From then on every call, on any shard, returns at once, so that calls that begin
/// later miss nothing. [A second signal ends the process](self#a-second-signal), however long the
/// shutdown takes. Under a simulated kernel, signals come from `Network::signal` (feature `sim`).
///
/// If this is the whole future passed to [`run`](crate::run), the runtime then ends as described in
/// the guide ([shutting down](crate::guide::shutting_down)): streams send their queued bytes,
/// listeners are closed and the paths of Unix sockets are removed.
///
/// ```no_run
/// # async fn serve() -> std::io::Result<()> { Ok(()) }
/// annulus::run(annulus::signal::until_terminated(async {
///     let listener = annulus::net::TcpListener::bind("127.0.0.1:7000")?;
///     loop {
///         let (mut stream, _peer) = listener.accept().await?;
///         annulus::spawn(async move { stream.send("hello").await });
///     }
/// }))
/// # .unwrap();
/// ```
///
/// # Errors
/// The errors of the future and of [`signals`].
///
/// # Cancel safety
/// Cancel-safe if `future` is.
pub async fn until_terminated(future: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let core = current::get()?;
    END_SIGNALS.into_iter().try_for_each(ends)?;
    let ending = ending(&core);
    ending.enable();
    let mut signals = Signals::of(&END_SIGNALS, CaughtSignal::unnoted)?;
    let mut future = pin!(future);
    poll_fn(|cx| {
        // Also set by a signal that arrived before `signals` caught any.
        if ending.is_requested() {
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(ended) = future.as_mut().poll(cx) {
            return Poll::Ready(ended);
        }
        signals.poll_recv(cx).map_ok(drop)
    })
    .await
}

const END_SIGNALS: [Signal; 2] = [Signal::SIGINT, Signal::SIGTERM];

/// Whether this process has been asked to end.
static END_REQUEST: EndRequest = EndRequest::new();

/// Returns the end request of this process, or of the simulated host.
fn ending(core: &Core) -> &EndRequest {
    if core.kernel.real_descriptors() { &END_REQUEST } else { &core.simulated_signals.ending }
}

/// Makes a signal end the process if it arrives after the process has been asked to end. Does
/// nothing if the signal is ignored.
fn ends(signal: Signal) -> io::Result<()> {
    static REGISTERED: Mutex<Vec<Signal>> = Mutex::new(Vec::new());
    if !current::get()?.kernel.real_descriptors() {
        return Ok(());
    }
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if registered.contains(&signal) || signal.stays_ignored() {
        return Ok(());
    }
    let number = signal.number();
    let act = move || {
        if END_REQUEST.on_signal(number, Linux.now()) {
            // The default of these signals is to end the process, so this does not return.
            _ = emulate_default_handler(number);
        }
    };
    // SAFETY: the handler is async-signal-safe: it reads the clock, changes atomics and runs the
    // default action, which is designed for handlers.
    unsafe { low_level::register(number, act)? };
    registered.push(signal);
    Ok(())
}

/// Catches these signals from now on, except [ignored ones](self#ignored-signals). Under a
/// simulated kernel, signals come from `Network::signal` (feature `sim`).
///
/// # Errors
/// Outside a runtime, or if the handler cannot be installed.
pub fn signals(which: &[Signal]) -> io::Result<Signals> {
    Signals::of(which, CaughtSignal::new)
}

/// Like [`signals`], but also catches signals that the process ignores, for instance under `nohup`.
///
/// ```
/// use annulus::signal::{Signal, signals_even_if_ignored};
///
/// # annulus::run(async {
/// // Here SIGHUP only means: read the configuration again.
/// let mut reload = signals_even_if_ignored(&[Signal::SIGHUP])?;
/// # rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP)?;
/// assert_eq!(reload.recv().await?, Signal::SIGHUP);
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
///
/// # Errors
/// The errors of [`signals`].
pub fn signals_even_if_ignored(which: &[Signal]) -> io::Result<Signals> {
    Signals::of(which, |core, signal| CaughtSignal::with(core, signal, true, true))
}

/// Signals that the program catches, for [`recv`](Self::recv).
///
/// ```
/// use annulus::signal::{Signal, signals};
///
/// # annulus::run(async {
/// let mut caught = signals(&[Signal::SIGHUP, Signal::SIGTERM])?;
/// # rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP)?;
/// # rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)?;
/// loop {
///     match caught.recv().await? {
///         Signal::SIGTERM => break,
///         _ => println!("reading the configuration again"),
///     }
/// }
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct Signals {
    catches: Vec<CaughtSignal>,
    /// The index of the signal to poll first: the one after the last signal returned, so that a
    /// frequent signal does not starve the others.
    first: usize,
}

impl Signals {
    fn of(
        which: &[Signal],
        catch: impl Fn(&Rc<Core>, Signal) -> io::Result<CaughtSignal>,
    ) -> io::Result<Self> {
        let core = current::get()?;
        let catches =
            which.iter().map(|&signal| catch(&core, signal)).collect::<io::Result<_>>()?;
        Ok(Self { catches, first: 0 })
    }

    /// Returns the next signal. If several kinds have arrived, they are returned one after another,
    /// and none of them starves the rest. Several signals of one kind that arrive close together
    /// may be returned as one. Cancel-safe.
    ///
    /// # Errors
    /// After the runtime's end, or if the signal cannot be read.
    pub async fn recv(&mut self) -> io::Result<Signal> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Polls like [`recv`](Self::recv).
    ///
    /// # Errors
    /// The errors of [`recv`](Self::recv).
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Signal>> {
        let count = self.catches.len();
        for place in (self.first..self.first + count).map(|place| place % count) {
            if let Poll::Ready(caught) = self.catches[place].poll(cx) {
                self.first = place + 1;
                return Poll::Ready(caught);
            }
        }
        Poll::Pending
    }
}

struct CaughtSignal {
    signal: Signal,
    source: SignalSource,
    /// The runtime, if this value prevents a further signal from ending the process.
    core: Option<Rc<Core>>,
}

enum SignalSource {
    /// A handler that writes to one socket of a pair, and the other socket, whose readiness is
    /// awaited.
    Process(SigId, AsyncFd<OwnedFd>),
    /// An ignored signal: nothing writes to the pair. The other end is held to keep the pair open.
    Ignored(AsyncFd<OwnedFd>, #[expect(dead_code, reason = "kept open")] OwnedFd),
    /// A simulated host, and the number of arrivals seen.
    Simulated(Rc<Core>, u64),
}

impl CaughtSignal {
    fn new(core: &Rc<Core>, signal: Signal) -> io::Result<Self> {
        Self::with(core, signal, false, true)
    }

    /// Catches a signal without preventing a further one from ending the process.
    fn unnoted(core: &Rc<Core>, signal: Signal) -> io::Result<Self> {
        Self::with(core, signal, false, false)
    }

    fn with(
        core: &Rc<Core>,
        signal: Signal,
        even_ignored: bool,
        is_noted: bool,
    ) -> io::Result<Self> {
        let source = SignalSource::new(core, signal, even_ignored)?;
        let core = is_noted.then(|| core.clone());
        if let Some(core) = &core {
            ending(core).catch(signal.number());
        }
        Ok(Self { signal, source, core })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Signal>> {
        match &mut self.source {
            SignalSource::Process(_, pair) | SignalSource::Ignored(pair, _) => loop {
                ready!(pair.poll_read_edge(cx))?;
                if descriptor::drain(pair.get_ref())? {
                    return Poll::Ready(Ok(self.signal));
                }
            },
            SignalSource::Simulated(core, seen) => {
                drop(core.borrow_running()?);
                core.simulated_signals
                    .poll(self.signal.number(), seen, cx)
                    .map(|()| Ok(self.signal))
            }
        }
    }
}

impl SignalSource {
    fn new(core: &Rc<Core>, signal: Signal, even_ignored: bool) -> io::Result<Self> {
        if !core.kernel.real_descriptors() {
            let seen = core.simulated_signals.catch(signal.number());
            return Ok(Self::Simulated(core.clone(), seen));
        }
        let (read, write) = descriptor::pair()?;
        // The pair is still empty. If the process may not read from it, this fails now, instead of
        // waiting in vain for a signal.
        descriptor::drain(&read)?;
        let pair = AsyncFd::of_own(core.clone(), read, "for a signal")?;
        if !even_ignored && signal.stays_ignored() {
            return Ok(Self::Ignored(pair, write));
        }
        let id = register(signal, write)?;
        Ok(Self::Process(id, pair))
    }
}

/// Registers a handler that makes the other socket of a pair readable. A forked child shares the
/// pair, so there the handler does nothing: its parent would take the signal for its own.
fn register(signal: Signal, socket: OwnedFd) -> io::Result<SigId> {
    let guard = ForkGuard::new()?;
    let act = move || {
        if guard.in_owner_process() {
            descriptor::signal(&socket);
        }
    };
    // SAFETY: the handler is async-signal-safe: it reads a byte and makes a system call.
    let registered = unsafe { low_level::register(signal.number(), act) };
    registered.map_err(|error| {
        let text = format!("catching {signal}: {error}");
        with_text(error, text)
    })
}

impl Drop for CaughtSignal {
    fn drop(&mut self) {
        if let Some(core) = &self.core {
            ending(core).release(self.signal.number());
        }
        if let SignalSource::Process(id, _) = self.source {
            unregister(id);
        }
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.catches.iter().map(|catch| catch.signal)).finish()
    }
}
