//! A server under test: a program that we start, pin, find and end.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annulus_load::Place;
use annulus_load::affinity::{self, PinError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};

use crate::child;
use crate::words::{Unheard, Words};

/// How long a server may take until it says where it listens.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take to end once asked, before it is killed.
pub(crate) const END_PATIENCE: Duration = Duration::from_secs(2);

/// How to run a server. It must announce itself on its standard error with a line that contains
/// `listening on ADDRESS:PORT` or `listening on unix:/path`, and run until SIGTERM.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name in tables and errors.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The core it is pinned to, with every thread it will have.
    pub pin: Option<usize>,
}

impl Spec {
    /// A program without arguments, which may run anywhere.
    pub fn of(name: &str, program: impl Into<PathBuf>) -> Spec {
        Spec { name: name.into(), program: program.into(), arguments: Vec::new(), pin: None }
    }

    /// The same server under another name.
    pub fn named(&self, name: String) -> Spec {
        Spec { name, ..self.clone() }
    }

    /// What runs it: no input, no output, a standard error to be read.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // A process group of its own: ctrl-C at the terminal reaches the lab alone, which then
        // ends its servers when it has stopped measuring.
        command.args(&self.arguments).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Starts its command on its core.
    pub(crate) fn spawn(&self, command: Command) -> Result<Child, ServerError> {
        // A process is born with its parent's pin: there is no moment in which it could start
        // threads elsewhere.
        let pinned = self.pin.map(affinity::pin).transpose();
        let _pinned =
            pinned.map_err(|error| ServerError::Pin { name: self.name.clone(), error })?;
        child::spawn(command).map_err(|error| ServerError::Spawn {
            name: self.name.clone(),
            program: self.program.clone(),
            error,
        })
    }
}

/// A running server; dropping it ends it.
#[derive(Debug)]
pub struct Server {
    name: String,
    process: Process,
    words: Words,
    address: Place,
}

impl Server {
    /// Starts a server and waits until it has said where it listens.
    pub fn start(spec: &Spec) -> Result<Server, ServerError> {
        Server::start_within(spec, START_PATIENCE)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens.
    pub fn address(&self) -> &Place {
        &self.address
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// An error with its last words if it has ended, or ends within `patience`.
    pub fn check(&mut self, patience: Duration) -> Result<(), ServerError> {
        match self.process.ends_within(patience) {
            true => Err(self.process.obituary(&self.name, &self.words)),
            false => Ok(()),
        }
    }

    fn start_within(spec: &Spec, patience: Duration) -> Result<Server, ServerError> {
        let mut child = spec.spawn(spec.command())?;
        let stderr = child.stderr.take().expect("the command pipes it");
        let name = spec.name.clone();
        let watch = |error| ServerError::Watch { name: name.clone(), error };
        let mut process = Process::new(child).map_err(watch)?;
        let words = Words::of(stderr);
        match words.address(patience) {
            Ok(address) => Ok(Server { name, process, words, address }),
            Err(Unheard::Silent) => {
                Err(ServerError::Silent { name, patience, said: words.last_line() })
            }
            Err(Unheard::Ended) if process.ends_within(END_PATIENCE) => {
                Err(process.obituary(&name, &words))
            }
            Err(Unheard::Ended) => Err(ServerError::Mute { name, said: words.last_line() }),
        }
    }
}

/// Handles of the servers that are up, for [`kill_all`]. A handle, unlike an id, never comes to mean
/// another process.
static LIVE: Mutex<Vec<Arc<OwnedFd>>> = Mutex::new(Vec::new());

/// Kills every server at once, for a lab that can't wait until they have finished. As long as what is returned is held, nobody
/// gets past the end of a server: this process is about to end, and it says how.
pub(crate) fn kill_all() -> MutexGuard<'static, Vec<Arc<OwnedFd>>> {
    let servers = live();
    for handle in servers.iter() {
        // It can only fail because the server is dead already.
        let _ = pidfd_send_signal(handle, Signal::KILL);
    }
    // What they leave behind is cleaned up next, so they must not be at it any more.
    servers.iter().for_each(|handle| _ = is_dead_within(handle, END_PATIENCE));
    servers
}

fn live() -> MutexGuard<'static, Vec<Arc<OwnedFd>>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_dead_within(handle: &OwnedFd, patience: Duration) -> bool {
    let mut events = [PollFd::new(handle, PollFlags::IN)];
    let timeout = Timespec::try_from(patience).ok();
    // A signal to us cuts the wait short; then the server is killed a little early.
    poll(&mut events, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// A child process that is ended when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    handle: Arc<OwnedFd>,
    status: Option<ExitStatus>,
}

impl Process {
    pub(crate) fn new(mut child: Child) -> io::Result<Process> {
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(handle) => {
                let handle = Arc::new(handle);
                live().push(Arc::clone(&handle));
                Ok(Process { child, handle, status: None })
            }
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error.into())
            }
        }
    }

    pub(crate) fn ends_within(&self, patience: Duration) -> bool {
        is_dead_within(&self.handle, patience)
    }

    /// How a process that is dead came to its end.
    pub(crate) fn obituary(&mut self, name: &str, words: &Words) -> ServerError {
        let status = self.reap();
        ServerError::Ended { name: name.into(), status, said: words.last_words(END_PATIENCE) }
    }

    /// The status of a process that is dead, or about to be.
    fn reap(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            // Children it left behind would hold its core, and the pipe of its standard error.
            // Until it is reaped, its group is nobody else's.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            self.status = self.child.wait().ok();
        }
        self.status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Signals to a server that is dead already fail, and need not succeed.
        let _ = pidfd_send_signal(&self.handle, Signal::TERM);
        if !self.ends_within(END_PATIENCE) {
            let _ = pidfd_send_signal(&self.handle, Signal::KILL);
        }
        live().retain(|handle| !Arc::ptr_eq(handle, &self.handle));
        self.reap();
    }
}

