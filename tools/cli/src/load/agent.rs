//! The resource usage of the server, as reported by an agent on its machine.

use crate::agent::protocol::{
    Ask, Calls, Figures, HANDSHAKE_TIMEOUT, MAX_MESSAGE_BYTES, Observed, PROTOCOL, Reading,
};
use crate::agent::tls::{self, Fingerprint};
use crate::frames::{self, Deadline};
use crate::text::printable;
use crate::token::{self, Token};
use crate::usage::only_with;
use annulus_load::Address;
use annulus_load::recording::{Recording, ServerUsage};
use anyhow::{Context, Result, bail};
use clap::Args;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The interval between readings. The peak of the memory is the largest reading.
const READING_PERIOD: Duration = Duration::from_secs(1);
/// How long the agent may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const HEADING: &str = "The server's CPU time and memory";

/// The options for an agent.
#[derive(Args, Debug)]
pub(super) struct AgentOptions {
    /// Ask the `annulus agent` there what the server uses
    #[arg(long, value_name = "HOST:PORT", help_heading = HEADING)]
    agent: Option<Address>,
    /// A file with the token of the agent
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    agent_token_file: Option<PathBuf>,
    /// The fingerprint of the agent's certificate, which it prints when it starts [default: trust
    /// what this system trusts]
    #[arg(long, value_name = "sha256:…", help_heading = HEADING)]
    agent_fingerprint: Option<Fingerprint>,
}

impl AgentOptions {
    /// Checks the options, and connects if there is an agent.
    pub(super) fn connect(self) -> Result<Option<Agent>> {
        let AgentOptions { agent, agent_token_file, agent_fingerprint } = self;
        let options = [
            ("--agent-token-file", agent_token_file.is_some()),
            ("--agent-fingerprint", agent_fingerprint.is_some()),
        ];
        only_with("--agent", agent.is_some(), &options)?;
        let Some(address) = agent else { return Ok(None) };
        only_with("--agent-token-file", agent_token_file.is_some(), &[("--agent", true)])?;
        let token = Token::read(&agent_token_file.unwrap_or_default())?;
        let config = tls::client(agent_fingerprint)?;
        let connected = Agent::connect(address, &token, config);
        match connected {
            Err(error) if agent_fingerprint.is_none() => {
                Err(error.context("without --agent-fingerprint the system must trust the agent"))
            }
            connected => connected.map(Some),
        }
    }
}

type Stream = StreamOwned<ClientConnection, Deadline>;

/// A connection to an agent, and the thread that asks it for figures.
pub(super) struct Agent {
    address: Address,
    host: String,
    process: String,
    marks: Option<Sender<Mark>>,
    thread: JoinHandle<Result<Measured, String>>,
    /// Receives a message when a mark has been handled.
    marked: Receiver<()>,
}

/// A point in time at which figures are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Begin,
    End,
}

/// The figures at the start and at the end of the measured time, and the peak of the memory.
#[derive(Clone, Debug, Default)]
struct Measured {
    begin: Option<Figures>,
    end: Option<Figures>,
    peak_bytes: u64,
}

impl Agent {
    fn connect(address: Address, token: &Token, config: Arc<ClientConfig>) -> Result<Agent> {
        let at = || format!("the agent at {address}");
        let addresses = address.resolve()?;
        let stream = frames::connect(&addresses, HANDSHAKE_TIMEOUT).with_context(|| {
            format!("cannot connect to the agent at {address}: start it on the server's machine")
        })?;
        stream.set_nodelay(true).with_context(at)?;
        let name = ServerName::from(stream.peer_addr().with_context(at)?.ip());
        let name = ServerName::try_from(address.host().to_owned()).unwrap_or(name);
        let session = ClientConnection::new(config, name).with_context(at)?;
        let mut stream = StreamOwned::new(session, Deadline::new(stream, HANDSHAKE_TIMEOUT));
        token::connect(&mut stream, PROTOCOL, token).with_context(at)?;
        let (host, process) = match frames::read(&mut stream, MAX_MESSAGE_BYTES).with_context(at)? {
            Observed::Process { host, process } => (printable(&host), printable(&process)),
            Observed::Nothing(why) => {
                bail!("{} finds no process: {}", at(), printable(&why))
            }
        };
        let ((marks, asked), (answered, marked)) = (mpsc::channel(), mpsc::channel());
        let observe = move || observe(&mut stream, &asked, &answered);
        let thread = thread::Builder::new().spawn(observe).context("cannot start a thread")?;
        Ok(Agent { address, host, process, marks: Some(marks), thread, marked })
    }

    /// Makes the thread read the figures, and waits until it has, for at most twice the time that
    /// an answer may take. [`Agent::add_to`] reports a failure.
    pub(super) fn mark(&self, mark: Mark) {
        let sent = self.marks.as_ref().is_some_and(|marks| marks.send(mark).is_ok());
        if sent {
            let _ = self.marked.recv_timeout(2 * ANSWER_TIMEOUT);
        }
    }

