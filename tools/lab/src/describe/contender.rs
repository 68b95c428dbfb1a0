//! A contender as data: its program, and how it is started.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use annulus_load::files::{self, MAX_INPUT_BYTES};
use annulus_load::{Endpoint, ServerAddress};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::installed::{self, Module};
use super::load::Client;
use super::placeholders::{self, Placeholder, filled, has};
use crate::listening;
use crate::peer::Peers;
use crate::process::Spec;

/// The placeholders of a contender's command line.
const COMMAND_PLACEHOLDERS: [&str; 7] =
    ["port", "dir", "scratch", "configuration", "site", "target", "service"];

/// The placeholders of the command line of a peer.
const PEER_PLACEHOLDERS: [&str; 5] = ["dir", "scratch", "site", "target", "service"];

/// The prefix of the address of a Unix socket.
pub(super) const UNIX_PREFIX: &str = "unix:";

/// A contender: a server under clients, or a program that answers jobs. In a file it has a
/// `command`, which is started, or the `address` of a server that is already running, and
/// optionally a `name`.
///
/// Placeholders are replaced before a process starts. In the command and in the configuration:
/// `{port}`, a free port; `{dir}` or `{scratch}`, a directory of its own; `{site}`, the directory
/// of the files to serve; `{target}`, the address of an echo server, for proxies; `{service}`, the
/// protocol to speak. Only in the command: `{configuration}`, the path of a filled copy of the file
/// in the key `configuration`. Only in the configuration: `{module}`, the path of the library in
/// the key `module`.
///
/// With the key `peer`, the script of that peer builds the program, which announces its address.
/// `{port}` and the keys `port`, `ready`, `configuration` and `module` are then refused.
///
/// Without `peer`, if neither the command nor its configuration has `{port}`, the key `port` sets
/// the port on which the server listens; if that key is missing as well, the port is found
/// among the sockets of its processes. With the key `ready`, a server is ready only after one of
/// its outputs contains that text. `variables` are set in its environment.
///
/// With the key `client`, load generators are compared: the command in that key loads this server,
/// and the client's CPU time counts. That command can contain the placeholders of a
/// [`Loads`](super::Loads) command, and `{load}`, the name of the load. The program name `annulus`
/// refers to this program. `parse` says how to read the output of an unknown client.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Contender {
    /// The given name, or else the name of the program, or the address.
    #[serde(skip)]
    pub name: String,
    #[serde(rename = "name")]
    named: Option<String>,
    command: Option<String>,
    address: Option<String>,
    peer: Option<String>,
    variables: BTreeMap<String, String>,
    configuration: Option<PathBuf>,
    /// The directory of the configuration; the directory of the peers if `None`.
    #[serde(skip)]
    pub(super) directory: Option<PathBuf>,
    module: Option<Module>,
    #[serde(rename = "client")]
    client_line: Option<String>,
    parse: Vec<String>,
    /// The load generator that is measured with this server.
    #[serde(skip)]
    pub(crate) client: Option<Client>,
    /// A text that the server must print, on either output, before it is ready. Unused for a peer.
    pub ready: Option<String>,
    /// The fixed port on which the server listens.
    pub port: Option<u16>,
    #[serde(skip)]
    program: Program,
    /// The arguments that follow the program in the command line.
    #[serde(skip)]
    arguments: Vec<String>,
    /// Whether the contender reads jobs instead of listening.
    #[serde(skip)]
    answers_jobs: bool,
    /// How the contender is started. [`prepare`](Contender::prepare) sets this and `template`.
    #[serde(skip)]
    pub(crate) spec: Spec,
    #[serde(skip)]
    template: Option<Template>,
}

/// A configuration before its placeholders are replaced.
#[derive(Clone, Debug)]
struct Template {
    text: String,
    /// The path of the module.
    module: Option<Placeholder>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Program {
    /// This program, `annulus`.
    Own,
    /// The program that the script of a peer builds; if the script builds a directory of programs,
    /// the one with this name.
    Peer(String, Option<String>),
    /// An installed program, or the path of a program.
    Installed(String),
    /// A server that is already running.
    Running(ServerAddress),
}

impl Default for Program {
    fn default() -> Program {
        Program::Installed(String::new())
    }
}

/// How to reach a contender once it has started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At its standard input and output.
    Pipes,
    /// At the address that it prints in a line with `listening on`.
    Announced,
    /// On the port that replaces `{port}`.
    Given,
    /// Always on this port.
    Fixed(u16),
    /// On a port found among the sockets of its processes.
    LookedUp,
    /// A server that is already running.
    Running(ServerAddress),
}

