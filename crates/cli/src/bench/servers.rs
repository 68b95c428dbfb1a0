//! Servers by name: our own, as they are or with options, or a peer that its folder builds.

use super::peer::peers_here;
use crate::echo::EchoArgs;
use crate::usage;
use annulus_lab::peer::{PeerError, Peers};
use annulus_lab::server::Spec;
use anyhow::{Context, Result};
use clap::Parser;
use std::env;
use std::fmt;
use std::path::PathBuf;

/// Our own servers: what `annulus echo --driver` calls them.
const OWN: [&str; 3] = ["uring", "epoll", "threads"];

/// What comes before a peer's name where one of ours has the same.
const PEER: &str = "peer:";

/// What comes before each option of one of ours, as in `uring+idle-timeout=5`, and before a peer's mode.
const OPTION: char = '+';

/// What ours are told to listen at, and peers.
const OWN_ADDRESS: &str = "127.0.0.1:0";
const PEER_ADDRESS: &str = "0";

/// A server that was asked for and exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This program's own: what `annulus echo` is told, and the name it was asked for by.
    Own { arguments: Vec<String>, name: String },
    /// A peer, by folder, its mode if one was asked for, and the name it was asked for by.
    Peer { folder: String, mode: Option<String>, name: String },
}

/// Where servers come from.
#[derive(Debug)]
pub(crate) struct Catalogue {
    peers: Option<Peers>,
}

impl Catalogue {
    /// Our own servers, and the peers of the folder `peers` here or above.
    pub(crate) fn here() -> Catalogue {
        Catalogue { peers: peers_here() }
    }

    /// The server of this name; an unknown name is answered with those that there are.
    pub(crate) fn choose(&self, name: &str) -> Result<Choice, String> {
        let (base, options) = name.split_once(OPTION).unzip();
        if let Some(driver) = OWN.into_iter().find(|own| *own == base.unwrap_or(name)) {
            return own(name, driver, options);
        }
        let folder = base.unwrap_or(name);
        let folder = folder.strip_prefix(PEER).unwrap_or(folder);
        if !self.peer_names().iter().any(|peer| peer == folder) {
            return Err(format!("no server '{name}': there are {self}"));
        }
        let mode = options.map(|mode| self.mode(folder, mode)).transpose()?;
        Ok(Choice::Peer { folder: folder.into(), mode, name: name.into() })
    }

    /// Refuses a server that does not serve this: `udp` or `unix`.
    pub(crate) fn check(&self, choice: &Choice, kind: &str) -> Result<(), String> {
        let serves = match choice {
            Choice::Own { arguments, .. } => !arguments.iter().any(|word| word == "threads"),
            Choice::Peer { folder, .. } => {
                self.peers.as_ref().is_some_and(|peers| peers.serves(folder, kind))
            }
        };
        let (Choice::Own { name, .. } | Choice::Peer { name, .. }) = choice;
        if serves { Ok(()) } else { Err(format!("server '{name}' serves TCP only: leave it out")) }
    }

    /// How to run a server; a peer is built first, and left out where it lacks a tool.
    pub(crate) fn prepare(&self, choice: &Choice, pin: usize) -> Result<Result<Spec, PeerError>> {
        let pin = Some(pin);
        match choice {
            Choice::Own { arguments, name } => {
                let program = env::current_exe().context("cannot find this program to start it")?;
                let arguments = arguments.iter().map(Into::into).collect();
                Ok(Ok(Spec { name: name.clone(), program, arguments, pin }))
            }
            Choice::Peer { folder, mode, name } => {
                let peers = self.peers.as_ref().context("the folder of the peers is gone")?;
                eprintln!("annulus: building peer {folder}");
                match peers.build(folder) {
                    Ok(program) => Ok(Ok(peer(name, program, mode.as_deref(), pin))),
                    Err(missing @ PeerError::ToolMissing { .. }) => Ok(Err(missing)),
                    Err(failed) => Err(failed.into()),
                }
            }
        }
    }

    /// One of a peer's modes; another word is answered with those that there are.
    fn mode(&self, folder: &str, word: &str) -> Result<String, String> {
        let modes = self.peers.as_ref().map(|peers| peers.modes(folder)).unwrap_or_default();
        match modes.iter().find(|mode| *mode == word) {
            Some(mode) => Ok(mode.clone()),
            None if modes.is_empty() => {
                Err(format!("peer {folder} has no modes: leave out +{word}"))
            }
            None => Err(format!("peer {folder} has no mode '{word}': it has {}", modes.join(", "))),
        }
    }

    fn peer_names(&self) -> Vec<String> {
        self.peers.as_ref().map(Peers::names).unwrap_or_default()
    }
}

impl fmt::Display for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", OWN.join(", "))?;
        let peers = self.peer_names().into_iter().map(|name| match OWN.contains(&&*name) {
            true => format!("{PEER}{name}"),
            false => name,
        });
        match &self.peers {
            Some(_) => peers.into_iter().try_for_each(|name| write!(f, ", {name}")),
            None => write!(f, " (and peers, from within the repository)"),
        }
    }
}

/// What `annulus echo` would be told, parsed to find an error before anything starts.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Echo {
    #[command(flatten)]
    _args: EchoArgs,
}

/// One of ours on a free port; each of its options becomes one of `annulus echo`.
fn own(name: &str, driver: &str, options: Option<&str>) -> Result<Choice, String> {
    let fixed = ["echo", "--listen", OWN_ADDRESS, "--driver", driver].map(String::from);
    let options = options.into_iter().flat_map(|list| list.split(OPTION));
    if options.clone().any(str::is_empty) {
        return Err(format!("server '{name}': no option stands behind a {OPTION}"));
    }
    let options = options.map(|option| format!("--{option}"));
    let arguments: Vec<String> = fixed.into_iter().chain(options).collect();
    match Echo::try_parse_from(&arguments[1..]) {
        Ok(_) => Ok(Choice::Own { arguments, name: name.into() }),
        Err(error) => {
            let why = usage::condense(&error.to_string());
            Err(format!("server '{name}': {why} (annulus echo --help tells more)"))
        }
    }
}

