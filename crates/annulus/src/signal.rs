//! Signals, awaited.
//!
//! A signal that is caught here no longer does what it does by default, such as ending the process,
//! even after whatever caught it is dropped. All that catch the same one get it.
//!
//! # Ignored signals
//!
//! A signal that the process ignores stays ignored, and never arrives here: `nohup` starts a
//! program with SIGHUP ignored, and a shell without job control starts `program &` with SIGINT and
//! SIGQUIT ignored, so that they go on. [`signals_even_if_ignored`] catches such a signal. Two are
//! always caught: SIGPIPE, which the standard library ignores in every program, and SIGCHLD.
//!
//! # A second signal
//!
//! Whoever presses Ctrl-C a second time wants the program to end now. Once [`until_terminated`] has
//! been asked to end, a further SIGINT or SIGTERM ends the process as it does by default, and so
//! does a further SIGINT once [`ctrl_c`] has been ready: at the earliest 100 ms after the first,
//! since some programs send theirs twice, and unless a [`Signals`] or another `ctrl_c` is waiting
//! for it. A program with another plan keeps a `Signals`; then each signal is what it makes of it.

#![allow(unsafe_code)]

use crate::io::AsyncFd;
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::runtime::ending::Ending;
use annulus_kernel::{Kernel, Linux, descriptor, process};
use signal_hook::SigId;
use signal_hook::consts::{self, FORBIDDEN};
use signal_hook::low_level::pipe::register;
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

/// The highest number that a signal has on Linux.
const MAX: i32 = 64;

impl Signal {
    /// The terminal is gone; to services: read the configuration again.
    pub const SIGHUP: Self = Self(consts::SIGHUP);
    /// Ctrl-C.
    pub const SIGINT: Self = Self(consts::SIGINT);
    /// Ctrl-\\.
    pub const SIGQUIT: Self = Self(consts::SIGQUIT);
    /// A breakpoint.
    pub const SIGTRAP: Self = Self(consts::SIGTRAP);
    /// An abort that another process asked for.
    pub const SIGABRT: Self = Self(consts::SIGABRT);
    /// Memory of a file that is no longer there; only as sent by another process.
    pub const SIGBUS: Self = Self(consts::SIGBUS);
    /// The meaning is the program's choice.
    pub const SIGUSR1: Self = Self(consts::SIGUSR1);
    /// The meaning is the program's choice, as that of `SIGUSR1`.
    pub const SIGUSR2: Self = Self(consts::SIGUSR2);
    /// A pipe without a reader was written to.
    pub const SIGPIPE: Self = Self(consts::SIGPIPE);
    /// A timer of real time has expired.
    pub const SIGALRM: Self = Self(consts::SIGALRM);
    /// The signal that a service manager sends first.
    pub const SIGTERM: Self = Self(consts::SIGTERM);
    /// A child process has ended, or was stopped.
    pub const SIGCHLD: Self = Self(consts::SIGCHLD);
    /// The process goes on after a stop.
    pub const SIGCONT: Self = Self(consts::SIGCONT);
    /// Ctrl-Z.
    pub const SIGTSTP: Self = Self(consts::SIGTSTP);
    /// Reading from the terminal in the background.
    pub const SIGTTIN: Self = Self(consts::SIGTTIN);
    /// Writing to the terminal in the background.
    pub const SIGTTOU: Self = Self(consts::SIGTTOU);
    /// Urgent data on a socket.
    pub const SIGURG: Self = Self(consts::SIGURG);
    /// The limit of CPU time is reached.
    pub const SIGXCPU: Self = Self(consts::SIGXCPU);
    /// The limit of a file's size is reached.
    pub const SIGXFSZ: Self = Self(consts::SIGXFSZ);
    /// A timer of CPU time in user space has expired.
    pub const SIGVTALRM: Self = Self(consts::SIGVTALRM);
    /// A timer of CPU time has expired.
    pub const SIGPROF: Self = Self(consts::SIGPROF);
    /// The terminal has another size.
    pub const SIGWINCH: Self = Self(consts::SIGWINCH);
    /// A descriptor is ready.
    pub const SIGIO: Self = Self(consts::SIGIO);
    /// A system call that a filter denies.
    pub const SIGSYS: Self = Self(consts::SIGSYS);

