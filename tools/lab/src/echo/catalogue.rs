//! Servers by name: annulus's own, with or without options, and peers.

use std::fmt;

use super::Transport;
use crate::describe::Contender;
use crate::peer::Peers;

/// Annulus's own servers, named like the values of `annulus echo --driver`.
const OWN_SERVERS: [&str; 3] = ["uring", "epoll", "threads"];

/// The prefix that selects a peer with the same name as one of annulus's own servers.
const PEER_PREFIX: &str = "peer:";

/// The separator before each option of annulus's own servers, as in `uring+idle-timeout=5`, and
/// before the mode of a peer.
const OPTION_SEPARATOR: char = '+';

/// The servers that can be chosen by name.
#[derive(Debug)]
pub struct Catalogue {
    peers: Option<Peers>,
    /// Checks arguments of `annulus echo`; the error says why they are not accepted.
    check_own: fn(&[String]) -> Result<(), String>,
}

impl Catalogue {
    /// Creates a catalogue of annulus's own servers and the peers. `check_own` checks the arguments
    /// of annulus's servers before anything starts.
    pub fn new(peers: Option<Peers>, check_own: fn(&[String]) -> Result<(), String>) -> Catalogue {
        Catalogue { peers, check_own }
    }

    /// Returns the server with this name, at an address of the transport.
    ///
    /// # Errors
    /// If the name is unknown, with a list of all names, or if the server does not support its
    /// options or the transport.
    pub fn choose(&self, name: &str, transport: Transport) -> Result<Contender, String> {
        let (base, options) = name.split_once(OPTION_SEPARATOR).unzip();
        let base = base.unwrap_or(name);
        let own = OWN_SERVERS.contains(&base);
        let peer = base.strip_prefix(PEER_PREFIX).unwrap_or(base);
        let contender = match own {
            true => Contender::own(name, self.own(name, base, options, transport)?),
            false => Contender::peer(name, peer, self.peer(name, peer, options, transport)?),
        };
        let serves = |kind| match &self.peers {
            _ if own => base != "threads",
            peers => peers.as_ref().is_some_and(|peers| peers.serves(peer, kind)),
        };
        match transport.kind().is_none_or(serves) {
            true => Ok(contender),
            false => Err(format!("server '{name}' serves TCP only: leave it out")),
        }
    }

    /// Returns the peers.
    pub fn into_peers(self) -> Option<Peers> {
        self.peers
    }

    /// Returns the arguments of one of annulus's own servers on a free port. Its options are passed
    /// to `annulus echo`.
    fn own(
        &self,
        name: &str,
        driver: &str,
        options: Option<&str>,
        transport: Transport,
    ) -> Result<Vec<String>, String> {
        let [address, _] = transport.addresses();
        let fixed = ["echo", "--listen", address, "--driver", driver].map(String::from);
        let options = options.into_iter().flat_map(|list| list.split(OPTION_SEPARATOR));
        if options.clone().any(str::is_empty) {
            return Err(format!(
                "server '{name}': an option is missing after a {OPTION_SEPARATOR}"
            ));
        }
        let options = options.map(|option| format!("--{option}"));
        let arguments: Vec<String> = fixed.into_iter().chain(options).collect();
        (self.check_own)(&arguments[1..])
            .map_err(|why| format!("server '{name}': {why} (see annulus echo --help)"))?;
        Ok(arguments)
    }

    /// Returns the arguments of a peer: its address, and the mode if one was requested.
    fn peer(
        &self,
        name: &str,
        peer: &str,
        mode: Option<&str>,
        transport: Transport,
    ) -> Result<Vec<String>, String> {
        if !self.peer_names().iter().any(|known| known == peer) {
            return Err(format!("no server '{name}': known servers are {self}"));
        }
        if let Some(word) = mode {
            let modes = self.peers.as_ref().map(|peers| peers.modes(peer)).unwrap_or_default();
            if modes.is_empty() {
                return Err(format!("peer {peer} has no modes: leave out +{word}"));
            }
            if !modes.iter().any(|known| known == word) {
                let modes = modes.join(", ");
                return Err(format!("peer {peer} has no mode '{word}': it has {modes}"));
            }
        }
        let [_, address] = transport.addresses();
        Ok([address].into_iter().chain(mode).map(String::from).collect())
    }

    fn peer_names(&self) -> Vec<String> {
        self.peers.as_ref().map(Peers::names).unwrap_or_default()
    }
}

