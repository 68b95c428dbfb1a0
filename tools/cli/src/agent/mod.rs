//! `annulus agent`: reports the resource usage of a server on this machine to a load generator on
//! another machine.
//!
//! The agent changes nothing, and reports only on the processes named on its command line and their
//! descendants. Each connection has its own thread, with limits on time and message size.

mod process;
pub(crate) mod protocol;
pub(crate) mod tls;

use crate::frames::{self, Deadline};
use crate::output::note;
use crate::signals::{SIGHUP, SIGINT, SIGTERM, Stop};
use crate::token::{self, Token};
use crate::usage::UsageError;
use annulus_load::Address;
use annulus_load::recording::Machine;
use anyhow::{Context, Result};
use clap::Args;
use process::{Processes, Subject};
use protocol::{Ask, HANDSHAKE_TIMEOUT, IDLE_TIMEOUT, MAX_MESSAGE_BYTES, Observed, PROTOCOL};
use rustix::event::{PollFd, PollFlags, poll};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The maximum number of connections. Further connections wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 8;
/// Errors of `accept` that leave no connection waiting.
const NO_CONNECTION: [ErrorKind; 3] =
    [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::ConnectionAborted];
/// How long the agent waits after it could not accept or serve a connection, for example for lack
/// of descriptors or threads.
const RETRY_DELAY: Duration = Duration::from_millis(100);

const AFTER_HELP: &str = "\
The agent runs beside a server, and `annulus load --agent` asks it what the
server uses while it is measured: CPU time, resident memory, context switches,
and calls of read and write. Processes that the server has started count too.

The agent reads /proc and changes nothing. It reports about the given process
only, to clients that know the token, over TLS. Without --tls-cert it makes a
certificate for itself when it starts, and prints its fingerprint. SECURITY.md
says more. SIGINT or SIGTERM ends it.

The kernel counts calls of read and write for every process, but not send,
recv, epoll_wait, or operations of io_uring: counting those would slow the
server down. Their count needs the permission to read /proc/PID/io, which the
server's user and root have.

Examples:
  openssl rand -hex 32 > token
  annulus agent port:8080 --listen 0.0.0.0:7200 --token-file token
  annulus agent unit:nginx --token-file token --tls-cert c.pem --tls-key k.pem
  annulus load http://10.0.0.9:8080 --agent 10.0.0.9:7200 \\
    --agent-token-file token --agent-fingerprint sha256:…";

