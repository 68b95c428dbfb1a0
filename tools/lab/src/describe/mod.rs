//! Comparisons as data: contenders, their loads, and how they are measured.

mod comparison;
mod contender;
mod installed;
mod known_clients;
mod load;
mod parser;
mod placeholders;
mod placement;
mod redis_benchmark;
mod setup;
#[cfg(test)]
pub(crate) mod suites;

pub use comparison::{Comparison, Description};
pub use contender::Contender;
pub use load::{Client, Load, Loads, Pace};
pub use placement::Placement;
pub(crate) use setup::DirectoryCheck;
pub use setup::{MissingPolicy, Presentation, Selection, Setup};

pub(crate) use contender::Place;
pub(crate) use installed::{find as find_installed, find_client};
pub(crate) use load::{DEFAULT_WARM_UP, Job};
pub(crate) use parser::Parser;
pub(crate) use placeholders::{Placeholder, filled, has};
