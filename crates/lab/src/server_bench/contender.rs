//! A server of a comparison: what it is, and how a process of it is started.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Result;

use super::fixture::{Fixture, Word, filled};
use super::installed::{Installed, Module};
use crate::peer::Peers;
use crate::process::{ProcessError, Spec};
use crate::server::{Server, one_line};

/// A server: a program, with its configuration. Words in braces, in its arguments and in that file, are replaced when a process
/// starts: `{SERVICE}`, what it is to speak; `{SITE}`, the directory of the files to serve; `{TARGET}`, the address that a proxy leads
/// to. For installed programs also `{PORT}`; `{SCRATCH}`, a directory of its own; `{CONFIGURATION}`, the path of the file; `{MODULE}`,
/// that of the module.
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
    /// An installed one, which listens on the port that it is given.
    Installed {
        program: Installed,
        module: Option<Module>,
        /// A file beside the peers.
        configuration: Option<&'static str>,
    },
}

/// How to start the processes of a server.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    /// The program, with arguments in which words are still to be replaced.
    pub(super) spec: Spec,
    /// Whether it announces its address, or is told where to listen.
    announces: bool,
    /// The name and the text of its configuration, in which words are still to be replaced.
    configuration: Option<(&'static str, String)>,
}

impl Contender {
    /// How to start it on a core, or why it is missing. A peer is built first.
    ///
    /// # Errors
    /// If a peer does not build.
    pub(super) fn prepare(
        &self,
        peers: Option<&Peers>,
        core: Option<usize>,
    ) -> Result<Result<Recipe, String>> {
        let variables = self.variable.iter().map(|(name, value)| (name.into(), value.into()));
        let spec = |program: PathBuf| Spec {
            arguments: self.arguments.iter().map(Into::into).collect(),
            variables: variables.collect(),
            pin: core,
            ..Spec::of(self.name, program)
        };
        match self.program {
            Program::Peer(peer, program) => {
                let built = Peers::prepare(peers, peer, |directory| spec(directory.join(program)))?;
                Ok(built.map(|spec| Recipe { spec, announces: true, configuration: None }))
            }
            Program::Installed { program, module, configuration } => {
                let found = program.find().and_then(|path| {
                    let read = |file| read(file, module, peers);
                    let configuration = configuration.map(read).transpose()?;
                    Ok(Recipe { spec: spec(path), announces: false, configuration })
                });
                Ok(found.map_err(|why| format!("server {} is left out: {why}", self.name)))
            }
        }
    }
}

/// The name and the text of a configuration, with the path of the module.
fn read(
    file: &'static str,
    module: Option<Module>,
    peers: Option<&Peers>,
) -> Result<(&'static str, String), String> {
    let peers = peers.ok_or("its configuration lies in the repository: run it there")?;
    let text = peers.read(file).map_err(|error| format!("{error:#}"))?;
    let module = module.map(|module| module.find()).transpose()?;
    let module: Option<Word> = module.map(|path| ("MODULE", path.into()));
    Ok((file, filled(&text, module.as_slice())))
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
        if self.announces {
            return Server::start(&self.filled(&words));
        }
        let error = |why: io::Error| ProcessError {
            name: self.spec.name.clone(),
            why: format!("cannot prepare its start: {}", one_line(why)),
        };
        let address = unused().map_err(error)?;
        words.extend(self.place(address, fixture, &words).map_err(error)?);
        Server::start_at(&self.filled(&words), address)
    }

    /// Makes a directory for a process that is to listen there, and writes its configuration; what it is told of them.
    fn place(
        &self,
        address: SocketAddr,
        fixture: &mut Fixture,
        words: &[Word],
    ) -> io::Result<Vec<Word>> {
        let scratch = fixture.directory()?;
        let mut place = vec![("PORT", address.port().to_string()), ("SCRATCH", scratch.clone())];
        if let Some((file, text)) = &self.configuration {
            let name = Path::new(file).file_name().unwrap_or_default();
            let path = format!("{scratch}/{}", name.display());
            fs::write(&path, filled(&filled(text, words), &place))?;
            place.push(("CONFIGURATION", path));
        }
        Ok(place)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_bench::COMPARISONS;

    /// What may stand in braces.
    const WORDS: [&str; 7] =
        ["SERVICE", "SITE", "TARGET", "PORT", "SCRATCH", "CONFIGURATION", "MODULE"];

    /// What stands in braces in a text, in capitals.
    fn words(text: &str) -> Vec<&str> {
        let after = text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
        let is_word =
            |word: &&str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase());
        after.filter(is_word).collect()
    }

    #[test]
    fn only_known_words_are_to_be_replaced() {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers");
        for contender in COMPARISONS.iter().flat_map(|comparison| comparison.contenders) {
            let mut text = contender.arguments.join(" ");
            if let Program::Installed { configuration, .. } = &contender.program {
                let file = configuration.map(|file| fs::read_to_string(peers.join(file)));
                text += &file.transpose().expect("a file beside the peers").unwrap_or_default();
                assert!(words(&text).contains(&"PORT"), "{}", contender.name);
            }
            let unknown: Vec<_> =
                words(&text).into_iter().filter(|word| !WORDS.contains(word)).collect();
            assert_eq!(unknown, [""; 0], "{}", contender.name);
        }
    }

    #[test]
    fn outside_the_repository_servers_are_missing() {
        let comparison = &COMPARISONS[2];
        for contender in comparison.contenders {
            let missing = contender.prepare(None, None).expect("no failure").expect_err("missing");
            assert!(missing.contains(" is left out: "), "{missing}");
        }
    }
}