    /// Adds the server's usage to the recording, or a warning if it is unknown.
    pub(super) fn add_to(mut self, recording: &mut Recording) {
        drop(self.marks.take());
        let measured = self.thread.join().unwrap_or_else(|_| Err("its thread has failed".into()));
        let usage = measured.and_then(|measured| match (&measured.begin, &measured.end) {
            (Some(begin), Some(end)) => Ok(usage(begin, end, measured.peak_bytes)),
            _ => Err("it was not asked, because nothing was measured".into()),
        });
        match usage {
            Ok(usage) => {
                let agent = self.address.to_string();
                let ServerUsage { cpu_seconds, .. } = usage;
                let answered = recording.total().answered;
                let per_request = cpu_seconds * 1e6 / answered as f64;
                recording.server = Some(ServerUsage {
                    agent,
                    host: self.host,
                    process: self.process,
                    cpu_us_per_request: (answered > 0).then_some(per_request),
                    ..usage
                });
            }
            Err(why) => recording.warnings.push(format!(
                "what the server used is unknown: the agent at {} about {}: {why}",
                self.address, self.process
            )),
        }
    }
}

/// Returns the usage between two readings.
fn usage(begin: &Figures, end: &Figures, peak_bytes: u64) -> ServerUsage {
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let calls = |of: fn(&Calls) -> u64| match (&begin.calls, &end.calls) {
        (Ok(begin), Ok(end)) => Some(of(end).saturating_sub(of(begin))),
        _ => None,
    };
    let unknown = end.calls.as_ref().err().or(begin.calls.as_ref().err());
    ServerUsage {
        seconds: seconds(end.at.saturating_sub(begin.at)),
        cpu_seconds: seconds(end.cpu.saturating_sub(begin.cpu)),
        switches: end.switches.saturating_sub(begin.switches),
        processes: end.processes,
        resident_bytes: end.resident_bytes,
        peak_resident_bytes: peak_bytes.max(end.resident_bytes).max(begin.resident_bytes),
        read_calls: calls(|calls| calls.read),
        write_calls: calls(|calls| calls.write),
        unavailable: unknown.map(|why| printable(why)).into_iter().collect(),
        ..ServerUsage::default()
    }
}

/// Asks for figures at each mark, and whenever no mark has arrived for [`READING_PERIOD`]. Returns
/// when the sender of the marks has been dropped.
fn observe(
    stream: &mut Stream,
    marks: &Receiver<Mark>,
    answered: &Sender<()>,
) -> Result<Measured, String> {
    let mut measured = Measured::default();
    loop {
        let mark = match marks.recv_timeout(READING_PERIOD) {
            Ok(mark) => Some(mark),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(measured),
        };
        let figures = ask(stream)?;
        if measured.begin.is_some() && measured.end.is_none() {
            measured.peak_bytes = measured.peak_bytes.max(figures.resident_bytes);
        }
        match mark {
            Some(Mark::Begin) => measured.begin = Some(figures),
            Some(Mark::End) => measured.end = Some(figures),
            None => continue,
        }
        let _ = answered.send(());
    }
}

fn ask(stream: &mut Stream) -> Result<Figures, String> {
    stream.sock.restart(ANSWER_TIMEOUT);
    let answer = frames::write(&mut *stream, &Ask::Reading)
        .and_then(|()| frames::read(stream, MAX_MESSAGE_BYTES));
    match answer {
        Ok(Reading::Figures(figures)) => Ok(figures),
        Ok(Reading::Gone(why)) => Err(printable(&why)),
        Err(error) => Err(format!("it failed during the run: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(at: u64, calls: Result<Calls, String>) -> Figures {
        Figures { at, cpu: at / 2, switches: at / 1000, processes: 2, resident_bytes: 5000, calls }
    }

    #[test]
    fn usage_is_the_difference_of_two_readings() {
        let begin = figures(1_000_000_000, Ok(Calls { read: 10, write: 20 }));
        let end = figures(3_000_000_000, Ok(Calls { read: 15, write: 40 }));
        let found = usage(&begin, &end, 9000);
        assert_eq!((found.seconds, found.cpu_seconds, found.switches), (2.0, 1.0, 2_000_000));
        assert_eq!((found.read_calls, found.write_calls), (Some(5), Some(20)));
        assert_eq!((found.resident_bytes, found.peak_resident_bytes), (5000, 9000));
        assert_eq!(found.unavailable, Vec::<String>::new());
        let hidden = figures(3_000_000_000, Err("no permission".into()));
        let found = usage(&begin, &hidden, 0);
        assert_eq!((found.read_calls, found.unavailable), (None, vec!["no permission".into()]));
        assert_eq!(usage(&end, &begin, 0).cpu_seconds, 0.0, "a reading went backwards");
    }
}
