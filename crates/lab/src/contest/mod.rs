//! Contenders: programs that answer questions, a line each, all up at once and idle until it is their turn.
//!
//! A question asks for one slice of work in one cell; the answer tells what that took. A contender ends when its input does.

mod contender;
mod report;
mod rig;
mod settings;

use std::time::Duration;

pub use contender::Contender;
pub use report::{Figures, Report, Row, Slice};
pub use rig::Rig;
pub use settings::Settings;

/// A cell that contenders can be asked about.
pub trait Question: Clone {
    /// What one slice measures.
    type Answer;

    /// The question as a line, without its end; a slice that is bounded by time takes this long.
    fn line(&self, slice: Duration) -> String;

    /// What an answer tells; `None` where it makes no sense.
    fn read(&self, answer: &str) -> Option<Self::Answer>;

    /// How long an answer may take: far more than it should, on a machine with moods.
    fn patience(&self, slice: Duration) -> Duration;
}
