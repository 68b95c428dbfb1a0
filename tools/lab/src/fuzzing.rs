//! Entry points of the fuzz targets into private code. Not part of the public interface.

use crate::bench::{Record, Slice, cpu, rate};
use crate::describe::Description;
use crate::tables::Table;
use crate::{jobs, output};

/// The maximum number of lines that are read, because a bench has few rounds.
const MAX_ANSWERS: usize = 32;

/// Parses a file. If it is accepted as published tables, every cell must have a question.
pub fn suite(text: &str) {
    match Description::parse("any", text) {
        Ok(Description::Comparison(_)) => {}
        Ok(Description::Suite(suite)) => {
            let cells = |table: &Table| table.rows.len() * table.columns.len();
            assert_eq!(suite.questions().count(), suite.tables.iter().map(cells).sum::<usize>());
            assert!(suite.questions().all(|question| !question.servers.is_empty()));
            for table in &suite.tables {
                let published = |(row, column)| table.published(row, column).is_some();
                let all = (0..table.rows.len()).map(|row| (row, table.columns.len()));
                assert!(!all.into_iter().any(published), "a figure lies beyond the columns");
            }
        }
        Err(why) => {
            let why = format!("{why:#}");
            assert!(why.lines().count() == 1, "the error is not one line: {why:?}");
        }
    }
}

/// Looks for the address in a server's output. Further output must not change it.
pub fn announcement(bytes: &[u8]) {
    let whole = output::announced(bytes);
    for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').take(16) {
        let found = output::announced(&bytes[..=at]);
        assert!(found.is_none() || found == whole, "{found:?} became {whole:?}");
    }
}

/// Parses each line as the answer of a contender in a round, and compares the rounds.
pub fn answers(text: &str) {
    let mut record = Record::new();
    for (number, line) in text.lines().take(MAX_ANSWERS).enumerate() {
        let (contender, round) = (number % 2, number / 2);
        let sample = jobs::sample(line, &["operations", "ns", "cpu_ns"]);
        let slice = Slice { round, cell: 0, contender };
        record.keep(slice, sample.ok_or_else(|| "no answer".to_owned()));
    }
    for metric in [rate(), cpu()] {
        for contender in 0..2 {
            let count = record.values(&metric, contender, 0).len();
            assert_eq!(record.value(&metric, contender, 0).is_some(), count > 0);
            assert_eq!(record.best(&metric, contender, 0).is_some(), count > 0);
        }
        if let Some(ratio) = record.ratio(&metric, 0, 1, 0) {
            let back = ratio.inverse().inverse();
            assert!(back.interval.is_some() == ratio.interval.is_some());
            assert!(!ratio.to_string().is_empty());
        }
    }
}
