//! Echo on blocking threads, one per connection, as a baseline for comparisons.

use super::registry::{Connection, Registry, Sweep, Traffic};
use super::self_test;
use super::stats::{Driver, Stats, Worker};
use super::{Listen, Plan, STOP_SIGNALS};
use crate::output::note;
use crate::signals::Stop;
use annulus_kernel::named;
use annulus_load::{clock, limits};
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use signal_hook::consts::SIGUSR1;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number of connections that may wait in the kernel to be accepted.
const LISTEN_BACKLOG: i32 = 4096;
const READ_BYTES: usize = 64 * 1024;
/// How long to stop accepting when descriptors, threads or memory are short.
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// Why this driver runs: `auto` never chooses it.
const REASON: &str = "as requested";
/// The stack size of a connection's thread; its buffer is on the heap.
const STACK_BYTES: usize = 64 * 1024;

/// Serves until a signal arrives.
pub(super) fn serve(plan: &Plan, listen: &Listen) -> Result<Stats> {
    self_test::with_threads()?;
    let listener = bind_first(plan, listen)?;
    let stop = Stop::install(&STOP_SIGNALS).context("cannot handle signals")?;
    let server = Server::new(plan, &stop).context("cannot watch for signals")?;
    let asked = server.watch_sigusr1().context("cannot handle signals")?;
    let address = listener.local_addr().map_err(named("getsockname"));
    let address = address.context("cannot read the address listened on")?;
    plan.announce(&[listen.endpoint.display_address(address)], &format!("threads: {REASON}"));
    let began = clock::now();
    server.accept_all(listener, &stop, &asked)?;
    let aborted = server.shut_down()?;
    let driver =
        Driver { name: "threads".into(), reason: REASON.into(), counters: BTreeMap::new() };
    let counts = server.registry().counts();
    Ok(Stats::new(vec![Worker { driver, counts, aborted: aborted as u64 }], began))
}

/// Listens on the first available address.
fn bind_first(plan: &Plan, listen: &Listen) -> Result<TcpListener> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in &listen.addresses {
        match listen_at(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(plan.cannot_listen(&listen.endpoint, last))
}

fn listen_at(address: &SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(named("socket"))?;
    sockopt::set_socket_reuseaddr(&socket, true).map_err(named("setsockopt"))?;
    bind(&socket, address).map_err(named("bind"))?;
    rustix::net::listen(&socket, LISTEN_BACKLOG).map_err(named("listen"))?;
    Ok(socket.into())
}

/// The server: its connections, and the socket pair that wakes its loop.
struct Server<'a> {
    plan: &'a Plan,
    registry: Arc<Mutex<Registry<Arc<ConnectionState>>>>,
    /// Receives a byte for each signal and for each connection that ends.
    wake_receiver: UnixStream,
    wake_sender: Arc<UnixStream>,
}

impl<'a> Server<'a> {
    fn new(plan: &'a Plan, stop: &Stop) -> io::Result<Server<'a>> {
        let (wake_receiver, wake_sender) = UnixStream::pair().map_err(named("socketpair"))?;
        // Non-blocking: if the buffer is full, the unread bytes wake the loop anyway.
        wake_receiver.set_nonblocking(true).map_err(named("ioctl"))?;
        wake_sender.set_nonblocking(true).map_err(named("ioctl"))?;
        stop.write_byte_to(&wake_sender)?;
        Ok(Server {
            plan,
            registry: Arc::new(Mutex::new(Registry::new())),
            wake_receiver,
            wake_sender: Arc::new(wake_sender),
        })
    }

    fn registry(&self) -> MutexGuard<'_, Registry<Arc<ConnectionState>>> {
        lock(&self.registry)
    }

    /// Accepts until a signal, within the connection limit.
    fn accept_all(&self, listener: TcpListener, stop: &Stop, asked: &AtomicBool) -> Result<()> {
        let idle = self.plan.idle_timeout.map(Sweep::Idle);
        let max_connections =
            self.plan.max_connections.unwrap_or_else(limits::available_connections);
        let mut pause = Pause::default();
        while !stop.has_arrived() {
            let room = max_connections.saturating_sub(self.registry().count());
            let left = pause.left();
            let accepts = room > 0 && left.is_none();
            let limit = [idle.map(Sweep::interval), left].into_iter().flatten().min();
            self.wait(accepts.then_some(&listener), limit)?;
            if accepts {
                self.accept_some(&listener, room, &mut pause)?;
            }
            idle.into_iter().for_each(|why| self.sweep(why));
            // Pairs with the store in the signal handler. The flag orders no other memory.
            if asked.swap(false, Ordering::SeqCst) {
                let count = self.registry().count();
                note(format_args!("annulus echo: {count} connections, each with a thread"));
            }
        }
        Ok(())
    }

