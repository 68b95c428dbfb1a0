//! A server of a comparison as data: what it is, and how it is started.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use annulus_load::ServerAddress;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::installed::{self, Module};
use super::recipe::{Place, Recipe};
use super::words::{self, Word, filled, has};
use crate::peer::Peers;
use crate::process::Spec;

/// What may stand in braces in the command line of a server, and in its configuration.
const WORDS: [&str; 8] =
    ["port", "dir", "scratch", "configuration", "module", "site", "target", "service"];

/// How long each address of a host that has several may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// The start of the address of a Unix socket.
pub(super) const UNIX: &str = "unix:";

/// A server. In a file it has a `command`, which is started, or the `address` of one that runs already, and maybe a `name`.
///
/// Words in braces, in the command and in its configuration, are replaced when a process starts: `{port}`, a free port; `{dir}`, a
/// directory of its own; `{configuration}`, the path of the file that the key `configuration` names, copied and filled;
/// `{site}`, the directory of the files to serve; `{target}`, the address of an echo server, for proxies; `{service}`, what it is to
/// speak; `{module}`, the path of the library that the key `module` names. Of a command without `{port}`, the key `port` says where it
/// listens; otherwise what its processes listen on is looked up. `ready` is a text that one of its outputs has before it is ready.
/// `variables` are set for it. Of a `peer`, the program is one that the script of that peer builds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Contender {
    /// Its name: the one that is given, or that of the program, or the address.
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
    /// The words of its command.
    #[serde(skip)]
    words: Vec<String>,
    /// Where it is, if it runs already.
    #[serde(skip)]
    running: Option<ServerAddress>,
}

/// Whether a text is written as an address: a host and a port, or the path of a Unix socket.
fn is_address(text: &str) -> bool {
    let is_port = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
    let is_inet = !text.contains([' ', '/']) && text.rsplit_once(':').is_some_and(is_port);
    is_inet || text.starts_with(UNIX)
}

fn resolved(text: &str) -> Result<ServerAddress> {
    ensure!(
        is_address(text),
        "address '{text}': write HOST:PORT, such as 127.0.0.1:8080, or unix:/path"
    );
    if text.starts_with(UNIX) {
        let address: ServerAddress = text.parse()?;
        return address.validate().map(|()| address).with_context(|| format!("address '{text}'"));
    }
    let found = text.to_socket_addrs().with_context(|| format!("address '{text}'"))?;
    let found: Vec<SocketAddr> = found.collect();
    // A server on localhost may listen at one of its addresses only.
    let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, PATIENCE).is_ok();
    let several = found.len() > 1;
    let address = found.iter().find(|address| !several || answers(address)).or(found.first());
    Ok((*address.with_context(|| format!("address '{text}': the host has none"))?).into())
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

    /// The server, if its keys go together.
    pub(super) fn checked(mut self) -> Result<Contender> {
        match (&self.command, &self.address) {
            (Some(line), None) => {
                self.words = words::split(line)?;
                words::check(&self.words, &WORDS)?;
                ensure!(
                    self.configuration.is_some() || !has(&self.words, "configuration"),
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
                self.running = Some(resolved(address)?);
            }
            (Some(_), Some(_)) => bail!("command and address are two servers: leave one out"),
            (None, None) => bail!("a server has a command or an address"),
        }
        let usual = || match &self.running {
            Some(address) => address.to_string(),
            None => {
                let name = Path::new(&self.words[0]).file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            }
        };
        self.name = self.named.clone().unwrap_or_else(usual);
        ensure!(!self.name.trim().is_empty(), "name '{}': write one that is not empty", self.name);
        Ok(self)
    }

    /// Whether it is a command line, and not one that runs already.
    pub fn is_started(&self) -> bool {
        self.running.is_none()
    }

    /// Whether it is a command line without `{port}`, so that its port may be set.
    pub fn has_own_port(&self) -> bool {
        self.is_started() && !has(&self.words, "port")
    }

    /// Whether it runs elsewhere than at 127.0.0.1, or at another address of this machine.
    pub(super) fn is_remote(&self) -> bool {
        self.running.as_ref().is_some_and(|address| match address {
            ServerAddress::Inet(address) => address.ip() != Ipv4Addr::LOCALHOST,
            ServerAddress::Unix(_) => true,
        })
    }

    /// How to install it, if it is a program that is not installed.
    pub(super) fn missing(&self) -> Option<String> {
        let is_installed = self.is_started() && self.peer.is_none();
        is_installed.then(|| installed::find(&self.words[0]).err())?
    }

    /// How to start it on a core, or why it is missing. A peer is built first.
    ///
    /// # Errors
    /// If a peer does not build.
    pub(super) fn prepare(
        &self,
        peers: Option<&Peers>,
        core: Option<usize>,
    ) -> Result<Result<Recipe, String>> {
        if let Some(address) = &self.running {
            let spec = Spec::of(&self.name, address.to_string());
            return Ok(Ok(Recipe::new(spec, Place::Running(address.clone()))));
        }
        let (words, variables) = (&self.words, self.variables.iter());
        let variables = variables.map(|(name, value)| (name.into(), value.into())).collect();
        let spec = |program: PathBuf| Spec {
            arguments: words[1..].iter().map(Into::into).collect(),
            variables,
            pin: core,
            ..Spec::of(&self.name, program)
        };
        if let Some(peer) = &self.peer {
            let built = Peers::prepare(peers, peer, |directory| spec(directory.join(&words[0])))?;
            return Ok(built.map(|spec| Recipe::new(spec, Place::Announced)));
        }
        let found = installed::find(&words[0]).and_then(|path| {
            let configuration = self.read(peers)?;
            let text = configuration.as_ref().map_or("", |(_, text)| text);
            let is_told = has(words, "port") || has(&[text], "port");
            let place = match self.port {
                _ if is_told => Place::Told,
                Some(port) => Place::Fixed(port),
                None => Place::LookedUp,
            };
            let ready = self.ready.clone();
            Ok(Recipe { ready, configuration, ..Recipe::new(spec(path), place) })
        });
        Ok(found.map_err(|why| format!("server {} is left out: {why}", self.name)))
    }

    /// The name and the text of the configuration, with the path of the module.
    fn read(&self, peers: Option<&Peers>) -> Result<Option<(PathBuf, String)>, String> {
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
        let module: Option<Word> = module.map(|path| ("module", path.display().to_string()));
        Ok(Some((file.clone(), filled(&text, module.as_slice()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name may have several addresses, of which a server listens at one.
    #[test]
    fn of_the_addresses_of_a_host_the_one_that_answers_is_taken() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let found = resolved(&format!("localhost:{}", address.port())).expect("an address");
        assert_eq!(found, address.into());
    }
    use crate::server_bench::Comparison;

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
    fn the_configurations_here_are_filled() {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
        for contender in Comparison::names()
            .flat_map(|name| Comparison::find(name).expect("it exists").contenders)
        {
            let Contender { configuration: Some(file), words, .. } = &contender else { continue };
            let text = fs::read_to_string(peers.join(file)).expect("a file beside the peers");
            words::check(std::slice::from_ref(&text), &WORDS)
                .unwrap_or_else(|why| panic!("{}: {why}", file.display()));
            assert!(has(&[text], "port") && has(words, "configuration"), "{}", contender.name);
        }
    }

    #[test]
    fn outside_the_repository_servers_are_missing() {
        for contender in Comparison::find("files").expect("it exists").contenders {
            let missing = contender.prepare(None, None).expect("no failure").expect_err("missing");
            assert!(missing.contains(" is left out: "), "{missing}");
        }
    }
}