/// The same server at another address, as one of ours is told it, and as a peer is.
pub(crate) fn elsewhere(mut spec: Spec, own: &str, peer: &str) -> Spec {
    for argument in &mut spec.arguments {
        if *argument == OWN_ADDRESS {
            *argument = own.into();
        } else if *argument == PEER_ADDRESS {
            *argument = peer.into();
        }
    }
    spec
}

/// The same server over UDP.
pub(crate) fn over_udp(spec: Spec) -> Spec {
    elsewhere(spec, "udp://127.0.0.1:0", "udp:0")
}

fn peer(name: &str, program: PathBuf, mode: Option<&str>, pin: Option<usize>) -> Spec {
    let arguments = [PEER_ADDRESS].into_iter().chain(mode).map(Into::into).collect();
    Spec { name: name.into(), program, arguments, pin }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A catalogue with two peers: one is called like one of ours and has modes, one cannot be built.
    fn with_peers(test: &str, look: impl Fn(&Catalogue)) {
        let root = env::temp_dir().join(format!("annulus-cli-{test}-{}", std::process::id()));
        for peer in ["threads", "go"] {
            fs::create_dir_all(root.join("peers").join(peer)).unwrap();
            fs::write(root.join("peers").join(peer).join("build"), "echo no tool >&2; exit 3")
                .unwrap();
        }
        let threads = root.join("peers").join("threads");
        fs::write(threads.join("modes"), "few\nmany\n").unwrap();
        fs::write(threads.join("build"), "echo /bin/true").unwrap();
        look(&Catalogue { peers: Peers::find(&root) });
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn ours_come_first_and_a_peer_of_the_same_name_by_its_full_one() {
        with_peers("names", |catalogue| {
            let peer = |folder: &str, name: &str| Choice::Peer {
                folder: folder.into(),
                mode: None,
                name: name.into(),
            };
            let ours = catalogue.choose("threads").unwrap();
            assert!(matches!(ours, Choice::Own { name, .. } if name == "threads"));
            assert_eq!(catalogue.choose("peer:threads"), Ok(peer("threads", "peer:threads")));
            assert_eq!(catalogue.choose("go"), Ok(peer("go", "go")));
        });
    }

    #[test]
    fn a_mode_of_a_peer_is_passed_to_it() {
        with_peers("modes", |catalogue| {
            let choice = catalogue.choose("peer:threads+few").unwrap();
            let spec = catalogue.prepare(&choice, 0).unwrap().unwrap();
            assert_eq!(
                (spec.name.as_str(), &*spec.arguments),
                ("peer:threads+few", &["0", "few"].map(Into::into)[..])
            );
            let error = |name| catalogue.choose(name).unwrap_err();
            assert_eq!(
                error("peer:threads+lots"),
                "peer threads has no mode 'lots': it has few, many"
            );
            assert_eq!(error("go+few"), "peer go has no modes: leave out +few");
        });
    }

    #[test]
    fn an_unknown_name_is_answered_with_all_names() {
        with_peers("unknown", |catalogue| {
            let error = catalogue.choose("tokyo").unwrap_err();
            assert_eq!(
                error,
                "no server 'tokyo': there are uring, epoll, threads, go, peer:threads"
            );
        });
        let error = Catalogue { peers: None }.choose("tokyo").unwrap_err();
        assert!(error.ends_with("threads (and peers, from within the repository)"), "{error}");
    }

    #[test]
    fn a_peer_that_lacks_a_tool_is_left_out_and_no_failure() {
        with_peers("tool", |catalogue| {
            let choice = catalogue.choose("go").unwrap();
            let missing = catalogue.prepare(&choice, 0).unwrap().unwrap_err();
            assert_eq!(missing.to_string(), "peer go is left out: no tool");
        });
    }

    fn ours(name: &str) -> Result<Spec, String> {
        let catalogue = Catalogue { peers: None };
        catalogue.choose(name).map(|choice| catalogue.prepare(&choice, 1).unwrap().unwrap())
    }

    #[test]
    fn ours_is_this_program_on_a_free_port() {
        let spec = ours("threads").unwrap();
        assert_eq!((spec.name.as_str(), spec.pin), ("threads", Some(1)));
        assert_eq!(spec.arguments[2..], ["127.0.0.1:0", "--driver", "threads"]);
    }

    #[test]
    fn ours_takes_the_options_of_echo() {
        let spec = ours("uring+locked-down+idle-timeout=30").unwrap();
        assert_eq!(spec.name, "uring+locked-down+idle-timeout=30");
        assert_eq!(spec.arguments[4..], ["uring", "--locked-down", "--idle-timeout=30"]);
    }

    #[test]
    fn an_option_that_echo_refuses_is_told_before_anything_starts() {
        for (name, part) in [
            ("uring+spin=5", "unexpected argument '--spin'"),
            ("uring+grace=soon", "invalid value 'soon' for '--grace"),
            ("uring+driver=epoll", "'--driver <DRIVER>' cannot be used multiple times"),
            ("uring+help", "unexpected argument '--help'"),
        ] {
            let error = ours(name).unwrap_err();
            assert!(error.starts_with(&format!("server '{name}': ")), "{error}");
            assert!(error.contains(part) && error.contains("annulus echo --help"), "{error}");
        }
        assert_eq!(ours("uring+").unwrap_err(), "server 'uring+': no option stands behind a +");
    }
}
