//! How a server is started, and one that runs.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use annulus_load::ServerAddress;

use super::fixture::Fixture;
use super::words::{Word, filled, has};
use crate::bench::Outcome;
use crate::listening;
use crate::proc::Memory;
use crate::process::{ProcessError, Spec};
use crate::ready::{Ready, check_free};
use crate::server::{START_TIMEOUT, Server, one_line};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It says where, in a line with `listening on`.
    Announced,
    /// On the port that it is told.
    Told,
    /// On this port, always.
    Fixed(u16),
    /// On a port that is looked up among the sockets of its processes.
    LookedUp,
    /// It runs already.
    Running(ServerAddress),
}

/// How to start the processes of a server.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    /// The program, with arguments in which words are still to be replaced.
    pub(super) spec: Spec,
    pub(super) place: Place,
    /// A text that one of its outputs has before it is ready.
    pub(super) ready: Option<String>,
    /// How long it may take to be ready.
    pub(super) timeout: Duration,
    /// The name and the text of its configuration, in which words are still to be replaced.
    pub(super) configuration: Option<(PathBuf, String)>,
}

/// A server that runs.
#[derive(Debug)]
pub(super) struct Live {
    /// Its process, if it was started here.
    server: Option<Server>,
    /// `HOST:PORT`, or `unix:/path`.
    pub(super) address: String,
    /// Its first process, if that is visible.
    pub(super) pid: Option<u32>,
}

impl Recipe {
    pub(super) fn new(spec: Spec, place: Place) -> Recipe {
        Recipe { spec, place, ready: None, timeout: START_TIMEOUT, configuration: None }
    }

    /// The same under another name.
    pub(super) fn named(&self, spec: &Spec) -> Recipe {
        Recipe { spec: spec.clone(), ..self.clone() }
    }

    /// Whether several processes of it can run at once: not of one that listens where it always does.
    pub(super) fn can_run_twice(&self) -> bool {
        matches!(self.place, Place::Announced | Place::Told)
    }

    /// Whether CPU time and memory are those of a process that is visible here; an address of another machine, or of another user's
    /// process, is not.
    pub(super) fn is_visible(&self) -> bool {
        match &self.place {
            Place::Running(address) => listening::owner_of(address).is_some(),
            _ => true,
        }
    }

    /// Whether it has this in braces.
    pub(super) fn needs(&self, word: &str) -> bool {
        let arguments: Vec<_> =
            self.spec.arguments.iter().map(|one| one.to_string_lossy()).collect();
        let text = self.configuration.as_ref().map_or("", |(_, text)| text);
        has(&arguments, word) || has(&[text], word)
    }

    /// Starts a process that speaks this, and waits until it is ready.
    ///
    /// # Errors
    /// If it does not start, or is not ready in time.
    pub(super) fn start(&self, service: &str, fixture: &mut Fixture) -> Result<Live, ProcessError> {
        if let Place::Running(address) = &self.place {
            let pid = listening::owner_of(address);
            return Ok(Live { server: None, address: address.to_string(), pid });
        }
        let mut words = fixture.words(service);
        self.prepare(fixture, &mut words)
            .map_err(|why| self.error(format!("cannot prepare its start: {}", one_line(why))))?;
        let spec = self.filled(&words);
        let server = match self.place {
            Place::Announced => Server::start(&spec)?,
            Place::Told | Place::LookedUp | Place::Running(_) => {
                self.ready(port(&words)).start(&spec)?
            }
            Place::Fixed(port) => {
                check_free(port).map_err(|why| self.error(why))?;
                self.ready(Some(port)).start(&spec)?
            }
        };
        let (address, pid) = (server.address.to_string(), Some(server.process.pid()));
        Ok(Live { server: Some(server), address, pid })
    }

    fn error(&self, why: String) -> ProcessError {
        ProcessError { name: self.spec.name.clone(), why }
    }

    fn ready(&self, port: Option<u16>) -> Ready {
        Ready { port, line: self.ready.clone(), timeout: self.timeout }
    }

    /// Chooses a port, if it is told one, makes its directory, and writes its configuration.
    fn prepare(&self, fixture: &mut Fixture, words: &mut Vec<Word>) -> io::Result<()> {
        if self.place == Place::Told {
            words.push(("port", unused()?.to_string()));
        }
        if self.configuration.is_none() && !self.needs("dir") && !self.needs("scratch") {
            return Ok(());
        }
        let directory = fixture.directory()?;
        words.extend([("dir", directory.clone()), ("scratch", directory.clone())]);
        if let Some((file, text)) = &self.configuration {
            let path = format!("{directory}/{}", file.file_name().unwrap_or_default().display());
            fs::write(&path, filled(text, words))?;
            words.push(("configuration", path));
        }
        Ok(())
    }

    fn filled(&self, words: &[Word]) -> Spec {
        let fill = |argument: &OsString| filled(&argument.to_string_lossy(), words).into();
        Spec { arguments: self.spec.arguments.iter().map(fill).collect(), ..self.spec.clone() }
    }
}

impl Live {
    /// What a load has measured, unless the server has ended.
    pub(super) fn outcome(&mut self, measured: Outcome) -> Outcome {
        match &mut self.server {
            Some(server) => server.outcome(measured),
            None => measured,
        }
    }

    /// Whether its process has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        let server = self.server.as_mut();
        server.is_some_and(|server| server.process.ended(Duration::ZERO).is_some())
    }

    /// The memory of its processes, if they are visible.
    pub(super) fn memory(&self) -> Option<Memory> {
        Memory::of_tree(self.pid?).ok()
    }
}

/// The port that a server is told.
fn port(words: &[Word]) -> Option<u16> {
    words.iter().find(|(name, _)| *name == "port").and_then(|(_, port)| port.parse().ok())
}

/// A port on which nothing listens.
fn unused() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
