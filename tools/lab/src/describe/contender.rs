//! A contender as data: what it is, and how it is started.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use annulus_load::{Endpoint, ServerAddress};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::installed::{self, Module};
use super::placeholders::{self, Placeholder, filled, has};
use crate::listening;
use crate::peer::Peers;
use crate::process::Spec;

/// The words that may stand in braces in the command line of a contender, and in its configuration.
const CONTENDER_PLACEHOLDERS: [&str; 8] =
    ["port", "dir", "scratch", "configuration", "module", "site", "target", "service"];

/// The start of the address of a Unix socket.
pub(super) const UNIX_PREFIX: &str = "unix:";

/// A contender: a server under clients, or a program that answers jobs. In a file it has a `command`, which is started, or the `address` of one
/// that runs already, and maybe a `name`.
///
/// Words in braces, in the command and in its configuration, are replaced when a process starts: `{port}`, a free port; `{dir}`, a
/// directory of its own; `{configuration}`, the path of the file that the key `configuration` names, copied and filled;
/// `{site}`, the directory of the files to serve; `{target}`, the address of an echo server, for proxies; `{service}`, the protocol to
/// speak; `{module}`, the path of the library that the key `module` names. For a command without `{port}`, the key `port` says where it
/// listens; otherwise what its processes listen on is looked up. `ready` is a text that one of its outputs has before it is ready.
/// `variables` are set for it. If there is a `peer`, the program is one that its script builds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Contender {
    /// The name: the one that is given, or that of the program, or the address.
    #[serde(skip)]
    pub name: String,
    #[serde(rename = "name")]
    named: Option<String>,
    command: Option<String>,
    address: Option<String>,
    peer: Option<String>,
    variables: BTreeMap<String, String>,
    configuration: Option<PathBuf>,
    /// The directory of the configuration; the peers' if there is none.
    #[serde(skip)]
    pub(super) directory: Option<PathBuf>,
    module: Option<Module>,
    /// A text that one of its outputs has before it is ready.
    pub ready: Option<String>,
    /// The port on which it listens.
    pub port: Option<u16>,
    #[serde(skip)]
    program: Program,
    /// The arguments that follow the program in the command line.
    #[serde(skip)]
    arguments: Vec<String>,
    /// Whether it reads jobs, instead of listening.
    #[serde(skip)]
    answers_jobs: bool,
    /// How it is started, once it is [prepared](Contender::prepare); `text` is its configuration.
    #[serde(skip)]
    pub(crate) spec: Spec,
    #[serde(skip)]
    pub(crate) text: Option<String>,
}

/// The program that is run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Program {
    /// This program.
    Own,
    /// The program that the script of a peer builds; if the script builds a directory of programs, the one with this name.
    Peer(String, Option<String>),
    /// A program that is installed, or the path of one.
    Installed(String),
    /// It runs already.
    Running(ServerAddress),
}

impl Default for Program {
    fn default() -> Program {
        Program::Installed(String::new())
    }
}

/// Where a contender is found once it has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At its standard input and output.
    Pipes,
    /// It says where, in a line with `listening on`.
    Announced,
    /// On the port that it is given as `{port}`.
    Given,
    /// On this port, always.
    Fixed(u16),
    /// On a port that is looked up among the sockets of its processes.
    LookedUp,
    /// It runs already.
    Running(ServerAddress),
}

/// Whether a text is written as an address: a host and a port, or the path of a Unix socket.
fn is_address(text: &str) -> bool {
    text.starts_with(UNIX_PREFIX) || text.parse::<Endpoint>().is_ok()
}

fn resolved(text: &str) -> Result<ServerAddress> {
    let endpoint = text.parse::<Endpoint>().map_err(anyhow::Error::msg);
    let endpoint = endpoint.with_context(|| format!("address '{text}'"))?;
    ensure!(endpoint.is_stream(), "address '{text}': write HOST:PORT or unix:/path");
    Ok(endpoint.server()?)
}

impl Contender {
    /// A server as the command line has it: the address of one that runs, or a command line that starts it.
    ///
    /// # Errors
    /// If the text is neither, or has a word in braces that is not known.
    pub fn of_text(text: &str) -> Result<Contender> {
        if text.contains("://") && !text.contains(' ') {
            bail!("'{text}' is no server: give its address, HOST:PORT, and the URL as the load");
        }
        let text = Some(text.to_owned());
        let (command, address) = if is_address(text.as_deref().unwrap_or_default()) {
            (None, text)
        } else {
            (text, None)
        };
        Contender { command, address, ..Contender::default() }.checked()
    }

    /// This program with these arguments, which announces where it listens.
    pub(crate) fn own(name: &str, arguments: Vec<String>) -> Contender {
        Contender { name: name.into(), program: Program::Own, arguments, ..Contender::default() }
    }

    /// A peer with these arguments, which announces where it listens.
    pub(crate) fn peer(name: &str, peer: &str, arguments: Vec<String>) -> Contender {
        let program = Program::Peer(peer.into(), None);
        Contender { name: name.into(), program, arguments, ..Contender::default() }
    }