    /// The signal of this number: real-time signals have numbers only.
    ///
    /// # Errors
    /// `InvalidInput` for a number that no signal has, or whose signal cannot be caught (SIGKILL,
    /// SIGSTOP) or must not be, since going on after it is undefined (SIGILL, SIGFPE, SIGSEGV).
    pub fn from_number(number: i32) -> io::Result<Self> {
        let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if !(1..=MAX).contains(&number) {
            return refused(format!("no signal has the number {number}; they go from 1 to {MAX}"));
        }
        if FORBIDDEN.contains(&number) {
            return refused(format!("signal {number} cannot be caught"));
        }
        Ok(Self(number))
    }

    /// Returns true if the process ignores the signal, and not because that is so in every program.
    /// The standard library ignores SIGPIPE. SIGCHLD does nothing by default, so that nothing is
    /// protected by ignoring it.
    fn stays_ignored(self) -> bool {
        !matches!(self, Self::SIGPIPE | Self::SIGCHLD) && process::ignores(self.0)
    }

    /// The number of the signal.
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

/// Waits for SIGINT (ctrl-c), which is caught from this call on, not only once this is polled. Once
/// this has been ready, [a further one ends the process](self#a-second-signal) while nothing waits
/// for it. A program that takes each SIGINT as a command, such as an interpreter, takes them from
/// [`signals`]. An [ignored](self#ignored-signals) SIGINT never comes.
///
/// # Errors
/// As [`signals`], when it is polled.
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
        ending(&core).ask(Signal::SIGINT.number(), core.kernel.now());
        Ok(())
    }
}

/// Runs a future until the process is asked to end: by SIGINT (ctrl-c) or SIGTERM (service managers
/// and containers), which are caught from the first poll on unless they are
/// [ignored](self#ignored-signals). If one comes first, the future is dropped, and this is ready
/// without an error. Once it was asked, all calls are ready, on whatever shard, so that those that
/// begin later miss nothing, and [a second signal ends the process](self#a-second-signal), however
/// long the shutdown takes. Under a simulated kernel those come that `Network::signal` sends
/// (feature `sim`).
///
/// Where it is all that [`run`](crate::run) is given, the runtime ends as the guide says ([shutting
/// down](crate::guide::shutting_down)): streams send what they have queued, listeners and the paths
/// of Unix sockets go.
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
/// The errors of the future, and as [`signals`].
///
/// # Cancel safety
/// The cancel safety of the future.
pub async fn until_terminated(future: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    let core = current::get()?;
    TERMINATE.into_iter().try_for_each(ends)?;
    let ending = ending(&core);
    ending.arm();
    let mut signals = Signals::of(&TERMINATE, Catch::unnoted)?;
    let mut future = pin!(future);
    poll_fn(|cx| {
        // A signal that came before these were caught has left its mark.
        if ending.is_asked() {
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(ended) = future.as_mut().poll(cx) {
            return Poll::Ready(ended);
        }
        signals.poll_recv(cx).map_ok(drop)
    })
    .await
}

/// The signals that ask a process to end.
const TERMINATE: [Signal; 2] = [Signal::SIGINT, Signal::SIGTERM];

/// Whether this process was asked to end.
static ENDING: Ending = Ending::new();

/// Whether this process, or the simulated host, was asked to end.
fn ending(core: &Core) -> &Ending {
    if core.kernel.real_descriptors() { &ENDING } else { &core.arrivals.ending }
}

/// Makes a signal end the process if it arrives again after the process was asked to end, unless it
/// is ignored.
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
        if ENDING.on_signal(number, Linux.now()) {
            // The default of these signals is to end the process, so this does not return.
            _ = emulate_default_handler(number);
        }
    };
    // SAFETY: what a handler may do: it reads the clock, changes atomics, and the default action is
    // made for handlers.
    unsafe { low_level::register(number, act)? };
    registered.push(signal);
    Ok(())
}