/// Why a server is not there. The text is one line, with the server's own last words.
#[derive(Debug)]
pub enum ServerError {
    /// It could not be started.
    Spawn {
        /// The server.
        name: String,
        /// Its program.
        program: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The core it should run on can't be had.
    Pin {
        /// The server.
        name: String,
        /// Why.
        error: PinError,
    },
    /// It ended when it should be running.
    Ended {
        /// The server.
        name: String,
        /// How it ended, if the system tells.
        status: Option<ExitStatus>,
        /// The last line it said.
        said: Option<String>,
    },
    /// It closed its standard error before it said where it listens.
    Mute {
        /// The server.
        name: String,
        /// The last line it said.
        said: Option<String>,
    },
    /// It never said where it listens.
    Silent {
        /// The server.
        name: String,
        /// How long we waited.
        patience: Duration,
        /// The last line it said.
        said: Option<String>,
    },
    /// It was asked, and answered otherwise than it should, or not in time.
    Unanswered {
        /// The server.
        name: String,
        /// What it was asked.
        asked: String,
        /// What came instead.
        instead: String,
    },
    /// It could not be watched.
    Watch {
        /// The server.
        name: String,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerError::Spawn { name, program, error } => {
                write!(f, "server {name}: can't start `{}`: {error}", program.display())
            }
            ServerError::Pin { name, error } => write!(f, "server {name}: {error}"),
            ServerError::Ended { name, status, said } => {
                let status = status.map_or("unknown".into(), |status| status.to_string());
                write!(f, "server {name} ended ({status}){}", Said(said.as_deref()))
            }
            ServerError::Mute { name, said } => {
                let said = Said(said.as_deref());
                write!(f, "server {name} closed its standard error before `listening on`{said}")
            }
            ServerError::Silent { name, patience, said } => {
                let said = Said(said.as_deref());
                write!(f, "server {name} did not say `listening on` within {patience:?}{said}")
            }
            ServerError::Unanswered { name, asked, instead } => {
                write!(f, "server {name}: no answer to `{asked}`: {instead}")
            }
            ServerError::Watch { name, error } => {
                write!(f, "server {name}: can't watch it: {error}")
            }
        }
    }
}

impl std::error::Error for ServerError {}

/// The end of a sentence that quotes a server's last line, if there was one.
struct Said<'a>(Option<&'a str>);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(line) => write!(f, "; its last words: {line}"),
            None => write!(f, "; it said nothing"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNOUNCE: &str = "echo 'test: listening on 127.0.0.1:9 (nothing)' >&2";

    fn shell(script: &str) -> Spec {
        Spec {
            name: "shell".into(),
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            pin: None,
        }
    }

    /// Whether a process is gone or at least dead; it is ours, so nobody else reaps it.
    fn is_gone(pid: u32) -> bool {
        !std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_server_is_found_pinned_and_ended() {
        let core = affinity::allowed().expect("affinity")[0];
        let spec = Spec { pin: Some(core), ..shell(&format!("{ANNOUNCE}; exec sleep 1000")) };
        let mut server = Server::start(&spec).expect("start");
        assert_eq!(server.address(), &"127.0.0.1:9".parse().expect("address"));
        server.check(Duration::ZERO).expect("it runs");
        let pid = server.pid();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
        assert!(status.contains(&format!("Cpus_allowed_list:\t{core}\n")), "{status}");
        drop(server);
        assert!(is_gone(pid));
    }

    #[test]
    fn a_server_that_ignores_the_polite_signal_is_killed_with_its_children() {
        let script = format!("trap '' TERM; {ANNOUNCE}; while :; do sleep 1000; done");
        let server = Server::start(&shell(&script)).expect("start");
        let pid = server.pid();
        let Server { process, words, .. } = server;
        drop(process);
        assert!(is_gone(pid));
        // The sleeping child held the pipe too: its end means that nobody is left.
        assert_eq!(words.address(START_PATIENCE), Err(Unheard::Ended));
    }

    #[test]
    fn a_server_that_ends_at_once_is_quoted() {
        let script = "echo 'bind: address in use' >&2; exit 7";
        let error = Server::start(&shell(script)).expect_err("it ends");
        assert_eq!(
            error.to_string(),
            "server shell ended (exit status: 7); its last words: bind: address in use"
        );
    }

    #[test]
    fn a_server_that_hangs_up_before_it_listens_is_given_up() {
        let spec = shell("exec 2>&-; exec sleep 1000");
        let error = Server::start(&spec).expect_err("nothing more can be heard");
        assert!(error.to_string().contains("closed its standard error before"), "{error}");
    }

    #[test]
    fn a_server_that_ends_later_is_noticed() {
        let mut server = Server::start(&shell(&format!("{ANNOUNCE}; echo oh no >&2; exit 3")))
            .expect("it announced itself");
        let error = server.check(START_PATIENCE).expect_err("it ends").to_string();
        assert_eq!(error, "server shell ended (exit status: 3); its last words: oh no");
    }

    #[test]
    fn a_server_that_says_nothing_is_given_up_and_ended() {
        let error = Server::start_within(&shell("exec sleep 1000"), Duration::from_millis(1))
            .expect_err("it says nothing");
        assert_eq!(
            error.to_string(),
            "server shell did not say `listening on` within 1ms; it said nothing"
        );
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let spec = Spec { program: "/nowhere/echo".into(), ..shell("") };
        let error = Server::start(&spec).expect_err("no such program").to_string();
        assert!(error.starts_with("server shell: can't start `/nowhere/echo`: No such"), "{error}");
    }
}