    /// The same, but it reads jobs instead of listening.
    pub(crate) fn answering_jobs(self) -> Contender {
        Contender { answers_jobs: true, ..self }
    }

    /// The contender, if its keys go together.
    pub(super) fn checked(mut self) -> Result<Contender> {
        match (&self.command, &self.address) {
            (Some(line), None) => {
                let mut words = placeholders::split(line)?;
                placeholders::check(&words, &CONTENDER_PLACEHOLDERS)?;
                let program = words.remove(0);
                self.arguments = words;
                self.program = match &self.peer {
                    Some(peer) => Program::Peer(peer.clone(), Some(program)),
                    None => Program::Installed(program),
                };
                ensure!(
                    self.configuration.is_some() || !has(&self.arguments, "configuration"),
                    "{{configuration}} has no key configuration: name a file"
                );
                ensure!(
                    self.port.is_none() || self.has_own_port(),
                    "port {} and {{port}} are two ports: leave one out",
                    self.port.unwrap_or_default()
                );
            }
            (None, Some(address)) => {
                let Contender { peer, variables, configuration, module, ready, port, .. } = &self;
                let of_files = configuration.is_some() || module.is_some();
                let of_process = ready.is_some() || port.is_some() || !variables.is_empty();
                ensure!(
                    peer.is_none() && !of_files && !of_process,
                    "an address needs nothing but a name"
                );
                self.program = Program::Running(resolved(address)?);
            }
            (Some(_), Some(_)) => bail!("command and address are two servers: leave one out"),
            (None, None) => bail!("a server has a command or an address"),
        }
        let usual = match &self.program {
            Program::Running(address) => address.to_string(),
            Program::Installed(program) | Program::Peer(_, Some(program)) => {
                let name = Path::new(program).file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            }
            Program::Own | Program::Peer(..) => String::new(),
        };
        self.name = self.named.clone().unwrap_or(usual);
        ensure!(!self.name.trim().is_empty(), "name '{}': write one that is not empty", self.name);
        Ok(self)
    }

