//! The course of a run of threads: connect, warm up, measure, part.

use crate::blocking::Client;
use crate::board::{Board, Pad, Phase};
use crate::clock;
use crate::fault::Fault;
use crate::measured::{Clients, Measured, Measuring};
use crate::pattern::Tape;
use crate::place::Place;
use crate::plan::Plan;
use crate::run::{LoadError, Observer};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What a client's thread has for its stack: plenty for a loop over one buffer, and small enough for thousands.
const STACK: usize = 128 << 10;

/// How often the observer hears of progress.
const BEAT: Duration = Duration::from_millis(100);

/// Carries out a plan with a thread a client; returns how, too.
pub(crate) fn run(
    plan: &Plan,
    observer: &mut dyn Observer,
    board: &Arc<Board>,
) -> Result<(String, Measured), LoadError> {
    let streams = connect_all(plan, board);
    let mut measured = Measured::default();
    if board.is_flawless() {
        let clients = start(plan, streams, board)?;
        attend(&clients, plan.warm_up, |_| ());
        if !are_gone(&clients) {
            let mut window = Measuring::open(observer, board, plan.duration, Clients::Threads);
            attend(&clients, plan.duration, |elapsed| window.progress(elapsed));
            measured = window.close();
        }
        board.enter(Phase::Over);
        finish(clients);
    }
    Ok(("threads (a blocking thread a connection)".into(), measured))
}

/// Connects every client, one after the other: a server's backlog is never overrun. After the first failure, which goes
/// on the board, no more are started.
fn connect_all(plan: &Plan, board: &Board) -> Vec<OwnedFd> {
    let mut streams = Vec::with_capacity(plan.clients);
    for client in 0..plan.clients {
        match connect(plan) {
            Ok(stream) => streams.push(stream),
            Err(error) => {
                board.fault(client, 0, &Fault::connect(&error));
                break;
            }
        }
    }
    streams
}

fn connect(plan: &Plan) -> io::Result<OwnedFd> {
    match &plan.address {
        Place::Inet(address) => connect_tcp(address, plan.connect_timeout),
        Place::Unix(path) => connect_unix(path, plan.connect_timeout),
    }
}

fn connect_tcp(address: &SocketAddr, limit: Duration) -> io::Result<OwnedFd> {
    let stream = TcpStream::connect_timeout(address, limit)?;
    stream.set_nodelay(true)?;
    Ok(stream.into())
}

/// A connect that waits for room in the backlog counts as a send.
fn connect_unix(path: &Path, limit: Duration) -> io::Result<OwnedFd> {
    let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(unix, stream, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(socket),
        Err(Errno::AGAIN) => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error.into()),
    }
}

/// Starts a thread on each stream. Where the system has no more threads, those that there are end at once.
fn start(
    plan: &Plan,
    streams: Vec<OwnedFd>,
    board: &Arc<Board>,
) -> Result<Vec<JoinHandle<()>>, LoadError> {
    let began = clock::nanos();
    let mut clients = Vec::with_capacity(streams.len());
    for (number, stream) in streams.into_iter().enumerate() {
        let tape = Tape::new(plan.seed, number, plan.length);
        let pad = Pad::new(Arc::clone(board));
        let window = plan.window(number, began);
        let client = Client::new(number, stream, tape, window, pad, plan.reply_timeout);
        match thread::Builder::new().stack_size(STACK).spawn(|| client.run()) {
            Ok(thread) => clients.push(thread),
            Err(error) => {
                board.enter(Phase::Over);
                let started = clients.len();
                finish(clients);
                return Err(LoadError::Threads { started, wanted: plan.clients, error });
            }
        }
    }
    Ok(clients)
}

fn are_gone(clients: &[JoinHandle<()>]) -> bool {
    clients.iter().all(JoinHandle::is_finished)
}

/// Lets the clients work for `length`, or until none of them is left.
fn attend(clients: &[JoinHandle<()>], length: Duration, mut each: impl FnMut(Duration)) {
    let began = clock::now();
    loop {
        let elapsed = clock::now() - began;
        if elapsed >= length || are_gone(clients) {
            return;
        }
        each(elapsed);
        thread::sleep(BEAT.min(length - elapsed));
    }
}

fn finish(clients: Vec<JoinHandle<()>>) {
    for client in clients {
        if let Err(panic) = client.join() {
            std::panic::resume_unwind(panic);
        }
    }
}
