//! The comparisons there are: their servers and their loads.

use super::client::Client;
use super::contender::{Contender, Program};
use super::installed::{Installed, Module};
use super::load::Load;
use super::placement::Placement;
use annulus::DriverChoice;
use annulus_load::Mode;

/// Servers that are compared, and what by.
#[derive(Debug)]
pub struct Comparison {
    /// Its name.
    pub name: &'static str,
    /// The servers; each is compared with the baseline.
    pub contenders: &'static [Contender],
    /// The server that ratios are to.
    pub baseline: &'static str,
    /// Which cores they run on.
    pub placement: Placement,
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

/// What Debian installs, with this configuration.
const fn installed(
    name: &'static str,
    program: Installed,
    configuration: &'static str,
    arguments: &'static [&'static str],
) -> Contender {
    let configuration = Some(configuration);
    let program = Program::Installed { program, module: None, configuration };
    Contender { name, program, arguments, variable: None }
}

const NGINX: Installed = Installed { program: "nginx", package: "nginx-light" };
const NGINX_ARGUMENTS: &[&str] = &["-e", "stderr", "-c", "{CONFIGURATION}"];
const REDIS: Installed = Installed { program: "redis-server", package: "redis-server" };
const HAPROXY: Installed = Installed { program: "haproxy", package: "haproxy" };

/// nginx as a proxy of streams, which takes a module.
const NGINX_STREAM: Contender = Contender {
    name: "nginx",
    program: Program::Installed {
        program: NGINX,
        module: Some(Module {
            paths: &[
                "/usr/lib/nginx/modules/ngx_stream_module.so",
                "/usr/lib64/nginx/modules/ngx_stream_module.so",
            ],
            package: "libnginx-mod-stream",
        }),
        configuration: Some("nginx/stream.conf"),
    },
    arguments: NGINX_ARGUMENTS,
    variable: None,
};

/// A process for each connection.
const SOCAT: Contender = Contender {
    name: "socat",
    program: Program::Installed {
        program: Installed { program: "socat", package: "socat" },
        module: None,
        configuration: None,
    },
    arguments: &[
        "-b65536",
        "TCP-LISTEN:{PORT},bind=127.0.0.1,backlog=1024,fork,reuseaddr,nodelay",
        "TCP:{TARGET},nodelay",
    ],
    variable: None,
};

