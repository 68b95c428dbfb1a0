//! Published tables as data: a file per document, with the published figures and the parameters to
//! measure them again.
//!
//! Every row and column of a table has a name. The question of a cell combines the entries for
//! [`each`](Table::each) cell, its row, and its column, where later entries override earlier ones.

mod report;
mod run;

pub use crate::tables::{Axis, Figure, Kind, Question, Suite, Table};
#[cfg(test)]
pub(crate) use report::tests::small_report;
pub use report::{MeasuredRow, PUBLISHED_LABEL, RowReport, SuiteReport, TableReport};
pub use run::{SuitePlan, SuiteRun};
