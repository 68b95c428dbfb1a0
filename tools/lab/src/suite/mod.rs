//! Published tables as data: a file per document, with the published figures and the parameters to measure them again.
//!
//! Every row and column of a table has a name. The question of a cell is combined from the entry for
//! [`each`](Table::each) cell, its row, and its column, in this order.

mod axis;
mod report;
mod run;
mod tables;

pub use axis::{Axis, Figure, Question};
#[cfg(test)]
pub(crate) use report::tests::small_report;
pub use report::{Measured, PUBLISHED, RowReport, SuiteReport, TableReport};
pub use run::{Plan, Run};
pub use tables::{Kind, Suite, Table};

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The directory of all suites.
#[derive(Clone, Debug)]
pub struct Suites {
    directory: PathBuf,
}

impl Suites {
    /// Looks for a directory `tools/suites` here and in every parent directory.
    pub fn find(from: &Path) -> Option<Suites> {
        let directory =
            from.ancestors().map(|above| above.join("tools/suites")).find(|f| f.is_dir())?;
        Some(Suites { directory })
    }

    /// The names of all suites, sorted.
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.directory) else { return Vec::new() };
        let name = |path: PathBuf| {
            let is_suite = path.extension().is_some_and(|extension| extension == "toml");
            is_suite.then(|| path.file_stem()?.to_str().map(str::to_owned)).flatten()
        };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| name(entry.path())).collect();
        names.sort();
        names
    }

    /// Reads a suite by its [name](Suites::names) and checks that every cell has a question.
    ///
    /// # Errors
    /// Names the suite, and the line or cell with the error.
    pub fn read(&self, name: &str) -> Result<Suite> {
        let path = self.directory.join(name).with_extension("toml");
        Suite::read(&path).with_context(|| format!("suite {name}"))
    }
}
