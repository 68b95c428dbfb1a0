//! How a comparison of contenders was set up.

use serde::Serialize;

use crate::report::ServerFacts;

/// What every comparison is set up with, and the terms `T` of this one.
#[derive(Clone, Debug, Serialize)]
pub struct Settings<T> {
    /// What was measured.
    pub bench: String,
    /// The contenders, without the control.
    pub contenders: Vec<ServerFacts>,
    /// Those that were asked for and could not be had, each with what it lacks.
    pub missing: Vec<String>,
    /// The contender that all others are multiples of.
    pub against: String,
    /// Rounds asked for.
    pub rounds: usize,
    /// The seed of the order and of the intervals.
    pub seed: u64,
    /// What only this comparison has.
    #[serde(flatten)]
    pub terms: T,
}
