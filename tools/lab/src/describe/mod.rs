//! Comparisons as data: contenders, what loads them, and how they are measured.

mod comparison;
mod contender;
mod installed;
mod known;
mod load;
mod parser;
mod placement;
mod redis_benchmark;
mod setup;
#[cfg(test)]
pub(crate) mod suites;
mod words;

pub use comparison::{Comparison, Described};
pub use contender::Contender;
pub use load::{Client, Load, Loads, Pace};
pub use placement::Placement;
pub(crate) use setup::Check;
pub use setup::{Missing, Only, Setup, Shown};

pub(crate) use contender::Place;
pub(crate) use installed::find as find_installed;
pub(crate) use load::Job;
pub(crate) use parser::Parser;
pub(crate) use words::{Word, filled, has};
