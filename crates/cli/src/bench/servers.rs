//! Servers by name: our own, or a peer that its folder builds.

use annulus_lab::peer::{PeerError, Peers};
use annulus_lab::server::Spec;
use anyhow::{Context, Result};
use std::env;
use std::fmt;
use std::path::PathBuf;

/// Our own servers: what `annulus echo --driver` calls them.
const OWN: [&str; 3] = ["uring", "epoll", "threads"];

/// What comes before a peer's name where one of ours has the same.
const PEER: &str = "peer:";

/// A server that was asked for and exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This program's own, by driver.
    Own(&'static str),
    /// A peer, by folder, and the name it was asked for by.
    Peer { folder: String, name: String },
}

/// Where servers come from.
#[derive(Debug)]
pub(crate) struct Catalogue {
    peers: Option<Peers>,
}

impl Catalogue {
    /// Our own servers, and the peers of the folder `peers` here or above.
    pub(crate) fn here() -> Catalogue {
        Catalogue { peers: env::current_dir().ok().and_then(|here| Peers::find(&here)) }
    }

    /// The server of this name; an unknown name is answered with those that there are.
    pub(crate) fn choose(&self, name: &str) -> Result<Choice, String> {
        if let Some(own) = OWN.into_iter().find(|own| *own == name) {
            return Ok(Choice::Own(own));
        }
        let folder = name.strip_prefix(PEER).unwrap_or(name);
        if self.peer_names().iter().any(|peer| peer == folder) {
            return Ok(Choice::Peer { folder: folder.into(), name: name.into() });
        }
        Err(format!("no server '{name}': there are {self}"))
    }

    /// How to run a server; a peer is built first, and left out where it lacks a tool.
    pub(crate) fn prepare(&self, choice: &Choice, pin: usize) -> Result<Result<Spec, PeerError>> {
        let pin = Some(pin);
        match choice {
            Choice::Own(driver) => own(driver, pin).map(Ok),
            Choice::Peer { folder, name } => {
                let peers = self.peers.as_ref().context("the folder of the peers is gone")?;
                match peers.build(folder) {
                    Ok(program) => Ok(Ok(peer(name, program, pin))),
                    Err(missing @ PeerError::ToolMissing { .. }) => Ok(Err(missing)),
                    Err(failed) => Err(failed.into()),
                }
            }
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

fn own(driver: &str, pin: Option<usize>) -> Result<Spec> {
    let program = env::current_exe().context("cannot find this program to start it as a server")?;
    let arguments = ["echo", "--listen", "127.0.0.1:0", "--driver", driver];
    Ok(Spec { name: driver.into(), program, arguments: arguments.map(Into::into).into(), pin })
}

fn peer(name: &str, program: PathBuf, pin: Option<usize>) -> Spec {
    Spec { name: name.into(), program, arguments: vec!["0".into()], pin }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A catalogue with two peers: one is called like one of ours.
    fn with_peers(test: &str, look: impl Fn(&Catalogue)) {
        let root = env::temp_dir().join(format!("annulus-cli-{test}-{}", std::process::id()));
        for peer in ["threads", "go"] {
            fs::create_dir_all(root.join("peers").join(peer)).unwrap();
            fs::write(root.join("peers").join(peer).join("build"), "echo no tool >&2; exit 3")
                .unwrap();
        }
        look(&Catalogue { peers: Peers::find(&root) });
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn ours_come_first_and_a_peer_of_the_same_name_by_its_full_one() {
        with_peers("names", |catalogue| {
            let peer = |folder: &str, name: &str| Choice::Peer {
                folder: folder.into(),
                name: name.into(),
            };
            assert_eq!(catalogue.choose("threads"), Ok(Choice::Own("threads")));
            assert_eq!(catalogue.choose("peer:threads"), Ok(peer("threads", "peer:threads")));
            assert_eq!(catalogue.choose("go"), Ok(peer("go", "go")));
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

    #[test]
    fn ours_is_this_program_on_a_free_port() {
        let spec = own("threads", Some(1)).unwrap();
        assert_eq!((spec.name.as_str(), spec.pin), ("threads", Some(1)));
        assert_eq!(spec.arguments[2..], ["127.0.0.1:0", "--driver", "threads"]);
    }
}