impl fmt::Display for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", OWN_SERVERS.join(", "))?;
        if self.peers.is_none() {
            return write!(f, " (and peers, from within the repository)");
        }
        self.peer_names().into_iter().try_for_each(|name| match OWN_SERVERS.contains(&&*name) {
            true => write!(f, ", {PEER_PREFIX}{name}"),
            false => write!(f, ", {name}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::tests::directory;
    use std::fs;

    /// Accepts every option except one.
    fn check_own(arguments: &[String]) -> Result<(), String> {
        let refused = arguments.iter().find(|argument| *argument == "--spin");
        refused.map_or(Ok(()), |argument| Err(format!("no option '{argument}'")))
    }

    /// Creates a catalogue with two peers: one with modes and the name of one of annulus's servers,
    /// and one that cannot be built.
    fn with_peers(look: impl Fn(&Catalogue)) {
        let scratch = directory();
        let root = scratch.path();
        for peer in ["threads", "go"] {
            fs::create_dir_all(root.join("tools/peers").join(peer))
                .expect("cannot create a directory");
        }
        let write = |path: &str, text| {
            fs::write(root.join("tools/peers").join(path), text).expect("cannot write a file")
        };
        write("go/build", "echo no tool >&2; exit 3");
        write("threads/build", "echo /bin/true");
        write("threads/modes", "few\nmany\n");
        look(&Catalogue::new(Peers::find(root), check_own));
    }

    fn arguments(catalogue: &Catalogue, name: &str) -> Vec<std::ffi::OsString> {
        let chosen = catalogue.choose(name, Transport::Tcp).expect("the server is unknown");
        let peers = catalogue.peers.as_ref();
        let prepared = chosen
            .prepare(peers, Some(1))
            .expect("the peer did not build")
            .expect("the contender is missing");
        assert_eq!((prepared.spec.name.as_str(), prepared.spec.pin), (name, Some(1)));
        prepared.spec.arguments
    }

    #[test]
    fn our_server_wins_over_a_peer_of_the_same_name() {
        with_peers(|catalogue| {
            assert_eq!(arguments(catalogue, "threads")[0], "echo");
            assert_eq!(arguments(catalogue, "peer:threads"), ["0"]);
            assert_eq!(arguments(catalogue, "peer:threads+few"), ["0", "few"]);
            let error = |name| catalogue.choose(name, Transport::Tcp).expect_err(name);
            let expected = "peer threads has no mode 'lots': it has few, many";
            assert_eq!(error("peer:threads+lots"), expected);
            assert_eq!(error("go+few"), "peer go has no modes: leave out +few");
        });
    }

    #[test]
    fn the_error_for_an_unknown_name_lists_all_names() {
        with_peers(|catalogue| {
            let error = catalogue
                .choose("tokyo", Transport::Tcp)
                .expect_err("an unknown server was accepted");
            let all =
                "no server 'tokyo': known servers are uring, epoll, threads, go, peer:threads";
            assert_eq!(error, all);
        });
        let error = Catalogue::new(None, check_own)
            .choose("tokyo", Transport::Tcp)
            .expect_err("an unknown server was accepted");
        assert!(error.ends_with("threads (and peers, from within the repository)"), "{error}");
    }

    #[test]
    fn a_peer_without_its_tool_is_left_out() {
        with_peers(|catalogue| {
            let chosen = catalogue.choose("go", Transport::Tcp).expect("the peer is unknown");
            let prepared = chosen.prepare(catalogue.peers.as_ref(), Some(0));
            let missing = prepared
                .expect("preparing the contender failed")
                .expect_err("a peer without its tool was built");
            assert_eq!(missing, "peer go is left out: no tool");
        });
    }

    #[test]
    fn own_servers_accept_echo_options_and_an_address() {
        let catalogue = Catalogue::new(None, check_own);
        let own = arguments(&catalogue, "uring+locked-down+idle-timeout=30");
        assert_eq!(
            own[2..],
            ["127.0.0.1:0", "--driver", "uring", "--locked-down", "--idle-timeout=30"]
        );
        let unix = catalogue.choose("uring", Transport::Unix).expect("the server is unknown");
        assert!(unix.needs("dir"));
        let error = |name| catalogue.choose(name, Transport::Tcp).expect_err(name);
        let refused = "server 'uring+spin': no option '--spin' (see annulus echo --help)";
        assert_eq!(error("uring+spin"), refused);
        assert_eq!(error("uring+"), "server 'uring+': an option is missing after a +");
        let error = catalogue
            .choose("threads", Transport::Udp)
            .expect_err("a TCP server was accepted for UDP");
        assert_eq!(error, "server 'threads' serves TCP only: leave it out");
    }
}
