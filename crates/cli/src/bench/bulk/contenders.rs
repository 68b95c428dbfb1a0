//! Contenders by name: our own, and those of others, built when asked for.

use crate::bench::field::Field;
use crate::bench::peer::{build, peers_here};
use annulus::DriverChoice;
use annulus_lab::cores::Cores;
use annulus_lab::peer::Peers;
use annulus_lab::server::Spec;
use anyhow::{Context, Result};
use clap::ValueEnum;
use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The contender that all others are compared with, where it is there: the best of those without segmentation.
const MEASURE_OF_ALL: Contender = Contender::C;

/// Who can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contender {
    /// Ours on io_uring, with segmentation and coalescing
    Uring,
    /// Ours on epoll, with both
    Epoll,
    /// Ours on io_uring, a datagram a send
    UringSingle,
    /// Ours on epoll, a datagram a send
    EpollSingle,
    /// C: sendmmsg and recvmmsg
    C,
    /// C with segmentation and coalescing
    CSegments,
    /// tokio, a datagram a send
    Tokio,
}

/// How one of ours transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) driver: DriverChoice,
    pub(super) segments: bool,
}

impl Contender {
    pub(super) fn name(self) -> String {
        self.to_possible_value().expect("no contender is hidden").get_name().to_owned()
    }

    /// The peer's folder, and its mode; none for our own.
    fn peer(self) -> Option<(&'static str, Option<&'static str>)> {
        match self {
            Contender::C => Some(("bulk-c", None)),
            Contender::CSegments => Some(("bulk-c", Some("segments"))),
            Contender::Tokio => Some(("bulk-tokio", None)),
            _ => None,
        }
    }

    /// How it transfers, if it is one of ours.
    pub(super) fn style(self) -> Option<Style> {
        let style = |driver, segments| Some(Style { driver, segments });
        match self {
            Contender::Uring => style(DriverChoice::Uring, true),
            Contender::Epoll => style(DriverChoice::Epoll, true),
            Contender::UringSingle => style(DriverChoice::Uring, false),
            Contender::EpollSingle => style(DriverChoice::Epoll, false),
            Contender::C | Contender::CSegments | Contender::Tokio => None,
        }
    }

    /// How to run it, or what is missing to have it. Its ends pin themselves.
    fn spec(self, peers: Option<&Peers>, cores: Cores) -> Result<Result<Spec, String>> {
        let [sender, receiver] = [cores.load, cores.server].map(|core| core.to_string());
        let spec = |program: PathBuf, arguments: Vec<String>| Spec {
            name: self.name(),
            program,
            arguments: arguments.into_iter().map(OsString::from).collect(),
            pin: None,
        };
        let Some((folder, mode)) = self.peer() else {
            let program = env::current_exe().context("cannot find this program to start it")?;
            let words = ["bench", "bulk", "--contender", &self.name()].map(String::from);
            let pins = ["--sender-pin".into(), sender, "--receiver-pin".into(), receiver];
            return Ok(Ok(spec(program, words.into_iter().chain(pins).collect())));
        };
        let words = [sender, receiver].into_iter().chain(mode.map(String::from));
        Ok(build(peers, folder)?.map(|program| spec(program, words.collect())))
    }
}

/// Those that can be measured here.
pub(super) fn field(contenders: &[Contender], cores: Cores) -> Result<Field> {
    let peers = peers_here();
    let specs = contenders.iter().map(|contender| contender.spec(peers.as_ref(), cores));
    Field::gather(specs, Some(MEASURE_OF_ALL.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_either_ours_or_a_peer() {
        for contender in Contender::value_variants() {
            assert_ne!(contender.style().is_some(), contender.peer().is_some(), "{contender:?}");
        }
    }

    #[test]
    fn both_ends_are_told_their_cores() {
        let cores = Cores { server: 3, load: 5 };
        let spec = Contender::UringSingle.spec(None, cores).unwrap().unwrap();
        let line = "bench bulk --contender uring-single --sender-pin 5 --receiver-pin 3";
        assert_eq!(spec.arguments, line.split(' ').collect::<Vec<_>>());
        let why = Contender::CSegments.spec(None, cores).unwrap().unwrap_err();
        assert!(why.contains("bulk-c is left out"), "{why}");
    }
}
