//! A running contender.

use std::ffi::OsString;
use std::net::TcpListener;
use std::time::Duration;
use std::{fs, io};

use annulus_load::ServerAddress;

use super::fixture::Fixture;
use crate::bench::Outcome;
use crate::describe::{Contender, Job, Place, Placeholder, filled};
use crate::jobs::Pipes;
use crate::listening;
use crate::proc::Memory;
use crate::process::{Process, ProcessError, Spec};
use crate::ready::{Ready, check_free};
use crate::server::Server;
use crate::usage_error::one_line;

/// A running contender. It is ended when dropped, unless it already ran before.
#[derive(Debug)]
pub(crate) struct Running {
    process: Option<Process>,
    pipes: Option<Pipes>,
    /// Its address, if it does not read jobs.
    pub(crate) address: Option<ServerAddress>,
    /// The first process of the contender, if known.
    pub(crate) pid: Option<u32>,
}

/// Starts a contender for a service, and waits until it is ready. The timeout does not apply to a
/// contender that announces its address or reads jobs.
pub(crate) fn start(
    contender: &Contender,
    service: &str,
    timeout: Duration,
    fixture: &mut Fixture,
) -> Result<Running, ProcessError> {
    let place = contender.place();
    if let Place::Running(address) = place {
        let pid = listening::owner_of(&address);
        return Ok(Running { process: None, pipes: None, address: Some(address), pid });
    }
    let error = |why| ProcessError { name: contender.name.clone(), why };
    let words = words(contender, &place, service, fixture)
        .map_err(|why| error(format!("cannot prepare its start: {}", one_line(why))))?;
    let fill = |argument: &OsString| filled(&argument.to_string_lossy(), &words).into();
    let arguments = contender.spec.arguments.iter().map(fill).collect();
    let spec = Spec { arguments, ..contender.spec.clone() };
    let ready = |port| Ready { port, line: contender.ready.clone(), timeout }.start(&spec);
    let server = match place {
        Place::Pipes => {
            let (process, jobs, answers) = Process::start_piped(&spec)?;
            let (pid, pipes) = (None, Some(Pipes::new(jobs, answers)));
            return Ok(Running { process: Some(process), pipes, address: None, pid });
        }
        Place::Announced => Server::start(&spec)?,
        Place::Fixed(port) => {
            check_free(port).map_err(error)?;
            ready(Some(port))?
        }
        _ => ready(port(&words))?,
    };
    let Server { process, address } = server;
    let (pid, process) = (Some(process.pid()), Some(process));
    Ok(Running { process, pipes: None, address: Some(address), pid })
}

/// Returns the values of placeholders. Creates the directory and writes the configuration, if the
/// contender needs them.
fn words(
    contender: &Contender,
    place: &Place,
    service: &str,
    fixture: &mut Fixture,
) -> io::Result<Vec<Placeholder>> {
    let mut words = fixture.words(service);
    if *place == Place::Given {
        words.push(("port", unused()?.to_string()));
    }
    if !contender.needs_directory() {
        return Ok(words);
    }
    let directory = fixture.directory()?;
    words.extend([("dir", directory.clone()), ("scratch", directory.clone())]);
    if let Some((name, text)) = contender.filled_configuration(&words) {
        let path = format!("{directory}/{}", name.display());
        fs::write(&path, text)?;
        words.push(("configuration", path));
    }
    Ok(words)
}

impl Running {
    /// Sends a job to a contender that reads jobs, and returns the answer.
    pub(crate) fn ask(&mut self, job: &Job) -> Outcome {
        let (Some(process), Some(pipes)) = (&mut self.process, &mut self.pipes) else {
            return Err("it reads no jobs".into());
        };
        pipes.ask(process, (&job.line, job.timeout, job.required)).map_err(|error| error.why)
    }

    /// Returns the outcome of a slice. If the process has ended, returns that as the error instead,
    /// because it explains the failure.
    pub(crate) fn outcome(&mut self, measured: Outcome) -> Outcome {
        /// How long to wait for the end of a process after a failed slice.
        const END_WAIT: Duration = Duration::from_millis(200);
        let Some(process) = &mut self.process else { return measured };
        let wait = if measured.is_ok() { Duration::ZERO } else { END_WAIT };
        match self.pipes {
            // The error of a failed job already says that the process has ended.
            Some(_) => measured,
            None => process.check(wait).map_err(|error| error.why).and(measured),
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.ended(Duration::ZERO).is_some())
    }

    pub(crate) fn memory(&self) -> Option<Memory> {
        Memory::of_tree(self.pid?).ok()
    }
}

/// Returns the value of `{port}`.
fn port(words: &[Placeholder]) -> Option<u16> {
    words.iter().find(|(name, _)| *name == "port").and_then(|(_, port)| port.parse().ok())
}

/// Returns a port that is free now.
fn unused() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