/// Returns true if a text has the form of an address: a host and a port, or the path of a Unix
/// socket.
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
    /// Parses a server of the command line: the address of one that runs, or a command line that
    /// starts it.
    ///
    /// # Errors
    /// If the text is neither, or has an unknown placeholder.
    pub fn of_text(text: &str) -> Result<Contender> {
        if text.contains("://") && !text.contains(' ') {
            bail!(
                "'{text}' is not a server: give its address as HOST:PORT, and the URL as the load"
            );
        }
        let text = Some(text.to_owned());
        let (command, address) = if is_address(text.as_deref().unwrap_or_default()) {
            (None, text)
        } else {
            (text, None)
        };
        Contender { command, address, ..Contender::default() }.checked()
    }

    /// Creates a contender that is this program with these arguments. It announces its address.
    pub(crate) fn own(name: &str, arguments: Vec<String>) -> Contender {
        Contender { name: name.into(), program: Program::Own, arguments, ..Contender::default() }
    }

    /// Creates a contender that is a peer with these arguments. It announces its address.
    pub(crate) fn peer(name: &str, peer: &str, arguments: Vec<String>) -> Contender {
        let program = Program::Peer(peer.into(), None);
        Contender { name: name.into(), program, arguments, ..Contender::default() }
    }

    /// Returns the same contender, reading jobs instead of listening.
    pub(crate) fn answering_jobs(self) -> Contender {
        Contender { answers_jobs: true, ..self }
    }

    /// Returns the contender if the keys in the file are consistent.
    pub(super) fn checked(mut self) -> Result<Contender> {
        match (&self.command, &self.address) {
            (Some(line), None) => {
                let mut words = placeholders::split(line)?;
                let program = words.remove(0);
                self.arguments = words;
                self.check_command(&program)?;
                self.program = match &self.peer {
                    Some(peer) => Program::Peer(peer.clone(), Some(program)),
                    None => Program::Installed(program),
                };
            }
            (None, Some(address)) => {
                let Contender { peer, variables, configuration, module, ready, port, .. } = &self;
                let of_files = configuration.is_some() || module.is_some();
                ensure!(
                    self.client_line.is_none(),
                    "client needs a command, because each client has its own process of the server"
                );
                let of_process = ready.is_some() || port.is_some() || !variables.is_empty();
                ensure!(
                    peer.is_none() && !of_files && !of_process,
                    "a server with an address may have no other key than name: remove the other keys"
                );
                self.program = Program::Running(resolved(address)?);
            }
            (Some(_), Some(_)) => bail!("command and address are both set: remove one"),
            (None, None) => bail!("a server needs a command or an address"),
        }
        self.client = match &self.client_line {
            Some(line) => Some(Client::of_contender(line, &self.parse)?),
            None => {
                ensure!(self.parse.is_empty(), "parse has no client: set the key client");
                None
            }
        };
        let usual = match &self.program {
            Program::Running(address) => address.to_string(),
            Program::Installed(program) | Program::Peer(_, Some(program)) => {
                let name = Path::new(program).file_name().unwrap_or_default();
                name.to_string_lossy().into_owned()
            }
            Program::Own | Program::Peer(..) => String::new(),
        };
        self.name = self.named.clone().unwrap_or(usual);
        ensure!(
            !self.name.trim().is_empty(),
            "name '{}' is empty: write a name, or remove the key",
            self.name
        );
        Ok(self)
    }

    /// Refuses keys without effect, and placeholders that would not be replaced.
    fn check_command(&self, program: &str) -> Result<()> {
        let Contender { arguments, configuration, module, ready, port, .. } = self;
        if let Some(name) = placeholders::names(program).next() {
            bail!(
                "{{{name}}} in the program '{program}' is not replaced: write the program's name or path"
            );
        }
        if let Some(peer) = &self.peer {
            let keys = [
                ("configuration", configuration.is_some()),
                ("module", module.is_some()),
                ("ready", ready.is_some()),
                ("port", port.is_some()),
            ];
            if let Some((key, _)) = keys.iter().find(|(_, is_set)| *is_set) {
                bail!(
                    "{key} has no effect with peer '{peer}', whose program announces its address: remove {key}"
                );
            }
            ensure!(
                !has(arguments, "port"),
                "{{port}} has no effect with peer '{peer}', whose program announces its address: write 0 instead"
            );
            return placeholders::check(arguments, &PEER_PLACEHOLDERS);
        }
        ensure!(
            !has(arguments, "module"),
            "{{module}} is only replaced in a configuration: write it there, or the path of the library here"
        );
        placeholders::check(arguments, &COMMAND_PLACEHOLDERS)?;
        ensure!(
            configuration.is_some() || !has(arguments, "configuration"),
            "{{configuration}} has no file: set the key configuration"
        );
        ensure!(
            configuration.is_some() || module.is_none(),
            "module has no effect without a configuration: set the key configuration, or remove module"
        );
        ensure!(
            port.is_none() || !has(arguments, "port"),
            "port {} and {{port}} both set the port: remove one",
            port.unwrap_or_default()
        );
        Ok(())
    }

    /// Returns the words of the command line. `program` is the path of the program; a contender
    /// that is already running has an address instead.
    pub(crate) fn words(&self, program: &str) -> Vec<String> {
        let program = match &self.program {
            Program::Running(address) => address.to_string(),
            Program::Own | Program::Peer(..) | Program::Installed(_) => program.to_owned(),
        };
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value}"));
        variables.chain([program]).chain(self.arguments.iter().cloned()).collect()
    }

    /// Returns the arguments that follow the program in the command line.
    pub(crate) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    /// Returns the same contender with the name and start of `spec`.
    pub(crate) fn named(&self, spec: &Spec) -> Contender {
        Contender { name: spec.name.clone(), spec: spec.clone(), ..self.clone() }
    }

    /// Returns true if the lab starts the contender, false if it is already running.
    pub fn is_started(&self) -> bool {
        !matches!(self.program, Program::Running(_))
    }

    /// Returns true if the contender is a command line without `{port}`, for which a port can be
    /// set.
    pub fn has_own_port(&self) -> bool {
        self.is_started() && !has(&self.arguments, "port")
    }

    /// Returns true if the contender is already running at a Unix socket or at an address other
    /// than 127.0.0.1.
    pub(super) fn is_remote(&self) -> bool {
        match &self.program {
            Program::Running(ServerAddress::Inet(address)) => address.ip() != Ipv4Addr::LOCALHOST,
            Program::Running(ServerAddress::Unix(_)) => true,
            _ => false,
        }
    }

    /// Returns true if the contender's CPU time and memory can be read. A server that was already
    /// running must belong to this user.
    pub(crate) fn is_visible(&self) -> bool {
        match &self.program {
            Program::Running(address) => listening::owner_of(address).is_some(),
            _ => true,
        }
    }

    /// Returns how to reach the contender once it has started.
    pub(crate) fn place(&self) -> Place {
        match &self.program {
            Program::Running(address) => Place::Running(address.clone()),
            _ if self.answers_jobs => Place::Pipes,
            Program::Own | Program::Peer(..) => Place::Announced,
            Program::Installed(_) if self.needs("port") => Place::Given,
            Program::Installed(_) => self.port.map_or(Place::LookedUp, Place::Fixed),
        }
    }

    /// Returns true if two instances can run at once because each has its own port or pipes.
    pub(crate) fn can_run_twice(&self) -> bool {
        matches!(self.place(), Place::Pipes | Place::Announced | Place::Given)
    }

    /// Returns true if the command line or the configuration contains this placeholder.
    pub(crate) fn needs(&self, word: &str) -> bool {
        let text = self.template.as_ref().map(|template| &template.text);
        has(&self.arguments, word) || has(text.as_slice(), word)
    }

    /// Returns true if each process needs a directory, for its configuration or its own files.
    pub(crate) fn needs_directory(&self) -> bool {
        self.configuration.is_some() || self.needs("dir") || self.needs("scratch")
    }

    /// Returns the file name and the text of the configuration, if there is one, after replacing
    /// its placeholders.
    pub(crate) fn filled_configuration(&self, words: &[Placeholder]) -> Option<(&OsStr, String)> {
        let name = self.configuration.as_ref()?.file_name().unwrap_or_default();
        let Template { text, module } = self.template.as_ref()?;
        let words: Vec<_> = words.iter().chain(module).cloned().collect();
        Some((name, filled(text, &words)))
    }

    /// Returns how to install the contender's program or client, if one of them is missing.
    pub(super) fn missing(&self) -> Option<String> {
        let client = self.client.as_ref().and_then(Client::missing);
        match &self.program {
            Program::Installed(program) => installed::find(program).err().or(client),
            _ => client,
        }
    }

    /// Returns the contender ready to be started, pinned to `core`, or why it is missing. A peer is
    /// built first.
    ///
    /// # Errors
    /// If a peer does not build, or a placeholder in the configuration would not be replaced.
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
                    Ok((path, template)) => {
                        self.template = template;
                        path
                    }
                    Err(why) => return Ok(Err(left_out(why))),
                }
            }
        };
        if let Some(why) = self.client.as_ref().and_then(Client::missing) {
            return Ok(Err(left_out(why)));
        }
        self.check_configuration()?;
        let variables = self.variables.iter();
        self.spec = Spec {
            arguments: self.arguments.iter().map(Into::into).collect(),
            variables: variables.map(|(name, value)| (name.into(), value.into())).collect(),
            pin: core.filter(|_| self.is_started()),
            ..Spec::of(&self.name, program)
        };
        Ok(Ok(self))
    }

    /// Refuses placeholders of commands in the configuration, and `{module}` without a module.
    /// Other words in braces may belong to the configuration's own syntax.
    fn check_configuration(&self) -> Result<()> {
        let (Some(file), Some(Template { text, module })) = (&self.configuration, &self.template)
        else {
            return Ok(());
        };
        let file = file.display();
        ensure!(
            !has(&[text], "configuration"),
            "{{configuration}} in {file} is only replaced in a command: remove it; for a literal {{configuration}} write {{{{configuration}}}}"
        );
        ensure!(
            module.is_some() || !has(&[text], "module"),
            "{{module}} in {file} has no library: set the key module; for a literal {{module}} write {{{{module}}}}"
        );
        Ok(())
    }

    /// Reads the configuration, and looks for its module.
    fn read(&self, peers: Option<&Peers>) -> Result<Option<Template>, String> {
        let Some(file) = &self.configuration else { return Ok(None) };
        let text = match &self.directory {
            Some(directory) => {
                let path = directory.join(file);
                files::read_text(&path, MAX_INPUT_BYTES)
                    .map_err(|why| format!("cannot read {}: {why}", path.display()))?
            }
            None => {
                let peers = peers.ok_or(
                    "its configuration is in the repository: run this inside the repository",
                )?;
                peers.read(&file.to_string_lossy()).map_err(|error| format!("{error:#}"))?
            }
        };
        let module = self.module.as_ref().map(Module::find).transpose()?;
        let module: Option<Placeholder> = module.map(|path| ("module", path.display().to_string()));
        Ok(Some(Template { text, module }))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::describe::Description;
    use crate::scratch::tests::directory;

    /// A host name may have several addresses, and the server listens at only one of them.
    #[test]
    fn a_host_resolves_to_the_address_that_answers() {
        let listener =
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("no port is free");
        let address = listener.local_addr().expect("the listener has no address");
        let found =
            resolved(&format!("localhost:{}", address.port())).expect("the name was not resolved");
        assert_eq!(found, address.into());
    }

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
            ("http://127.0.0.1:80/", "is not a server: give its address"),
            ("a {prot}", "unknown placeholder {prot}: known placeholders are {port}, {dir}, "),
            ("a -c {configuration}", "{configuration} has no file"),
            ("a -m {module}", "{module} is only replaced in a configuration"),
            ("{dir}/a", "{dir} in the program '{dir}/a' is not replaced"),
            ("a 'b", "unterminated quote"),
            ("", "is empty"),
            ("unix:", "has 0 bytes"),
        ] {
            let error = format!("{:#}", Contender::of_text(text).expect_err(text));
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_program_that_is_missing_is_left_out_by_name() {
        let missing = Contender::of_text("no-such-program {port}").expect("the command is invalid");
        let why = missing
            .prepare(None, None)
            .expect("preparing the contender failed")
            .expect_err("a missing program was found");
        let expected = "server no-such-program is left out: no-such-program is not installed";
        assert!(why.starts_with(expected), "{why}");
    }

    /// The placeholders of configurations.
    const CONFIGURATION_PLACEHOLDERS: [&str; 7] =
        ["port", "dir", "scratch", "module", "site", "target", "service"];

    /// Checks that the catalogue's configurations contain `{port}`, and no unknown placeholders.
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
            let text =
                fs::read_to_string(peers.join(file)).expect("the configuration cannot be read");
            placeholders::check(std::slice::from_ref(&text), &CONFIGURATION_PLACEHOLDERS)
                .unwrap_or_else(|why| panic!("{}: {why}", file.display()));
            assert!(has(&[text], "port") && has(arguments, "configuration"), "{}", contender.name);
        }
    }

    /// Returns a contender that runs `sh` with a configuration in `directory`, prepared.
    fn with_configuration(directory: &Path, text: &str, module: bool) -> Result<Contender> {
        fs::write(directory.join("a.conf"), text).expect("cannot write the configuration");
        let module = module.then(|| Module::at("/"));
        let contender = Contender {
            command: Some("sh {configuration}".into()),
            configuration: Some("a.conf".into()),
            directory: Some(directory.to_owned()),
            module,
            ..Contender::default()
        };
        Ok(contender.checked()?.prepare(None, None)?.expect("sh is missing"))
    }

    #[test]
    fn a_configuration_is_filled_once() {
        let scratch = directory();
        let text = "listen {port} {{port}} {module} {{module}} {{configuration}} {other}";
        let contender =
            with_configuration(scratch.path(), text, true).expect("the configuration was refused");
        assert_eq!(contender.place(), Place::Given);
        let (name, filled) = contender
            .filled_configuration(&[("port", "80".into())])
            .expect("the contender has no configuration");
        assert_eq!(name, "a.conf");
        assert_eq!(filled, "listen 80 {port} / {module} {configuration} {other}");
        let literal = with_configuration(scratch.path(), "{{port}}", true);
        assert_eq!(literal.expect("the configuration was refused").place(), Place::LookedUp);
    }

    #[test]
    fn placeholders_that_a_configuration_does_not_have_are_refused() {
        let scratch = directory();
        for (text, module, part) in [
            ("{configuration}", true, "{configuration} in a.conf is only replaced in a command"),
            ("{MODULE}", false, "{module} in a.conf has no library: set the key module"),
        ] {
            let error =
                format!("{:#}", with_configuration(scratch.path(), text, module).expect_err(text));
            assert!(error.starts_with(part), "{error}");
        }
    }

    #[test]
    fn keys_and_placeholders_without_effect_are_refused() {
        let file = |keys: &str| {
            let text = format!(
                "title = \"t\"\n[[server]]\n{keys}\n[[load]]\nurl = \"http://127.0.0.1:{{port}}/\"\n"
            );
            Description::parse("a", &text)
        };
        file("peer = \"p\"\ncommand = \"a 0 {dir} {site} {service} {{port}}\"")
            .expect("a peer was refused");
        for (keys, part) in [
            ("configuration = \"c\"", "configuration has no effect with peer 'p'"),
            ("module = { paths = [], package = \"m\" }", "module has no effect with peer 'p'"),
            ("ready = \"r\"", "ready has no effect with peer 'p'"),
            ("port = 80", "port has no effect with peer 'p'"),
        ] {
            let error = file(&format!("peer = \"p\"\ncommand = \"a 0\"\n{keys}"));
            let error = format!("{:#}", error.expect_err(keys));
            assert!(error.contains(part), "{error}");
        }
        for (keys, part) in [
            ("peer = \"p\"\ncommand = \"a {port}\"", "{port} has no effect with peer 'p'"),
            ("peer = \"p\"\ncommand = \"a {module}\"", "unknown placeholder {module}"),
            (
                "command = \"a\"\nmodule = { paths = [], package = \"m\" }",
                "module has no effect without a configuration",
            ),
        ] {
            let error = format!("{:#}", file(keys).expect_err(keys));
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn outside_the_repository_servers_are_missing() {
        for contender in Description::find("files")
            .expect("the catalogue lacks the name")
            .comparison()
            .expect("the file is a suite")
            .contenders
        {
            let missing = contender
                .prepare(None, None)
                .expect("preparing the contender failed")
                .expect_err("a missing program was found");
            assert!(missing.contains(" is left out: "), "{missing}");
        }
    }
}
