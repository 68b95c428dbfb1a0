//! Signals that ask a program to end, awaited.

use crate::runtime::core::Core;
use crate::runtime::current;
use annulus_kernel::named;
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};
use std::future::poll_fn;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A signal that asks a program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// Ctrl-C.
    Sigint,
    /// What a service manager sends first.
    Sigterm,
}

impl Signal {
    fn number(self) -> i32 {
        match self {
            Self::Sigint => SIGINT,
            Self::Sigterm => SIGTERM,
        }
    }
}

/// Catches SIGINT (ctrl-c) from now on. Its default action, ending the process, stays off even after this is dropped.
///
/// # Errors
/// Outside a runtime, under a simulated kernel, or if the handler cannot be installed.
pub fn ctrl_c() -> io::Result<Signals> {
    signals(&[Signal::Sigint])
}

/// Catches these signals from now on: see [`ctrl_c`].
///
/// # Errors
/// As [`ctrl_c`].
pub fn signals(which: &[Signal]) -> io::Result<Signals> {
    let core = current::get()?;
    if !core.kernel.real_descriptors() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "a simulation gets no signals"));
    }
    let catches =
        which.iter().map(|&signal| Catch::new(&core, signal)).collect::<io::Result<_>>()?;
    Ok(Signals { catches })
}

/// Signals that are being caught.
pub struct Signals {
    catches: Vec<Catch>,
}

impl Signals {
    /// The next signal. Several of one kind that arrive close together may be returned as one. Cancel-safe.
    ///
    /// # Errors
    /// After the runtime's end, or if the signal cannot be read.
    pub async fn recv(&mut self) -> io::Result<Signal> {
        poll_fn(|cx| {
            for catch in &mut self.catches {
                if let Poll::Ready(caught) = catch.poll(cx) {
                    return Poll::Ready(caught);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// One signal: a handler that writes to a pipe, and the readiness of its other end.
struct Catch {
    signal: Signal,
    id: SigId,
    pipe: UnixStream,
    core: Rc<Core>,
    slot: u32,
}

impl Catch {
    fn new(core: &Rc<Core>, signal: Signal) -> io::Result<Self> {
        let (read, write) = UnixStream::pair().map_err(named("socketpair"))?;
        read.set_nonblocking(true).map_err(named("ioctl"))?;
        write.set_nonblocking(true).map_err(named("ioctl"))?;
        // It is empty yet. A process that may not read it fails here, instead of waiting for a signal in vain.
        drain(&read)?;
        let id = pipe::register(signal.number(), write)?;
        let inner = &mut *core.enter()?;
        let slot = inner.polls.add(&mut inner.io, read.as_fd());
        Ok(Self { signal, id, pipe: read, core: core.clone(), slot })
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<io::Result<Signal>> {
        loop {
            if drain(&self.pipe)? {
                return Poll::Ready(Ok(self.signal));
            }
            let inner = &mut *self.core.enter_running()?;
            if inner.polls.poll(&mut inner.io, self.slot, cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

/// Reads what is there; true if it was anything.
fn drain(mut pipe: &UnixStream) -> io::Result<bool> {
    match pipe.read(&mut [0; 64]) {
        Ok(count) => Ok(count > 0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(named("recvfrom")(error)),
    }
}

impl Drop for Catch {
    fn drop(&mut self) {
        unregister(self.id);
        if let Ok(mut inner) = self.core.enter() {
            let inner = &mut *inner;
            inner.polls.drop_poll(&mut inner.io, self.slot);
        }
    }
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.catches.iter().map(|catch| catch.signal)).finish()
    }
}
