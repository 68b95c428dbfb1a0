//! A server of a comparison: what it is, and how a process of it is started.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Result;

use super::fixture::{Fixture, Word, filled};
use super::installed::{Installed, Module};
use crate::cores::Cores;
use crate::peer::Peers;
use crate::process::{ProcessError, Spec};
use crate::server::{Server, one_line};

/// A server: a program, with its configuration. Words in braces, in its arguments and in that file, are replaced when a process
/// starts: see [`Fixture::words`]; for installed programs also `{PORT}` and `{SCRATCH}`, a directory of its own; `{CONFIGURATION}`, the
/// path of the file; `{MODULE}`, that of the module.
#[derive(Debug)]
pub struct Contender {
    /// Its name.
    pub name: &'static str,
    pub(super) program: Program,
    pub(super) arguments: &'static [&'static str],
    /// An environment variable that is set for it.
    pub(super) variable: Option<(&'static str, &'static str)>,
}

/// The program of a server.
#[derive(Debug)]
pub(super) enum Program {
    /// Of the programs that the script of a peer builds, the one with this name. It picks a free port, and announces it.
    Peer(&'static str, &'static str),
    /// An installed one, which listens on the port that it is given. Its configuration lies beside the peers.
    Installed(Installed, Option<Module>, &'static str),
}

/// How to start the processes of a server.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    /// The program, with arguments in which words are still to be replaced.
    pub(super) spec: Spec,
    /// The name and the text of the configuration of a program that listens where it is told.
    configuration: Option<(&'static str, String)>,
}

impl Contender {
    /// How to start it, or why it is missing. A peer is built first.
    ///
    /// # Errors
    /// If a peer does not build, or a configuration cannot be read.
    pub(super) fn prepare(
        &self,
        peers: Option<&Peers>,
        cores: Cores,
    ) -> Result<Result<Recipe, String>> {
        let spec = |program: PathBuf| Spec {
            arguments: self.arguments.iter().map(Into::into).collect(),
            variables: self
                .variable
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            pin: Some(cores.server),
            ..Spec::of(self.name, program)
        };
        match self.program {
            Program::Peer(peer, program) => {
                let built = Peers::prepare(peers, peer, |directory| spec(directory.join(program)))?;
                Ok(built.map(|spec| Recipe { spec, configuration: None }))
            }
            Program::Installed(installed, module, file) => {
                let found = installed.find().and_then(|path| {
                    let module = module.map(|module| module.find()).transpose()?;
                    let peers = peers.ok_or("its configuration lies in the repository")?;
                    Ok((path, module.unwrap_or_default(), peers))
                });
                let (path, module, peers) = match found {
                    Ok(found) => found,
                    Err(why) => return Ok(Err(format!("server {} is left out: {why}", self.name))),
                };
                let text = filled(&peers.read(file)?, &[("MODULE", module.into())]);
                Ok(Ok(Recipe { spec: spec(path), configuration: Some((file, text)) }))
            }
        }
    }
}

impl Recipe {
    /// The same under another name.
    pub(super) fn named(&self, spec: &Spec) -> Recipe {
        Recipe { spec: spec.clone(), ..self.clone() }
    }

    /// Starts a process that speaks this, and waits until it listens.
    ///
    /// # Errors
    /// If it does not start.
    pub(super) fn start(
        &self,
        service: &str,
        fixture: &mut Fixture,
    ) -> Result<Server, ProcessError> {
        let mut words = fixture.words(service);
        let Some((file, text)) = &self.configuration else {
            return Server::start(&self.filled(&words));
        };
        let error = |why: io::Error| ProcessError {
            name: self.spec.name.clone(),
            why: format!("cannot prepare its start: {}", one_line(why)),
        };
        let address = unused().map_err(error)?;
        let scratch = fixture.directory().map_err(error)?;
        let path =
            format!("{scratch}/{}", Path::new(file).file_name().unwrap_or_default().display());
        words.extend([("PORT", address.port().to_string()), ("SCRATCH", scratch)]);
        fs::write(&path, filled(text, &words)).map_err(error)?;
        words.push(("CONFIGURATION", path));
        Server::start_at(&self.filled(&words), address)
    }

    fn filled(&self, words: &[Word]) -> Spec {
        let fill = |argument: &OsString| filled(&argument.to_string_lossy(), words).into();
        Spec { arguments: self.spec.arguments.iter().map(fill).collect(), ..self.spec.clone() }
    }
}

/// A port on which nothing listens.
fn unused() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}
