//! The comparisons there are: their servers and their loads.

use super::client::Client;
use super::contender::{Contender, Program};
use super::installed::Installed;
use super::load::Load;

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

/// hyper on a runtime; the programs of `peers/hyper`.
const fn hyper(
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
) -> Contender {
    Contender { name, program: Program::Peer("hyper", program), arguments, variable: None }
}

/// An example of annulus, on one of its drivers.
const fn example(
    driver: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
) -> Contender {
    let variable = Some(("ANNULUS_DRIVER", driver));
    let program = Program::Peer("annulus-examples", program);
    Contender { name: driver, program, arguments, variable }
}

/// Its twin on tokio.
const fn twin(program: &'static str, arguments: &'static [&'static str]) -> Contender {
    let program = Program::Peer("tokio-examples", program);
    Contender { name: "tokio", program, arguments, variable: None }
}

/// nginx with this configuration.
const fn nginx(name: &'static str, configuration: &'static str) -> Contender {
    let program = Installed { program: "nginx", package: "nginx-light" };
    let program = Program::Installed(program, None, configuration);
    Contender {
        name,
        program,
        arguments: &["-e", "stderr", "-c", "{CONFIGURATION}"],
        variable: None,
    }
}

/// Short answers over HTTP/1.1; the base of the others.
const PLAIN: Load = Load {
    name: "plain",
    client: Client::Wrk,
    service: "http1",
    request: "/",
    bytes: 0,
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
const TLS: Load = Load { name: "tls", service: "https1", ..PLAIN };

const HYPER: [Contender; 7] = [
    hyper("tokio", "tokio", &["0", "{SERVICE}"]),
    hyper("uring", "annulus", &["0", "{SERVICE}", "uring"]),
    hyper("epoll", "annulus", &["0", "{SERVICE}", "epoll"]),
    hyper("guest", "annulus", &["0", "{SERVICE}", "guest"]),
    hyper("guest-tasks", "annulus", &["0", "{SERVICE}", "guest-tasks"]),
    hyper("monoio", "monoio", &["0", "{SERVICE}"]),
    hyper("compio", "compio", &["0", "{SERVICE}"]),
];

/// The arguments of `static_files`.
const FILES: &[&str] = &["127.0.0.1:0", "{SITE}"];

/// Every comparison.
pub static COMPARISONS: [Comparison; 3] = [
    Comparison {
        name: "http",
        contenders: &HYPER,
        baseline: "tokio",
        loads: &[
            PLAIN,
            Load { name: "plain-500", connections: 500, ..PLAIN },
            Load { name: "plain-1", connections: 1, ..PLAIN },
            Load { name: "16k", request: "/16k", ..PLAIN },
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
            Load { name: "tls-16k", request: "/16k", ..TLS },
            Load { name: "tls-h2", service: "https2", ..H2 },
        ],
    },
    Comparison {
        name: "files",
        contenders: &[
            nginx("nginx", "nginx/tuned.conf"),
            nginx("nginx-default", "nginx/default.conf"),
            example("uring", "static_files", FILES),
            example("epoll", "static_files", FILES),
            twin("static_files", FILES),
        ],
        baseline: "nginx",
        loads: &[
            Load { name: "4k", request: "/4k", bytes: 4 << 10, ..PLAIN },
            Load { name: "64k", request: "/64k", bytes: 64 << 10, ..PLAIN },
            Load { name: "1m", request: "/1m", bytes: 1 << 20, connections: 10, ..PLAIN },
        ],
    },
];

impl Comparison {
    /// The comparison with this name.
    pub fn find(name: &str) -> Option<&'static Comparison> {
        COMPARISONS.iter().find(|comparison| comparison.name == name)
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