/// Short answers over HTTP/1.1; the base of the others.
const PLAIN: Load = Load {
    name: "plain",
    client: Client::Wrk,
    service: "http1",
    request: "/",
    bytes: 0,
    connections: 50,
    depth: 1,
    rate: None,
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

/// The arguments of `static_files`, of `redis` and of `proxy`.
const FILES: &[&str] = &["127.0.0.1:0", "{SITE}"];
const STORE: &[&str] = &["127.0.0.1:0"];
const PROXY: &[&str] = &["127.0.0.1:0", "{TARGET}", "600"];
/// As `PROXY`, with two shards.
const PROXY_2: &[&str] = &["127.0.0.1:0", "{TARGET}", "600", "4000", "2"];

const GET: Load = Load {
    name: "get",
    client: Client::RedisBenchmark,
    service: "redis",
    request: "GET key:0",
    ..PLAIN
};
const SET: Load = Load { name: "set", request: "SET key:0 VXK", ..GET };
const MGET: Load = Load {
    name: "mget",
    request: "MGET key:0 key:1 key:2 key:3 key:4 key:5 key:6 key:7 key:8 key:9",
    ..GET
};

/// HAProxy with this configuration.
const fn haproxy(name: &'static str, configuration: &'static str) -> Contender {
    installed(name, HAPROXY, configuration, &["-f", "{CONFIGURATION}"])
}

const PROXIES: [Contender; 7] = [
    haproxy("haproxy", "haproxy/tuned.cfg"),
    haproxy("haproxy-default", "haproxy/default.cfg"),
    NGINX_STREAM,
    example("uring", "proxy", PROXY),
    example("epoll", "proxy", PROXY),
    twin("proxy", PROXY),
    SOCAT,
];

/// The same on two threads, and on one.
const TWO: [Contender; 5] = [
    haproxy("haproxy", "haproxy/two-threads.cfg"),
    haproxy("haproxy-1", "haproxy/tuned.cfg"),
    example("uring", "proxy", PROXY_2),
    Contender { name: "uring-1", ..example("uring", "proxy", PROXY) },
    example("epoll", "proxy", PROXY_2),
];

const OWN: Client = Client::Own(Mode::Tasks(DriverChoice::Auto));

/// Messages of 128 bytes through a proxy and back.
const SMALL: Load =
    Load { name: "128b", client: OWN, service: "tcp", request: "", bytes: 128, ..PLAIN };

/// The same at fixed times.
const OPEN: Load = Load { depth: 64, ..SMALL };

/// Every comparison.
pub static COMPARISONS: [Comparison; 7] = [
    Comparison {
        name: "http",
        contenders: &HYPER,
        placement: Placement::Apart,
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
        placement: Placement::Apart,
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
            installed("nginx", NGINX, "nginx/tuned.conf", NGINX_ARGUMENTS),
            installed("nginx-default", NGINX, "nginx/default.conf", NGINX_ARGUMENTS),
            example("uring", "static_files", FILES),
            example("epoll", "static_files", FILES),
            twin("static_files", FILES),
        ],
        placement: Placement::Apart,
        baseline: "nginx",
        loads: &[
            Load { name: "4k", request: "/4k", bytes: 4 << 10, ..PLAIN },
            Load { name: "64k", request: "/64k", bytes: 64 << 10, ..PLAIN },
            Load { name: "1m", request: "/1m", bytes: 1 << 20, connections: 10, ..PLAIN },
        ],
    },
    Comparison {
        name: "store",
        contenders: &[
            installed("redis-server", REDIS, "redis/tuned.conf", &["{CONFIGURATION}"]),
            installed("redis-default", REDIS, "redis/default.conf", &["{CONFIGURATION}"]),
            example("uring", "redis", STORE),
            example("epoll", "redis", STORE),
            twin("redis", STORE),
        ],
        placement: Placement::Apart,
        baseline: "redis-server",
        loads: &[
            GET,
            Load { name: "get-16", depth: 16, ..GET },
            Load { name: "get-64", depth: 64, ..GET },
            SET,
            Load { name: "set-16", depth: 16, ..SET },
            Load { name: "set-64", depth: 64, ..SET },
            MGET,
            Load { name: "mget-16", depth: 16, ..MGET },
            Load { name: "mget-64", depth: 64, ..MGET },
        ],
    },
    Comparison {
        name: "proxy",
        contenders: &PROXIES,
        placement: Placement::Apart,
        baseline: "haproxy",
        loads: &[
            SMALL,
            Load { name: "16k", bytes: 16 << 10, ..SMALL },
            Load { name: "1m", bytes: 1 << 20, connections: 10, ..SMALL },
            Load { name: "128b-1", connections: 1, ..SMALL },
            Load { name: "128b-1000", connections: 1000, ..SMALL },
        ],
    },
    Comparison {
        name: "proxy-2",
        contenders: &TWO,
        placement: Placement::Shared,
        baseline: "haproxy",
        loads: &[
            SMALL,
            Load { name: "16k", bytes: 16 << 10, ..SMALL },
            // Clients that do not batch.
            Load { name: "threads", client: Client::Own(Mode::Threads), ..SMALL },
        ],
    },
    Comparison {
        name: "overload",
        contenders: &PROXIES,
        placement: Placement::Apart,
        baseline: "haproxy",
        loads: &[
            Load { name: "rate-50", rate: Some(0.5), ..OPEN },
            Load { name: "rate-80", rate: Some(0.8), ..OPEN },
            Load { name: "rate-95", rate: Some(0.95), ..OPEN },
            Load { name: "rate-120", rate: Some(1.2), ..OPEN },
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
