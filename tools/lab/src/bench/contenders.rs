//! The contenders of a run.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::process::Spec;

const CONTROL_SUFFIX: &str = " (control)";

/// The contenders that are available here, and why others are missing.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Contenders {
    /// The contenders that are compared.
    #[serde(rename = "contenders")]
    pub specs: Vec<Spec>,
    /// The A/A control: a second copy of the first contender. Any difference between the two is
    /// noise.
    pub control: Option<Spec>,
    /// One line for each requested contender that is not available.
    pub missing: Vec<String>,
    /// The names of missing contenders that tables show as rows of dashes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    /// The contender to which ratios are computed.
    pub baseline: String,
    /// Whether a user named the contenders, so that a name such as `epoll` does not mean annulus.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub named_by_user: bool,
}

impl Contenders {
    /// Collects the available contenders. The baseline is `usual`, or the first contender if
    /// `usual` is missing.
    ///
    /// # Errors
    /// If a contender cannot be prepared, or none is available.
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
        let control = Some(specs[0].named(format!("{}{CONTROL_SUFFIX}", specs[0].name)));
        let baseline = specs.iter().find(|spec| Some(spec.name.as_str()) == usual);
        let baseline = baseline.unwrap_or(&specs[0]).name.clone();
        Ok(Contenders {
            specs,
            control,
            missing,
            absent: Vec::new(),
            baseline,
            named_by_user: false,
        })
    }

    /// Iterates over all contenders, the control last.
    pub fn all(&self) -> impl Iterator<Item = &Spec> {
        self.specs.iter().chain(&self.control)
    }

    /// Iterates over all contenders mutably, the control last.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Spec> {
        self.specs.iter_mut().chain(&mut self.control)
    }

    /// Returns the index of the baseline.
    pub fn baseline_index(&self) -> usize {
        self.specs.iter().position(|spec| spec.name == self.baseline).unwrap_or(0)
    }

    /// Returns the index of the control, which follows all other contenders.
    pub fn control_index(&self) -> Option<usize> {
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
    fn the_usual_baseline_is_used_if_it_is_measured() {
        assert_eq!(
            gather(&["ring", "task"], &[]).expect("no contender was gathered").baseline,
            "ring"
        );
        assert_eq!(
            gather(&["ring", "liburing"], &[]).expect("no contender was gathered").baseline,
            "liburing"
        );
    }

    #[test]
    fn the_control_copies_the_first_contender_and_comes_last() {
        let contenders = gather(&["a", "b"], &[]).expect("no contender was gathered");
        let names: Vec<&str> = contenders.all().map(|spec| spec.name.as_str()).collect();
        assert_eq!((names, contenders.control_index()), (vec!["a", "b", "a (control)"], Some(2)));
    }

    #[test]
    fn a_missing_contender_is_listed_once_and_one_must_remain() {
        assert_eq!(
            gather(&["ring"], &["no gcc", "no gcc"]).expect("no contender was gathered").missing,
            ["no gcc"]
        );
        let error = gather(&[], &["no gcc"])
            .expect_err("an empty list of contenders was accepted")
            .to_string();
        assert_eq!(error, "no contender is left to measure: no gcc");
    }
}
