//! The set of contenders of a run.

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::process::Spec;

/// What follows the name of the contender that a control is a copy of.
const CONTROL: &str = " (control)";

/// The contenders that can be measured here, and what the others lack.
#[derive(Clone, Debug, Serialize)]
pub struct Contenders {
    /// Those that are compared.
    #[serde(rename = "contenders")]
    pub specs: Vec<Spec>,
    /// A copy of the first, which must come out equal to it: the A/A control.
    #[serde(skip)]
    pub control: Option<Spec>,
    /// One line for each that was asked for and cannot be had.
    pub missing: Vec<String>,
    /// The one that ratios are taken to.
    pub baseline: String,
}

impl Contenders {
    /// Takes those that can be had. Ratios are taken to `usual`, or to the first if that is not among them.
    ///
    /// # Errors
    /// If a contender cannot be prepared, or none is left.
    pub fn gather(
        found: impl IntoIterator<Item = Result<Result<Spec, String>>>,
        usual: Option<&str>,
    ) -> Result<Contenders> {
        let (mut specs, mut missing) = (Vec::<Spec>::new(), Vec::new());
        for contender in found {
            match contender? {
                Ok(spec) => specs.push(spec),
                Err(why) if missing.contains(&why) => {}
                Err(why) => missing.push(why),
            }
        }
        ensure!(!specs.is_empty(), "no contender is left to measure: {}", missing.join("; "));
        let control = Some(specs[0].named(format!("{}{CONTROL}", specs[0].name)));
        let baseline = specs.iter().find(|spec| Some(spec.name.as_str()) == usual);
        let baseline = baseline.unwrap_or(&specs[0]).name.clone();
        Ok(Contenders { specs, control, missing, baseline })
    }

    /// All of them, the control last.
    pub fn all(&self) -> impl Iterator<Item = &Spec> {
        self.specs.iter().chain(&self.control)
    }

    /// All of them, the control last, each to be changed in place.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Spec> {
        self.specs.iter_mut().chain(&mut self.control)
    }

    /// The place of the one that ratios are taken to.
    pub fn baseline_place(&self) -> usize {
        self.specs.iter().position(|spec| spec.name == self.baseline).unwrap_or(0)
    }

    /// The place of the control behind the others, if there is one.
    pub fn control_place(&self) -> Option<usize> {
        self.control.as_ref().map(|_| self.specs.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(names: &[&str], missing: &[&str]) -> Result<Contenders> {
        let found = names.iter().map(|name| Ok(Ok(Spec::of(name, "/bin/true"))));
        let missing = missing.iter().map(|why| Ok(Err(why.to_string())));
        Contenders::gather(found.chain(missing), Some("liburing"))
    }

    #[test]
    fn the_usual_baseline_is_taken_if_it_is_there() {
        assert_eq!(gather(&["ring", "task"], &[]).expect("two").baseline, "ring");
        assert_eq!(gather(&["ring", "liburing"], &[]).expect("two").baseline, "liburing");
    }

    #[test]
    fn the_control_is_the_first_again_and_last() {
        let contenders = gather(&["a", "b"], &[]).expect("two");
        let names: Vec<&str> = contenders.all().map(|spec| spec.name.as_str()).collect();
        assert_eq!((names, contenders.control_place()), (vec!["a", "b", "a (control)"], Some(2)));
    }

    #[test]
    fn what_is_missing_is_told_once_and_one_must_be_left() {
        assert_eq!(gather(&["ring"], &["no gcc", "no gcc"]).expect("one").missing, ["no gcc"]);
        let error = gather(&[], &["no gcc"]).expect_err("none").to_string();
        assert_eq!(error, "no contender is left to measure: no gcc");
    }
}