    /// Returns a flag that SIGUSR1 sets. Without a handler, the signal would end the process.
    fn watch_sigusr1(&self) -> io::Result<Arc<AtomicBool>> {
        let asked = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGUSR1, Arc::clone(&asked))?;
        signal_hook::low_level::pipe::register(SIGUSR1, self.wake_sender.try_clone()?)?;
        Ok(asked)
    }

    /// Waits for a connection, a byte on the wake-up socket, or until `limit` has passed.
    fn wait(&self, listener: Option<&TcpListener>, limit: Option<Duration>) -> io::Result<()> {
        let mut watched = vec![PollFd::new(&self.wake_receiver, PollFlags::IN)];
        watched.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        });
        match poll(&mut watched, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(named("ppoll")(error)),
        }
        let mut bytes = [0; 64];
        while let Ok(1..) = (&self.wake_receiver).read(&mut bytes) {}
        Ok(())
    }

    /// Accepts pending connections, at most `room`. Starts a pause when descriptors, threads or
    /// memory are short.
    fn accept_some(
        &self,
        listener: &TcpListener,
        room: usize,
        pause: &mut Pause,
    ) -> anyhow::Result<()> {
        for _ in 0..room {
            let admitted = match listener.accept() {
                Ok((stream, _peer)) => self.insert(stream).map_err(named("starting a thread")),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The client disconnected before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
                Err(error) if is_listener_error(&error) => {
                    return Err(named("accept4")(error)).context("cannot continue listening");
                }
                Err(error) => Err(named("accept4")(error)),
            };
            match admitted {
                Ok(()) => pause.until = None,
                Err(error) => {
                    pause.request(&error);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Serves a connection on its own thread. If the thread cannot be started, the connection is
    /// closed.
    fn insert(&self, stream: TcpStream) -> io::Result<()> {
        let state = Arc::new(ConnectionState { stream, traffic: Traffic::default() });
        let number = self.registry().insert(Arc::clone(&state));
        let registration = Registration {
            registry: Arc::clone(&self.registry),
            wake_sender: Arc::clone(&self.wake_sender),
            number,
        };
        let body = move || {
            let _registration = registration;
            // `state` is dropped before the registration. Removing the connection from the registry
            // then drops the last reference, which closes it.
            let state = state;
            // A failed connection ends, and the server continues.
            let _ = state.echo();
        };
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(body).map(drop)
    }

    fn sweep(&self, why: Sweep) {
        // The lock is released before the actions run, so that threads can remove their connections
        // meanwhile.
        let actions = self.registry().sweep(why);
        actions.iter().for_each(|(connection, act)| act(connection));
    }

    /// Closes all connections within the shutdown timeout; returns how many had to be aborted at
    /// its end.
    fn shut_down(&self) -> Result<usize> {
        let (began, timeout) = (clock::now(), self.plan.shutdown_timeout);
        loop {
            let why = Sweep::ShuttingDown { elapsed: clock::now() - began, timeout };
            let left = self.registry().count();
            if left == 0 {
                return Ok(0);
            }
            self.sweep(why);
            if why.is_last() {
                return Ok(left);
            }
            self.wait(None, Some(why.interval()))?;
        }
    }
}

/// Returns true if an error concerns the listener itself and would occur again.
fn is_listener_error(error: &io::Error) -> bool {
    let errors = [Errno::BADF, Errno::INVAL, Errno::NOTSOCK, Errno::OPNOTSUPP, Errno::FAULT];
    errors.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// A pause in accepting while descriptors, threads or memory are short.
#[derive(Default)]
struct Pause {
    until: Option<Duration>,
    /// The reasons that have been printed.
    printed: BTreeSet<String>,
}

impl Pause {
    /// Returns the remaining time of the pause.
    fn left(&self) -> Option<Duration> {
        self.until?.checked_sub(clock::now()).filter(|left| !left.is_zero())
    }

    /// Starts a pause. Prints each reason only once: a shortage ends whenever a connection closes,
    /// and may return with the next connection.
    fn request(&mut self, error: &io::Error) {
        self.until = Some(clock::now() + RETRY_AFTER);
        if self.printed.insert(error.to_string()) {
            note(format_args!(
                "annulus echo: cannot accept connections for now: {error}: retrying until one can be accepted"
            ));
        }
    }
}

/// A connection's entry in the registry, removed however its thread ends.
struct Registration {
    registry: Arc<Mutex<Registry<Arc<ConnectionState>>>>,
    wake_sender: Arc<UnixStream>,
    number: usize,
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.registry).remove(self.number);
        let _ = (&*self.wake_sender).write(&[0]);
    }
}

/// Locks the registry and ignores poisoning. Every change of the registry is one call, so it is
/// consistent even if a thread has panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection, shared by its thread and the registry.
struct ConnectionState {
    stream: TcpStream,
    traffic: Traffic,
}

impl ConnectionState {
    fn echo(&self) -> io::Result<()> {
        let mut stream = &self.stream;
        stream.set_nodelay(true)?;
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(READ_BYTES)?;
        buffer.resize(READ_BYTES, 0);
        loop {
            let count = match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.traffic.received(count);
            stream.write_all(&buffer[..count])?;
            self.traffic.answered();
        }
        stream.shutdown(Shutdown::Write)
    }
}

impl Connection for Arc<ConnectionState> {
    fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Closes the receiving half. The thread answers the bytes already received, and then closes.
    fn request_close(&self) {
        let _ = self.stream.shutdown(Shutdown::Read);
    }

    fn abort(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
