//! Contenders of a comparison that can be measured here, and what the others lack.

use crate::output::note;
use annulus_lab::contest::Settings;
use annulus_lab::report::ServerFacts;
use annulus_lab::server::Spec;
use anyhow::{Result, ensure};

#[derive(Debug)]
pub(super) struct Field {
    pub(super) specs: Vec<Spec>,
    pub(super) missing: Vec<String>,
    /// Whom the others are compared with.
    against: String,
}

impl Field {
    /// Those that can be had; what lacks a tool is left out, with a line that says so. They are compared with `usual`, or,
    /// where that is not among them, with the first.
    pub(super) fn gather(
        contenders: impl IntoIterator<Item = Result<Result<Spec, String>>>,
        usual: Option<String>,
    ) -> Result<Field> {
        let (mut specs, mut missing) = (Vec::<Spec>::new(), Vec::new());
        for contender in contenders {
            match contender? {
                Ok(spec) => specs.push(spec),
                Err(why) if missing.contains(&why) => {}
                Err(why) => {
                    note(format_args!("annulus: {why}"));
                    missing.push(why);
                }
            }
        }
        ensure!(!specs.is_empty(), "no contender is left to measure");
        let usual = usual.filter(|usual| specs.iter().any(|spec| spec.name == *usual));
        let against = usual.unwrap_or_else(|| specs[0].name.clone());
        Ok(Field { specs, missing, against })
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.specs.iter().map(|spec| spec.name.clone()).collect()
    }

    pub(super) fn settings<T>(
        &self,
        bench: &str,
        rounds: usize,
        seed: u64,
        terms: T,
    ) -> Settings<T> {
        Settings {
            bench: bench.into(),
            contenders: self.specs.iter().map(ServerFacts::of).collect(),
            missing: self.missing.clone(),
            against: self.against.clone(),
            rounds,
            seed,
            terms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn field(names: &[&str], lacks: &[&str]) -> Result<Field> {
        let spec = |name: &&str| {
            let (name, arguments) = (name.to_string(), Vec::new());
            Ok(Ok(Spec { name, program: PathBuf::new(), arguments, pin: None }))
        };
        let lacking = lacks.iter().map(|why| Ok(Err(why.to_string())));
        Field::gather(names.iter().map(spec).chain(lacking), Some("liburing".into()))
    }

    #[test]
    fn the_usual_one_is_the_measure_where_it_is_there() {
        assert_eq!(field(&["ring", "task"], &[]).unwrap().against, "ring");
        assert_eq!(field(&["ring", "liburing"], &[]).unwrap().against, "liburing");
    }

    #[test]
    fn what_is_missing_is_told_once_and_somebody_must_be_left() {
        assert_eq!(field(&["ring"], &["no gcc", "no gcc"]).unwrap().missing, ["no gcc"]);
        assert!(field(&[], &["no gcc"]).is_err());
    }
}
