//! Contenders by name: our own, and those of others, built when asked for.

use super::{fio, room};
use crate::bench::field::Field;
use crate::bench::peer::{build, peers_here};
use annulus::fs::Policy;
use annulus::{DriverChoice, Runtime};
use annulus_lab::file::{Pattern, Terms};
use annulus_lab::peer::Peers;
use annulus_lab::server::Spec;
use anyhow::{Context, Result};
use clap::ValueEnum;
use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;

/// Who can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contender {
    /// Ours: a thread a worker, and plain calls
    Threads,
    /// Ours: a task a worker, all on one thread
    Tasks,
    /// Tasks on tokio, through its file system calls
    Tokio,
    /// fio, of blocks
    Fio,
}

/// The one file of which blocks are read and written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Land {
    pub(super) pattern: Pattern,
    pub(super) bytes: u64,
    pub(super) direct: bool,
    /// Where the other end of streams is, if it is about those.
    pub(super) far: Option<SocketAddr>,
}

/// What all of them work under.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// What carries our tasks.
    pub(crate) driver: DriverChoice,
    /// Where they make their calls.
    pub(crate) policy: Policy,
    /// The core of all.
    pub(crate) core: usize,
    /// Where it is about blocks: of what.
    pub(crate) land: Option<Land>,
}

impl Contender {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().expect("no contender is hidden").get_name().to_owned()
    }

    /// The folder of a peer.
    fn peer(self) -> Option<&'static str> {
        match self {
            Contender::Threads | Contender::Tasks | Contender::Fio => None,
            Contender::Tokio => Some("file-tokio"),
        }
    }

    /// How to run it, or what is missing to have it.
    fn spec(
        self,
        peers: Option<&Peers>,
        conditions: Conditions,
        folder: &Path,
    ) -> Result<Result<Spec, String>> {
        let spec = |program, arguments| Spec {
            name: self.name(),
            program,
            arguments,
            pin: Some(conditions.core),
        };
        if let Some(peer) = self.peer() {
            return Ok(build(peers, peer)?.map(|program| spec(program, vec![folder.into()])));
        }
        if let Contender::Fio = self
            && let Err(why) = fio::look_for()
        {
            return Ok(Err(why));
        }
        let program = env::current_exe().context("cannot find this program to start it")?;
        Ok(Ok(spec(program, self.arguments(conditions, folder))))
    }

    /// What makes this program one of our own.
    fn arguments(self, conditions: Conditions, folder: &Path) -> Vec<OsString> {
        let Conditions { driver, policy, land, .. } = conditions;
        let (name, driver, policy) = (self.name(), driver.to_string(), policy.to_string());
        let words =
            ["bench", "file", "--contender", &name, "--driver", &driver, "--policy", &policy];
        let words = words.into_iter().map(OsString::from).chain(["--dir".into(), folder.into()]);
        words.chain(land.into_iter().flat_map(Land::arguments)).collect()
    }
}

impl Conditions {
    /// What a report tells of them, and of the place.
    pub(crate) fn terms(self, dir: &Path) -> Result<Terms> {
        let Conditions { driver, policy, core, .. } = self;
        Ok(Terms {
            file_system: room::file_system(dir)?,
            driver: Runtime::builder().driver(driver).build()?.driver().kind.to_string(),
            policy: policy.to_string(),
            core,
        })
    }
}

impl Land {
    fn arguments(self) -> impl Iterator<Item = OsString> {
        let (pattern, bytes) = (self.pattern.to_string(), self.bytes.to_string());
        let words = ["--pattern".into(), pattern, "--file-size".into(), bytes].into_iter();
        let far = self.far.into_iter().flat_map(|far| ["--far".into(), far.to_string()]);
        words.chain(self.direct.then(|| "--direct".into())).chain(far).map(OsString::from)
    }
}

/// Those that can be measured here; all of them will work in `folder`.
pub(crate) fn field(
    contenders: &[Contender],
    conditions: Conditions,
    folder: &Path,
) -> Result<Field> {
    let peers = peers_here();
    let specs =
        contenders.iter().map(|contender| contender.spec(peers.as_ref(), conditions, folder));
    Field::gather(specs, None)
}

#[cfg(test)]
mod tests {
    use super::super::work::Style;
    use super::*;

    #[test]
    fn each_is_either_ours_or_a_peer() {
        for contender in Contender::value_variants() {
            let style = Style::from_str(&contender.name(), false);
            assert_ne!(style.is_ok(), contender.peer().is_some(), "{contender:?}");
        }
    }

    #[test]
    fn ours_are_told_where_and_how() {
        let driver = DriverChoice::Epoll;
        let conditions = Conditions { driver, policy: Policy::Offload, core: 3, land: None };
        let folder = Path::new("/some/where");
        let spec = Contender::Tasks.spec(None, conditions, folder).unwrap().unwrap();
        assert_eq!((spec.name.as_str(), spec.pin), ("tasks", Some(3)));
        let line = "bench file --contender tasks --driver epoll --policy offload --dir /some/where";
        assert_eq!(spec.arguments, line.split(' ').collect::<Vec<_>>());
        let land = Some(Land { pattern: Pattern::Read, bytes: 8192, direct: true, far: None });
        let of_blocks = Contender::Threads.arguments(Conditions { land, ..conditions }, folder);
        assert_eq!(of_blocks[10..], ["--pattern", "read", "--file-size", "8192", "--direct"]);
        let why = Contender::Tokio.spec(None, conditions, folder).unwrap().unwrap_err();
        assert!(why.contains("file-tokio is left out"), "{why}");
    }
}