/// Catches these signals from now on: those of the process, except [ignored
/// ones](self#ignored-signals), and under a simulated kernel those that `Network::signal` sends to
/// the host (feature `sim`).
///
/// # Errors
/// Outside a runtime, or if the handler cannot be installed.
pub fn signals(which: &[Signal]) -> io::Result<Signals> {
    Signals::of(which, Catch::new)
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
/// See [`signals`].
pub fn signals_even_if_ignored(which: &[Signal]) -> io::Result<Signals> {
    Signals::of(which, |core, signal| Catch::with(core, signal, true, true))
}

/// Signals that are being caught.
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
    catches: Vec<Catch>,
    /// Which is asked first: the one behind that of the last signal, so that many of one kind hide
    /// no other.
    first: usize,
}

impl Signals {
    fn of(
        which: &[Signal],
        catch: impl Fn(&Rc<Core>, Signal) -> io::Result<Catch>,
    ) -> io::Result<Self> {
        let core = current::get()?;
        let catches =
            which.iter().map(|&signal| catch(&core, signal)).collect::<io::Result<_>>()?;
        Ok(Self { catches, first: 0 })
    }

    /// The next signal; of several kinds that have arrived, each in turn, from the first in the
    /// list on. Several of one kind that arrive close together may be returned as one. Cancel-safe.
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

/// One signal that is caught.
struct Catch {
    signal: Signal,
    source: Source,
    /// Set while this keeps a further signal from ending the process.
    core: Option<Rc<Core>>,
}

/// Where signals come from.
enum Source {
    /// A handler that sends to a pair of sockets, and the readiness of the other one.
    Process(SigId, AsyncFd<OwnedFd>),
    /// A signal that is ignored: nothing sends to the pair, which its other end keeps open.
    Ignored(AsyncFd<OwnedFd>, #[expect(dead_code, reason = "kept open")] OwnedFd),
    /// A simulated host, and how many were seen.
    Simulated(Rc<Core>, u64),
}

impl Catch {
    fn new(core: &Rc<Core>, signal: Signal) -> io::Result<Self> {
        Self::with(core, signal, false, true)
    }

    /// Catches a signal without keeping a further one from ending the process.
    fn unnoted(core: &Rc<Core>, signal: Signal) -> io::Result<Self> {
        Self::with(core, signal, false, false)
    }

    fn with(
        core: &Rc<Core>,
        signal: Signal,
        even_ignored: bool,
        is_noted: bool,
    ) -> io::Result<Self> {
        let source = Source::new(core, signal, even_ignored)?;
        let core = is_noted.then(|| core.clone());
        if let Some(core) = &core {
            ending(core).catch(signal.number());
        }
        Ok(Self { signal, source, core })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Signal>> {
        match &mut self.source {
            Source::Process(_, pair) | Source::Ignored(pair, _) => loop {
                ready!(pair.poll_read_ready(cx))?.clear_ready();
                if descriptor::drain(pair.get_ref())? {
                    return Poll::Ready(Ok(self.signal));
                }
            },
            Source::Simulated(core, seen) => {
                drop(core.enter_running()?);
                core.arrivals.poll(self.signal.number(), seen, cx).map(|()| Ok(self.signal))
            }
        }
    }
}

impl Source {
    fn new(core: &Rc<Core>, signal: Signal, even_ignored: bool) -> io::Result<Self> {
        if !core.kernel.real_descriptors() {
            let seen = core.arrivals.catch(signal.number());
            return Ok(Self::Simulated(core.clone(), seen));
        }
        let (read, write) = descriptor::pair()?;
        // It is empty yet. A process that may not read it fails here, instead of waiting for a
        // signal in vain.
        descriptor::drain(&read)?;
        let pair = AsyncFd::of_own(core.clone(), read, "for a signal")?;
        if !even_ignored && signal.stays_ignored() {
            return Ok(Self::Ignored(pair, write));
        }
        let id = register(signal.number(), write)?;
        Ok(Self::Process(id, pair))
    }
}

impl Drop for Catch {
    fn drop(&mut self) {
        if let Some(core) = &self.core {
            ending(core).release(self.signal.number());
        }
        if let Source::Process(id, _) = self.source {
            unregister(id);
        }
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.catches.iter().map(|catch| catch.signal)).finish()
    }
}