/// Report what a server on this machine uses to a load generator on another
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct AgentArgs {
    /// The server: port:8080 for the process that listens there, unit:nginx.service, or pid:1234
    #[arg(value_name = "PROCESS")]
    subject: Subject,
    /// Where to listen
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7200")]
    listen: Address,
    /// A file with the token that clients must know: 16 bytes or more
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// A certificate with its chain (PEM) [default: a new self-signed one]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

struct Agent {
    subject: Subject,
    token: Token,
    tls: Arc<ServerConfig>,
    host: String,
}

pub(crate) fn run(args: AgentArgs) -> Result<ExitCode> {
    let AgentArgs { subject, listen, token_file, tls_cert, tls_key } = args;
    let token = Token::read(&token_file)?;
    let addresses = listen.resolve()?;
    let host = Machine::this().host;
    let files = tls_cert.as_deref().zip(tls_key.as_deref()).map(|(cert, key)| [cert, key]);
    let names = addresses.iter().map(|address| address.ip().to_string());
    let names = names.chain(["localhost".to_owned()]).collect();
    let (tls, fingerprint) = tls::server(files, names)?;
    if let (Subject::Pid(_), Err(error)) = (&subject, Processes::find(&subject)) {
        return Err(UsageError(format!("{error:#}")).into());
    }
    let stop = Stop::install(&[SIGINT, SIGTERM, SIGHUP]).context("cannot handle signals")?;
    let (woken, waker) = UnixStream::pair().context("cannot handle signals")?;
    waker.set_nonblocking(true).context("cannot handle signals")?;
    stop.write_byte_to(&waker).context("cannot handle signals")?;
    let listener = TcpListener::bind(&addresses[..]);
    let listener = listener.with_context(|| {
        format!("cannot listen on {listen}: use a free port of an address of this machine")
    })?;
    listener.set_nonblocking(true).context("cannot listen")?;
    let address = listener.local_addr().context("cannot read the listening address")?;
    note(format_args!(
        "annulus agent: listening on {address} about {subject}, certificate {fingerprint}"
    ));
    let agent = Arc::new(Agent { subject, token, tls, host });
    // Whether the last connection could not be accepted. Such an error is reported once.
    let mut has_failed = false;
    while !stop.has_arrived() {
        let mut waits = vec![PollFd::new(&woken, PollFlags::IN)];
        let is_full = Arc::strong_count(&agent) > MAX_CONNECTIONS;
        waits
            .push(PollFd::new(&listener, if is_full { PollFlags::empty() } else { PollFlags::IN }));
        // The end of a connection does not wake `poll`, so a full agent checks again after 100 ms.
        let limit = is_full.then_some(rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 });
        let _ = poll(&mut waits, limit.as_ref());
        if is_full {
            continue;
        }
        has_failed = match listener.accept() {
            Ok((stream, client)) => {
                start_serving(&agent, stream, client);
                false
            }
            // A signal may have ended `poll`, or the client may have gone.
            Err(error) if NO_CONNECTION.contains(&error.kind()) => false,
            Err(error) => {
                if !has_failed {
                    note(format_args!("annulus agent: cannot accept a connection: {error}"));
                }
                // The connection is still waiting, so `poll` would return at once.
                thread::sleep(RETRY_DELAY);
                true
            }
        };
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves a connection on a thread of its own. Reports an error if there is no thread for it, and
/// closes it.
fn start_serving(agent: &Arc<Agent>, stream: TcpStream, client: SocketAddr) {
    let agent = Arc::clone(agent);
    let started = thread::Builder::new().spawn(move || agent.serve(stream, client));
    if let Err(error) = started {
        note(format_args!("annulus agent: {client}: cannot start a thread: {error}"));
        thread::sleep(RETRY_DELAY);
    }
}

impl Agent {
    /// Serves a connection until it ends, and prints the error if there was one.
    fn serve(&self, stream: TcpStream, client: SocketAddr) {
        if let Err(error) = self.converse(stream) {
            note(format_args!("annulus agent: {client}: {error:#}"));
        }
    }

    fn converse(&self, stream: TcpStream) -> Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        let session = ServerConnection::new(Arc::clone(&self.tls))?;
        let mut stream = StreamOwned::new(session, Deadline::new(stream, HANDSHAKE_TIMEOUT));
        token::accept(&mut stream, PROTOCOL, &self.token).map_err(explain)?;
        // The processes are found again for each client, because the server may have been
        // restarted.
        let found = Processes::find(&self.subject);
        let observed = match &found {
            Ok(processes) => {
                Observed::Process { host: self.host.clone(), process: processes.to_string() }
            }
            Err(error) => Observed::Nothing(format!("{error:#}")),
        };
        frames::write(&mut stream, &observed)?;
        let processes = found?;
        loop {
            stream.sock.restart(IDLE_TIMEOUT);
            match frames::read(&mut stream, MAX_MESSAGE_BYTES) {
                Ok(Ask::Reading) => frames::write(&mut stream, &processes.read())?,
                Err(frames::FrameError::Closed) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Explains an error of the TLS handshake, with a remedy where there is one.
fn explain(error: anyhow::Error) -> anyhow::Error {
    let io = match error.downcast_ref() {
        Some(frames::FrameError::Io(io)) => io,
        _ => return error,
    };
    match io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidMessage(_)) => {
            error.context("it does not speak TLS: use `annulus load --agent`")
        }
        Some(rustls::Error::AlertReceived(_)) => {
            error.context("it does not accept the certificate: give it the fingerprint")
        }
        _ if io.kind() == io::ErrorKind::InvalidData => error.context("its TLS is not valid"),
        _ => error,
    }
}
