//! A run with a blocking thread per client. A thread with an event loop connects them, opens and closes the window, and sweeps.

mod client;
mod shared;

use crate::clock;
use crate::exchange::Echo;
use crate::fault::Fault;
use crate::findings::Findings;
use crate::idle::sweep_interval;
use crate::load_error::LoadError;
use crate::observer::Observer;
use crate::plan::{Plan, Streams};
use crate::server_address::{ServerAddress, unix_address};
use crate::threads::{Settings, Share};
use annulus::{DriverChoice, JoinError, time};
use client::Client;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, shutdown};
use shared::{Batch, SharedRun};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The stack of a client's thread: enough for a loop over one buffer, small enough for thousands of threads.
const STACK: usize = 128 << 10;

/// How often to check whether the clients have their last replies.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Runs the plan with a thread per client.
pub(super) fn run(
    plan: &Plan,
    streams: Streams,
    observer: &mut dyn Observer,
) -> Result<Findings, LoadError> {
    let run = Arc::new(SharedRun::new(plan));
    let settings = Settings::new(DriverChoice::Epoll, 0, 0);
    let share = |_| {
        let run = Arc::clone(&run);
        ClientThreads { run, streams, connected: Vec::new(), clients: Vec::new() }
    };
    let found = Findings::of(plan, 1, settings, (&run.faults, &run.collector), observer, share)?;
    let driver = "threads (a blocking thread a connection)".into();
    run.take_error().map_or(Ok(Findings { driver, ..found }), Err)
}

/// The clients, each with a thread.
struct ClientThreads {
    run: Arc<SharedRun>,
    streams: Streams,
    /// Connections of clients that have not started.
    connected: Vec<OwnedFd>,
    clients: Vec<Thread>,
}

/// A client's thread; its socket is open as long as the thread runs.
struct Thread {
    handle: JoinHandle<()>,
    stream: Weak<OwnedFd>,
}

impl Share for ClientThreads {
    async fn connect(&mut self) -> bool {
        let run = Arc::clone(&self.run);
        let connected = annulus::spawn_blocking(move || connect_all(&run)).await;
        match connected.map_err(JoinError::try_into_panic) {
            Ok(connected) => self.connected = connected,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_)) => return false,
        }
        self.run.faults.is_empty()
    }

    /// Starts a thread per connection. If the system starts no more threads, those already started end at once.
    fn start(&mut self, began: u64) {
        let plan = &self.run.plan;
        let pacers = super::Pacers::new(plan, self.streams, began);
        let sizes = plan.message_sizes();
        for (number, stream) in std::mem::take(&mut self.connected).into_iter().enumerate() {
            let echo = Echo::new(plan.seed, number, &sizes);
            let batch = Batch::new(Arc::clone(&self.run));
            let stream = Arc::new(stream);
            let weak = Arc::downgrade(&stream);
            let client =
                Client::new(number, stream, echo, pacers.of(number), batch, plan.reply_timeout);
            match thread::Builder::new().stack_size(STACK).spawn(|| client.run()) {
                Ok(handle) => self.clients.push(Thread { handle, stream: weak }),
                Err(error) => {
                    let (started, wanted) = (self.clients.len(), plan.clients);
                    self.run.fail(LoadError::Threads { started, wanted, error });
                    return self.end_clients();
                }
            }
        }
    }

    /// Clients do not wait while the window is opened.
    fn open(&mut self, pause: Range<u64>) {
        self.run.open(pause.end);
    }

    fn close(&mut self) -> Option<Duration> {
        self.run.close();
        None
    }

    fn cpu(&self) -> Duration {
        clock::process_cpu()
    }

    fn responses(&self) -> u64 {
        self.run.recorder().responses()
    }

    fn is_finished(&self) -> bool {
        self.clients.iter().all(|client| client.handle.is_finished())
    }

    fn sweep_interval(&self) -> Duration {
        sweep_interval(self.run.plan.reply_timeout)
    }

    fn sweep(&mut self) {
        self.run.recorder().tick(clock::nanos());
    }

    async fn finish(&mut self) {
        while !self.is_finished() {
            time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn end(self) {
        self.run.close();
        if !self.is_finished() {
            self.end_clients();
        }
        for client in self.clients {
            if let Err(panic) = client.handle.join() {
                std::panic::resume_unwind(panic);
            }
        }
        self.run.recorder().finish();
    }
}

impl ClientThreads {
    /// Ends clients without waiting for replies.
    fn end_clients(&self) {
        for stream in self.clients.iter().filter_map(|client| client.stream.upgrade()) {
            // Ends a blocked receive. Fails if the connection is already closed, which is no error.
            let _ = shutdown(&*stream, Shutdown::Both);
        }
    }
}

/// Connects every client, one after the other, so that a server's backlog does not overflow. Stops at the first
/// failure, which is recorded, or when the run is interrupted.
fn connect_all(run: &SharedRun) -> Vec<OwnedFd> {
    let mut streams = Vec::with_capacity(run.plan.clients);
    for client in 0..run.plan.clients {
        if run.faults.is_interrupted() {
            break;
        }
        match connect(&run.plan) {
            Ok(stream) => streams.push(stream),
            Err(error) => {
                run.faults.record(client, &Fault::connect(&error));
                break;
            }
        }
    }
    streams
}

fn connect(plan: &Plan) -> io::Result<OwnedFd> {
    match &plan.address {
        ServerAddress::Inet(address) => connect_tcp(address, plan.connect_timeout),
        ServerAddress::Unix(path) => connect_unix(path, plan.connect_timeout),
    }
}

fn connect_tcp(address: &SocketAddr, limit: Duration) -> io::Result<OwnedFd> {
    let stream = TcpStream::connect_timeout(address, limit)?;
    stream.set_nodelay(true)?;
    Ok(stream.into())
}

/// The send time-out of a Unix socket bounds a connect that waits for space in the backlog.
fn connect_unix(path: &Path, limit: Duration) -> io::Result<OwnedFd> {
    let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(unix, stream, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    let address = unix_address(path)?;
    let address = match address.as_abstract_name() {
        Some(name) => SocketAddrUnix::new_abstract_name(name),
        None => SocketAddrUnix::new(path),
    };
    match rustix::net::connect(&socket, &address?) {
        Ok(()) => Ok(socket),
        Err(Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error.into()),
    }
}