    /// The words of the command line, in which `program` stands for a program whose path is not known before it is built.
    pub(crate) fn words(&self, program: &str) -> Vec<String> {
        let program = match &self.program {
            Program::Running(address) => address.to_string(),
            Program::Own | Program::Peer(..) | Program::Installed(_) => program.to_owned(),
        };
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value}"));
        variables.chain([program]).chain(self.arguments.iter().cloned()).collect()
    }

    /// The arguments that follow the program in the command line.
    pub(crate) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// The same contender, named and started as `spec` says.
    pub(crate) fn named(&self, spec: &Spec) -> Contender {
        Contender { name: spec.name.clone(), spec: spec.clone(), ..self.clone() }
    }

    /// Whether it is started, and does not run already.
    pub fn is_started(&self) -> bool {
        !matches!(self.program, Program::Running(_))
    }

    /// Whether it is a command line without `{port}`, so that its port may be set.
    pub fn has_own_port(&self) -> bool {
        self.is_started() && !has(&self.arguments, "port")
    }

    /// Whether it runs elsewhere than at 127.0.0.1, or at another address of this machine.
    pub(super) fn is_remote(&self) -> bool {
        match &self.program {
            Program::Running(ServerAddress::Inet(address)) => address.ip() != Ipv4Addr::LOCALHOST,
            Program::Running(ServerAddress::Unix(_)) => true,
            _ => false,
        }
    }

    /// Whether its CPU time and memory can be read: of one that runs already, if it is a process of this user.
    pub(crate) fn is_visible(&self) -> bool {
        match &self.program {
            Program::Running(address) => listening::owner_of(address).is_some(),
            _ => true,
        }
    }

    /// Where it is found once it has started.
    pub(crate) fn place(&self) -> Place {
        match &self.program {
            Program::Running(address) => Place::Running(address.clone()),
            _ if self.answers_jobs => Place::Pipes,
            Program::Own | Program::Peer(..) => Place::Announced,
            Program::Installed(_) if self.needs("port") => Place::Given,
            Program::Installed(_) => self.port.map_or(Place::LookedUp, Place::Fixed),
        }
    }

    /// Whether two instances can run at once: the port is another one each time.
    pub(crate) fn can_run_twice(&self) -> bool {
        matches!(self.place(), Place::Pipes | Place::Announced | Place::Given)
    }

    /// Whether a word in braces stands in its command line or in its configuration.
    pub(crate) fn needs(&self, word: &str) -> bool {
        has(&self.arguments, word) || has(self.text.as_slice(), word)
    }

    /// The path of its configuration, if it has one.
    pub(crate) fn configuration(&self) -> Option<&Path> {
        self.configuration.as_deref()
    }

    /// How to install it, if it is a program that is not installed.
    pub(super) fn missing(&self) -> Option<String> {
        match &self.program {
            Program::Installed(program) => installed::find(program).err(),
            _ => None,
        }
    }

    /// The same, ready to be started on a core, or why it is missing. A peer is built first.
    ///
    /// # Errors
    /// If a peer does not build.
    pub(crate) fn prepare(
        mut self,
        peers: Option<&Peers>,
        core: Option<usize>,
    ) -> Result<Result<Contender, String>> {
        let left_out = |why| format!("server {} is left out: {why}", self.name);
        let program = match &self.program {
            Program::Running(address) => address.to_string().into(),
            Program::Own => env::current_exe().context("cannot find this program to start it")?,
            Program::Peer(peer, file) => match Peers::prepare(peers, peer)? {
                Ok(built) => file.as_ref().map_or(built.clone(), |file| built.join(file)),
                Err(why) => return Ok(Err(why)),
            },
            Program::Installed(program) => {
                match installed::find(program).and_then(|path| Ok((path, self.read(peers)?))) {
                    Ok((path, text)) => {
                        self.text = text;
                        path
                    }
                    Err(why) => return Ok(Err(left_out(why))),
                }
            }
        };
        let variables = self.variables.iter();
        self.spec = Spec {
            arguments: self.arguments.iter().map(Into::into).collect(),
            variables: variables.map(|(name, value)| (name.into(), value.into())).collect(),
            pin: core.filter(|_| self.is_started()),
            ..Spec::of(&self.name, program)
        };
        Ok(Ok(self))
    }

    /// The text of the configuration, with the path of the module.
    fn read(&self, peers: Option<&Peers>) -> Result<Option<String>, String> {
        let Some(file) = &self.configuration else { return Ok(None) };
        let text = match &self.directory {
            Some(directory) => {
                let path = directory.join(file);
                fs::read_to_string(&path)
                    .map_err(|why| format!("cannot read {}: {why}", path.display()))?
            }
            None => {
                let peers =
                    peers.ok_or("its configuration lies in the repository: run it there")?;
                peers.read(&file.to_string_lossy()).map_err(|error| format!("{error:#}"))?
            }
        };
        let module = self.module.as_ref().map(Module::find).transpose()?;
        let module: Option<Placeholder> = module.map(|path| ("module", path.display().to_string()));
        Ok(Some(filled(&text, module.as_slice())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name may have several addresses, of which a server listens at one.
    #[test]
    fn a_host_resolves_to_the_address_that_answers() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let found = resolved(&format!("localhost:{}", address.port())).expect("an address");
        assert_eq!(found, address.into());
    }
    use crate::describe::Description;

    #[test]
    fn a_text_is_an_address_or_a_command() {
        for (text, name, has_own_port) in [
            ("127.0.0.1:8080", "127.0.0.1:8080", false),
            ("[::1]:80", "[::1]:80", false),
            ("unix:/run/a b", "unix:/run/a b", false),
            ("/usr/sbin/nginx -c 'a b'", "nginx", true),
            ("redis-server --port {port}", "redis-server", false),
            ("./serve", "serve", true),
        ] {
            let contender = Contender::of_text(text).expect(text);
            assert_eq!((contender.name.as_str(), contender.has_own_port()), (name, has_own_port));
        }
        for (text, part) in [
            ("http://127.0.0.1:80/", "is no server: give its address"),
            ("a {prot}", "{prot} is not known: there are {port}, {dir}, "),
            ("a -c {configuration}", "{configuration} has no key configuration"),
            ("a 'b", "without an end"),
            ("", "is empty"),
            ("unix:", "has 0 bytes"),
        ] {
            let error = format!("{:#}", Contender::of_text(text).expect_err(text));
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_program_that_is_missing_is_left_out_by_name() {
        let missing = Contender::of_text("no-such-program {port}").expect("a command");
        let why = missing.prepare(None, None).expect("no failure").expect_err("missing");
        let expected = "server no-such-program is left out: no-such-program is not installed";
        assert!(why.starts_with(expected), "{why}");
    }

    /// Every configuration beside the peers has only known words, and the port.
    #[test]
    fn catalogue_configurations_use_only_known_placeholders() {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
        for contender in Description::names()
            .filter_map(|name| Description::find(name)?.comparison())
            .flat_map(|one| one.contenders)
        {
            let Contender { configuration: Some(file), arguments, .. } = &contender else {
                continue;
            };
            let text = fs::read_to_string(peers.join(file)).expect("a file beside the peers");
            placeholders::check(std::slice::from_ref(&text), &CONTENDER_PLACEHOLDERS)
                .unwrap_or_else(|why| panic!("{}: {why}", file.display()));
            assert!(has(&[text], "port") && has(arguments, "configuration"), "{}", contender.name);
        }
    }

    #[test]
    fn outside_the_repository_servers_are_missing() {
        for contender in
            Description::find("files").expect("it exists").comparison().expect("one").contenders
        {
            let missing = contender.prepare(None, None).expect("no failure").expect_err("missing");
            assert!(missing.contains(" is left out: "), "{missing}");
        }
    }
}
