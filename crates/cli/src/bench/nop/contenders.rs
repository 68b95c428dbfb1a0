//! Contenders by name: our own, and those of others, built when asked for.

use super::work::Style;
use crate::bench::field::Field;
use crate::bench::peer::{build, peers_here};
use annulus_lab::peer::Peers;
use annulus_lab::server::Spec;
use anyhow::{Context, Result};
use clap::ValueEnum;
use std::env;

/// The contender that all others are compared with, where it is there.
const MEASURE_OF_ALL: Contender = Contender::Liburing;

/// Who can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contender {
    /// Our ring, nothing above it
    Ring,
    /// Our ring, each completion's slot found by its token
    Lookup,
    /// Our runtime, a task woken for each completion
    Task,
    /// C over liburing, completions taken as a batch
    Liburing,
    /// C over liburing, completions peeked and marked one at a time
    LiburingOne,
    /// Rust over the io-uring crate
    IoUring,
}

impl Contender {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().expect("no contender is hidden").get_name().to_owned()
    }

    /// The peer's folder and its argument; none for our own.
    fn peer(self) -> Option<(&'static str, Option<&'static str>)> {
        match self {
            Contender::Ring | Contender::Lookup | Contender::Task => None,
            Contender::Liburing => Some(("liburing-nop", None)),
            Contender::LiburingOne => Some(("liburing-nop", Some("one"))),
            Contender::IoUring => Some(("io-uring-nop", None)),
        }
    }

    /// Our own way to work, which is called as the contender is.
    fn style(self) -> Option<Style> {
        Style::from_str(&self.name(), false).ok()
    }

    fn spec(self, peers: Option<&Peers>, core: usize) -> Result<Result<Spec, String>> {
        let spec = |program, arguments: Vec<String>| Spec {
            name: self.name(),
            program,
            arguments: arguments.into_iter().map(Into::into).collect(),
            pin: Some(core),
        };
        match (self.style(), self.peer()) {
            (_, Some((folder, argument))) => {
                let arguments = argument.map(str::to_owned).into_iter().collect();
                Ok(build(peers, folder)?.map(|program| spec(program, arguments)))
            }
            (_, None) => {
                let program = env::current_exe().context("cannot find this program to start it")?;
                let arguments = ["bench", "nop", "--contender", &self.name()].map(String::from);
                Ok(Ok(spec(program, arguments.into())))
            }
        }
    }
}

/// Those that can be measured here.
pub(crate) fn field(contenders: &[Contender], core: usize) -> Result<Field> {
    let peers = peers_here();
    let specs = contenders.iter().map(|contender| contender.spec(peers.as_ref(), core));
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
    fn without_the_repository_peers_are_missing_and_ours_are_not() {
        let why = Contender::Liburing.spec(None, 0).unwrap().unwrap_err();
        assert!(why.contains("liburing-nop is left out"), "{why}");
        let spec = Contender::Task.spec(None, 3).unwrap().unwrap();
        assert_eq!((spec.name.as_str(), spec.pin), ("task", Some(3)));
        assert_eq!(spec.arguments, ["bench", "nop", "--contender", "task"]);
    }
}
