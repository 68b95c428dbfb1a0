//! Contenders by name: our own, and those of others, built when asked for.

use super::work::Style;
use crate::bench::peer::build;
use annulus_lab::peer::Peers;
use annulus_lab::server::Spec;
use anyhow::{Context, Result, ensure};
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

/// Those that can be measured here, and what the others lack.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) specs: Vec<Spec>,
    pub(crate) missing: Vec<String>,
}

impl Field {
    /// Builds what is to be built. What lacks a tool is left out, with a line that says so.
    pub(crate) fn prepare(contenders: &[Contender], core: usize) -> Result<Field> {
        let peers = env::current_dir().ok().and_then(|here| Peers::find(&here));
        let mut field = Field { specs: Vec::new(), missing: Vec::new() };
        for contender in contenders {
            match contender.spec(peers.as_ref(), core)? {
                Ok(spec) => field.specs.push(spec),
                Err(why) => field.miss(why),
            }
        }
        ensure!(!field.specs.is_empty(), "no contender is left to measure");
        Ok(field)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.specs.iter().map(|spec| spec.name.clone()).collect()
    }

    /// Whom the others are compared with: liburing used well, else the first.
    pub(crate) fn against(&self) -> String {
        let names = self.names();
        let usual = MEASURE_OF_ALL.name();
        if names.contains(&usual) { usual } else { names[0].clone() }
    }

    fn miss(&mut self, why: String) {
        if !self.missing.contains(&why) {
            eprintln!("annulus: {why}");
            self.missing.push(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

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

    #[test]
    fn liburing_is_the_measure_where_it_is_there() {
        let spec = |name: &str| Spec {
            name: name.into(),
            program: PathBuf::new(),
            arguments: Vec::new(),
            pin: None,
        };
        let mut field = Field { specs: vec![spec("ring"), spec("task")], missing: Vec::new() };
        assert_eq!(field.against(), "ring");
        field.specs.push(spec("liburing"));
        assert_eq!(field.against(), "liburing");
    }
}
