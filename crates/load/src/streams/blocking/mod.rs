//! A run with a blocking thread per client: connect, warm up, measure, close.

mod client;

use crate::clock;
use crate::exchange::Echo;
use crate::fault::Fault;
use crate::measured::{ClientKind, Measured, Measuring, check_interrupted};
use crate::metrics::{Batch, Metrics, Phase, Totals};
use crate::plan::{Plan, Streams};
use crate::report::Findings;
use crate::run::{LoadError, Observer};
use crate::server_address::{ServerAddress, unix_address};
use crate::start_time::StartTime;
use client::Client;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, shutdown};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The stack of a client's thread: enough for a loop over one buffer, small enough for thousands of threads.
const STACK: usize = 128 << 10;

/// How often to notify the observer of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// How often to check whether the clients have their last replies.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Runs the plan with a thread per client.
pub(super) fn run(
    plan: &Plan,
    workload: Streams,
    observer: &mut dyn Observer,
) -> Result<Findings, LoadError> {
    let metrics = Arc::new(Metrics::new(plan));
    let measured = match connect_unless_interrupted(plan, observer, &metrics)? {
        None => Measured::interrupted(),
        Some(streams) if metrics.has_no_faults() => {
            StartTime::of(plan).await_warm_up(observer).map_err(LoadError::Start)?;
            let clients = start(plan, workload, streams, &metrics)?;
            let mut measured = measure(plan, &clients, observer, &metrics);
            metrics.set_phase(Phase::Over);
            if !measured.interrupted {
                measured.interrupted = await_all(&clients, observer).is_break();
            }
            if measured.interrupted {
                metrics.set_phase(Phase::Interrupted);
            }
            finish(clients, measured.interrupted);
            measured
        }
        Some(_) => Measured::default(),
    };
    // Every client is dropped, and so has flushed its batch.
    let Totals { intervals, faults } =
        metrics.take_totals(measured.length, |interval| observer.interval(interval));
    let figures = super::figures(plan, workload, measured, &intervals);
    let driver = "threads (a blocking thread a connection)".into();
    Ok(Findings { driver, measured, figures, intervals, faults })
}

/// Warms up, then measures. Either phase ends early if every client has ended or the observer interrupts.
fn measure(
    plan: &Plan,
    clients: &[Thread],
    observer: &mut dyn Observer,
    metrics: &Metrics,
) -> Measured {
    if wait_phase(clients, plan.warm_up, |_| check_interrupted(observer)).is_break() {
        return Measured::interrupted();
    }
    if all_finished(clients) {
        return Measured::default();
    }
    let mut window = Measuring::open(observer, metrics, plan.duration, ClientKind::Threads);
    let ended = wait_phase(clients, plan.duration, |elapsed| window.progress(elapsed));
    window.close(ended)
}

/// Connects every client from a thread of its own, which is detached if the observer interrupts.
fn connect_unless_interrupted(
    plan: &Plan,
    observer: &dyn Observer,
    metrics: &Arc<Metrics>,
) -> Result<Option<Vec<OwnedFd>>, LoadError> {
    let (sender, streams) = mpsc::channel();
    let connecting = thread::Builder::new().spawn({
        let (plan, metrics) = (plan.clone(), Arc::clone(metrics));
        // The receiver is dropped if the run was interrupted.
        move || _ = sender.send(connect_all(&plan, &metrics))
    });
    let connecting = connecting.map_err(|error| no_thread(plan, 0, error))?;
    loop {
        match streams.recv_timeout(PROGRESS_INTERVAL) {
            Ok(streams) => return Ok(Some(streams)),
            Err(RecvTimeoutError::Timeout) => {
                if observer.is_interrupted() {
                    metrics.set_phase(Phase::Interrupted);
                    return Ok(None);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                let panic =
                    connecting.join().expect_err("it ends without an answer by a panic only");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

fn no_thread(plan: &Plan, started: usize, error: io::Error) -> LoadError {
    LoadError::Threads { started, wanted: plan.clients, error }
}

/// A client's thread; its socket is open as long as the thread runs.
struct Thread {
    handle: JoinHandle<()>,
    stream: Weak<OwnedFd>,
}

/// Connects every client, one after the other, so that a server's backlog does not overflow. Stops at the first
/// failure, which is recorded, or when the run is interrupted.
fn connect_all(plan: &Plan, metrics: &Metrics) -> Vec<OwnedFd> {
    let mut streams = Vec::with_capacity(plan.clients);
    for client in 0..plan.clients {
        if !metrics.is_open() {
            break;
        }
        match connect(plan) {
            Ok(stream) => streams.push(stream),
            Err(error) => {
                metrics.record_fault(client, 0, &Fault::connect(&error));
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

/// Starts a thread per connection. If the system starts no more threads, those already started end at once.
fn start(
    plan: &Plan,
    workload: Streams,
    streams: Vec<OwnedFd>,
    metrics: &Arc<Metrics>,
) -> Result<Vec<Thread>, LoadError> {
    let pacers = super::Pacers::new(plan, workload, clock::nanos());
    let sizes = plan.message_sizes();
    let mut clients = Vec::with_capacity(streams.len());
    for (number, stream) in streams.into_iter().enumerate() {
        let echo = Echo::new(plan.seed, number, &sizes);
        let batch = Batch::new(Arc::clone(metrics));
        let pacer = pacers.of(number);
        let stream = Arc::new(stream);
        let weak = Arc::downgrade(&stream);
        let client = Client::new(number, stream, echo, pacer, batch, plan.reply_timeout);
        match thread::Builder::new().stack_size(STACK).spawn(|| client.run()) {
            Ok(handle) => clients.push(Thread { handle, stream: weak }),
            Err(error) => {
                metrics.set_phase(Phase::Over);
                let started = clients.len();
                finish(clients, true);
                return Err(no_thread(plan, started, error));
            }
        }
    }
    Ok(clients)
}

fn all_finished(clients: &[Thread]) -> bool {
    clients.iter().all(|client| client.handle.is_finished())
}

/// Lets the clients work for `length`, until all have ended, or until `each` breaks.
fn wait_phase(
    clients: &[Thread],
    length: Duration,
    mut each: impl FnMut(Duration) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let began = clock::now();
    loop {
        let elapsed = clock::now() - began;
        if elapsed >= length || all_finished(clients) {
            return ControlFlow::Continue(());
        }
        each(elapsed)?;
        thread::sleep(PROGRESS_INTERVAL.min(length - elapsed));
    }
}

/// Waits for the last replies, unless the observer interrupts.
fn await_all(clients: &[Thread], observer: &dyn Observer) -> ControlFlow<()> {
    while !all_finished(clients) {
        check_interrupted(observer)?;
        thread::sleep(POLL_INTERVAL);
    }
    ControlFlow::Continue(())
}

/// Joins every client; with `at_once`, without waiting for replies.
fn finish(clients: Vec<Thread>, at_once: bool) {
    let streams = clients.iter().filter_map(|client| client.stream.upgrade());
    for stream in streams.filter(|_| at_once) {
        // Ends a blocked receive. Fails if the connection is already closed, which is no error.
        let _ = shutdown(&*stream, Shutdown::Both);
    }
    for client in clients {
        if let Err(panic) = client.handle.join() {
            std::panic::resume_unwind(panic);
        }
    }
}
