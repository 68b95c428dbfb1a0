//! The comparisons there are: their servers and their loads.

use anyhow::Result;

use super::client::Client;
use crate::bench::Cell;
use crate::cores::Cores;
use crate::peer::Peers;
use crate::process::Spec;

/// Servers that are compared, and what by.
#[derive(Debug)]
pub struct Comparison {
    /// Its name.
    pub name: &'static str,
    /// The servers; each is compared with the baseline.
    pub contenders: &'static [Contender],
    /// The server that ratios are to.
    pub baseline: &'static str,
    /// What clients ask of the servers.
    pub loads: &'static [Load],
}

/// A server: a program of a peer, in a mode.
#[derive(Debug)]
pub struct Contender {
    /// Its name.
    pub name: &'static str,
    peer: &'static str,
    program: &'static str,
    mode: Option<&'static str>,
}

/// What one client asks of a server.
#[derive(Debug)]
pub struct Load {
    /// Its name.
    pub name: &'static str,
    /// The client.
    pub client: Client,
    /// The argument of the server: what it speaks.
    pub service: &'static str,
    /// How the address begins, which the server's follows.
    pub scheme: &'static str,
    /// The path of a request.
    pub path: &'static str,
    /// Connections of the client.
    pub connections: u64,
    /// Requests in flight on each connection.
    pub depth: u64,
}

/// hyper on a runtime; the programs of `peers/hyper`.
const fn hyper(name: &'static str, program: &'static str, mode: Option<&'static str>) -> Contender {
    Contender { name, peer: "hyper", program, mode }
}

/// Short answers over HTTP/1.1; the base of the others.
const PLAIN: Load = Load {
    name: "plain",
    client: Client::Wrk,
    service: "http1",
    scheme: "http",
    path: "/",
    connections: 50,
    depth: 1,
};

/// HTTP/2: streams on several connections.
const H2: Load = Load {
    name: "h2",
    client: Client::H2load,
    service: "http2",
    connections: 100,
    depth: 10,
    ..PLAIN
};

/// The same over TLS.
const TLS: Load = Load { name: "tls", service: "https1", scheme: "https", ..PLAIN };

const HYPER: [Contender; 7] = [
    hyper("tokio", "tokio", None),
    hyper("uring", "annulus", Some("uring")),
    hyper("epoll", "annulus", Some("epoll")),
    hyper("guest", "annulus", Some("guest")),
    hyper("guest-tasks", "annulus", Some("guest-tasks")),
    hyper("monoio", "monoio", None),
    hyper("compio", "compio", None),
];

/// Every comparison.
pub static COMPARISONS: [Comparison; 2] = [
    Comparison {
        name: "http",
        contenders: &HYPER,
        baseline: "tokio",
        loads: &[
            PLAIN,
            Load { name: "plain-500", connections: 500, ..PLAIN },
            Load { name: "plain-1", connections: 1, ..PLAIN },
            Load { name: "16k", path: "/16k", ..PLAIN },
            Load { name: "pipelined", depth: 16, ..PLAIN },
            H2,
        ],
    },
    Comparison {
        name: "https",
        // Those with TLS by rustls.
        contenders: HYPER.split_at(5).0,
        baseline: "tokio",
        loads: &[
            TLS,
            Load { name: "tls-1", connections: 1, ..TLS },
            Load { name: "tls-16k", path: "/16k", ..TLS },
            Load { name: "tls-h2", service: "https2", scheme: "https", ..H2 },
        ],
    },
];

impl Comparison {
    /// The comparison with this name.
    pub fn find(name: &str) -> Option<&'static Comparison> {
        COMPARISONS.iter().find(|comparison| comparison.name == name)
    }
}

impl Contender {
    /// How to run it, or why it is missing. Its peer is built first. What it speaks is put before its mode for each
    /// [`Load`].
    ///
    /// # Errors
    /// If the peer does not build.
    pub(super) fn prepare(
        &self,
        peers: Option<&Peers>,
        cores: Cores,
    ) -> Result<Result<Spec, String>> {
        Peers::prepare(peers, self.peer, |directory| Spec {
            name: self.name.into(),
            program: directory.join(self.program),
            arguments: self.mode.into_iter().map(Into::into).collect(),
            pin: Some(cores.server),
        })
    }
}

impl Load {
    /// Its parameters.
    pub(super) fn cell(&self) -> Cell {
        Cell::new([
            ("load", self.name.into()),
            ("connections", self.connections.into()),
            ("depth", self.depth.into()),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::distinct;

    #[test]
    fn names_are_distinct_and_every_baseline_is_measured() {
        for comparison in &COMPARISONS {
            let contenders: Vec<_> = comparison.contenders.iter().map(|one| one.name).collect();
            let loads: Vec<_> = comparison.loads.iter().map(|load| load.name).collect();
            assert!(contenders.contains(&comparison.baseline), "{}", comparison.name);
            for names in [contenders, loads] {
                distinct(&names, |name| (*name).to_owned()).expect("distinct");
            }
        }
    }
}
