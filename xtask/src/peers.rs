//! Builds the servers in `tools/peers/` and runs the conformance check on each. The contract is in
//! `tools/peers/README.md`.

use std::env;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use fs_err as fs;

use crate::files::{entries, name};
use crate::step::{Outcome, Step, is_ci, root, target};

/// The exit status of a peer's build or check if the machine lacks something it needs.
const UNAVAILABLE_STATUS: Option<i32> = Some(3);

/// The peers that CI checks: three in C, which take a second to build, and two in Rust with few
/// dependencies. All peers together take minutes and more than a hundred downloads, so `cargo xtask
/// weekly` checks them.
const QUICK_PEERS: [&str; 5] = ["epoll", "io-uring-nop", "liburing-nop", "tokio", "uring-floor"];

/// The systems of the published documents. Their sources are fetched unless [`SOURCES_VARIABLE`]
/// gives their directory.
const ORIGINALS: [&str; 6] =
    ["io_uring-echo-server", "netpoll-cpp", "nimuring", "nimuring-nop", "rocket", "rocket-file"];

/// The environment variable with the directory of the sources of [`ORIGINALS`].
const SOURCES_VARIABLE: &str = "ANNULUS_ORIGINALS";

/// Checks the [`QUICK_PEERS`], and the [`ORIGINALS`] if [`SOURCES_VARIABLE`] is set.
pub(crate) fn quick() -> Outcome {
    let originals = env::var_os(SOURCES_VARIABLE).map_or(&[][..], |_| &ORIGINALS);
    run(&QUICK_PEERS.iter().chain(originals).map(|name| String::from(*name)).collect::<Vec<_>>())
}

/// Checks the named peers, or all of them.
pub(crate) fn run(names: &[String]) -> Outcome {
    if Step::new("python3", "--version").probe().is_none() {
        ensure!(!is_ci(), "peers require python3, and CI must not skip them");
        return Ok(vec!["peers (no python3)".into()]);
    }
    let chosen = if names.is_empty() { &all()? } else { names };
    let skipped = chosen.iter().map(|name| check(name)).collect::<Result<Vec<_>>>()?;
    Ok(skipped.into_iter().flatten().collect())
}

/// Parses the name of a peer.
pub(crate) fn peer(name: &str) -> Result<String> {
    let known = all()?;
    ensure!(known.iter().any(|known| known == name), "known peers are {}", known.join(", "));
    Ok(name.to_owned())
}

/// Returns the names of all directories with a `build`.
fn all() -> Result<Vec<String>> {
    let peers = entries(&root().join("tools/peers"))?;
    Ok(peers.iter().filter(|path| path.join("build").is_file()).map(|path| name(path)).collect())
}

/// Builds and checks one peer; if it was skipped, returns why.
fn check(name: &str) -> Result<Option<String>> {
    let Some(binary) = build(name)? else {
        return Ok(Some(format!("peer {name} (cannot be built here)")));
    };
    let status = Step::new("python3", &script(name)).argument(binary).status()?;
    match status.code() {
        Some(0) => Ok(None),
        UNAVAILABLE_STATUS => Ok(Some(format!("peer {name} (cannot run here)"))),
        _ => bail!("peer {name} failed its check"),
    }
}

/// Returns the command line of a peer's check. If a line of the peer's file `serves` is the `*` in
/// the name of a script `tools/peers/check_*.py`, it is that script. Otherwise, the peer is checked
/// as an echo server.
fn script(name: &str) -> String {
    let serves = fs::read_to_string(root().join("tools/peers").join(name).join("serves"));
    let own = |text: String| {
        let mut checks = text.lines().map(|word| format!("tools/peers/check_{word}.py"));
        checks.find(|check| root().join(check).is_file())
    };
    serves.ok().and_then(own).unwrap_or_else(|| format!("tools/peers/check.py --peer {name}"))
}

/// Builds a peer and returns the path of its program, or `None` if a tool is missing.
fn build(name: &str) -> Result<Option<PathBuf>> {
    let (status, output) = Step::new(&format!("tools/peers/{name}/build"), "")
        .argument(target().join("peers").join(name))
        .capture()?;
    match (status.code(), output.lines().last()) {
        (Some(0), Some(path)) => Ok(Some(path.into())),
        (UNAVAILABLE_STATUS, _) => Ok(None),
        _ => bail!("tools/peers/{name}/build failed or printed no path"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    #[test]
    fn peers_other_than_echo_servers_have_their_own_checks() {
        for (peer, check) in [
            ("hyper", "tools/peers/check_programs.py"),
            ("liburing-nop", "tools/peers/check_nop.py"),
            ("tokio", "tools/peers/check.py --peer tokio"),
            ("nothing", "tools/peers/check.py --peer nothing"),
        ] {
            assert_eq!(script(peer), check);
        }
    }

    #[test]
    fn a_check_fails_if_one_server_fails_and_another_cannot_run_here() {
        if Step::new("python3", "--version").probe().is_none() {
            assert!(!is_ci(), "the checks require python3, and CI must not skip this test");
            return;
        }
        let above = env::temp_dir().join(format!("annulus-xtask-peers-{}", std::process::id()));
        let (tools, servers) = (above.join("tools"), above.join("servers"));
        [&tools, &servers].iter().for_each(|path| fs::create_dir_all(path).unwrap());
        let write = |path: &Path, status: i32| {
            fs::write(path, format!("#!/bin/sh\nexit {status}\n")).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
        };
        // No server gets ready, so `curl` only has to exist.
        write(&tools.join("curl"), 0);
        let path = format!("{}:{}", tools.display(), env::var("PATH").unwrap());
        for check in ["check_programs", "check_writes"] {
            for (broken, expected) in [(1, 1), (UNAVAILABLE_STATUS.unwrap(), 3)] {
                write(&servers.join("one"), broken);
                write(&servers.join("two"), UNAVAILABLE_STATUS.unwrap());
                let step = Step::new("python3", &format!("tools/peers/{check}.py"));
                let (status, printed) =
                    step.argument(&servers).env("PATH", &path).capture().unwrap();
                assert_eq!(status.code(), Some(expected), "{check}: {printed}");
            }
        }
        fs::remove_dir_all(above).unwrap();
    }
}
