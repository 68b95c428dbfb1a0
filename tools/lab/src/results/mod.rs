//! The results file of a run, from which everything about the run is computed.
//!
//! Each measured result is a line of JSON, written as soon as it is measured. The first line is the
//! header: the name and version of the format, the [`Bench`], the machine, and for a suite the
//! published tables. A line for each slice follows. At the end are the memory of the contenders,
//! and a line that says that the run is finished. A run that was interrupted or killed is resumed
//! from its file by [`measure`], and loses at most the current slice.
//!
//! ```no_run
//! use annulus_lab::results::Results;
//!
//! let results = Results::read("lab-results/2026-11-23-nop/nop.jsonl".as_ref())?;
//! let report = results.report();
//! println!("{} slices of {}", report.samples.len(), report.settings.plan.name);
//! if let Some(suite) = results.suite() {
//!     println!("{}: {} tables", suite.name, suite.tables.len());
//! }
//! # anyhow::Ok(())
//! ```

mod header;
mod log;
mod measure;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use annulus_load::files;
use anyhow::{Result, anyhow};
use flate2::read::MultiGzDecoder;
use serde_json::Value as Json;

use crate::bench::{Bench, Footprint, Record, Report, Slice};
use crate::environment::Environment;
use crate::suite::SuiteReport;

pub use header::{FORMAT, VERSION};
pub use measure::measure;

use header::Header;
use log::{Line, SliceLine};

/// The extension of a results file, without the dot.
pub const EXTENSION: &str = "jsonl";

/// The extension of a results file that is compressed with gzip, without the dot.
pub const COMPRESSED_EXTENSION: &str = "jsonl.gz";

/// The maximum size of a results file, compressed or not: 1 GiB.
const MAX_RESULTS_BYTES: u64 = 1 << 30;

/// Returns the name of the run whose results are in this file: the file name without its extension.
/// Returns `None` if this is not the name of a results file.
pub fn run_name(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    [COMPRESSED_EXTENSION, EXTENSION]
        .iter()
        .find_map(|ending| name.strip_suffix(ending)?.strip_suffix('.'))
}

/// Returns the path of the results of a run in a directory: the compressed file if it exists,
/// otherwise the uncompressed one, which may be missing.
pub fn path_of(directory: &Path, run: &str) -> PathBuf {
    // The extension is appended, because the name may contain dots.
    let [compressed, plain] =
        [COMPRESSED_EXTENSION, EXTENSION].map(|ending| directory.join(format!("{run}.{ending}")));
    if compressed.exists() { compressed } else { plain }
}

/// The results of a run so far.
#[derive(Clone, Debug)]
pub struct Results {
    path: PathBuf,
    header: Header,
    record: Record,
    memory: Vec<Footprint>,
    resumed: usize,
    finished: Option<String>,
    /// The number of bytes in complete lines.
    whole: u64,
}

impl Results {
    /// Reads a results file, compressed or not. A truncated last line, left by a killed run or a
    /// full disk, is ignored.
    ///
    /// # Errors
    /// If the file cannot be read or is invalid; the error contains the file, the line, the fault
    /// and a remedy.
    pub fn read(path: &Path) -> Result<Results> {
        let shown = path.display();
        let bytes = files::read(path, MAX_RESULTS_BYTES);
        let bytes = bytes.map_err(|why| anyhow!("cannot read {shown}: {why}"))?;
        let bytes = match path.extension() {
            Some(extension) if extension == "gz" => {
                let plain = files::read_all(MultiGzDecoder::new(&*bytes), MAX_RESULTS_BYTES);
                plain.map_err(|why| anyhow!("cannot decompress {shown}: {why}"))?
            }
            _ => bytes,
        };
        Results::parse(path, &bytes).map_err(|why| anyhow!("{shown}: line {why}"))
    }

    /// Parses a file. An error begins with the number of its line.
    fn parse(path: &Path, bytes: &[u8]) -> Result<Results, String> {
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let mut lines = bytes[..whole].split(|&byte| byte == b'\n').enumerate();
        let first = lines.next().map_or(&[][..], |(_, line)| line);
        let mut results = Results {
            path: path.to_owned(),
            header: first_line(if first.is_empty() { bytes } else { first })?,
            record: Record::new(),
            memory: Vec::new(),
            resumed: 0,
            finished: None,
            whole: whole as u64,
        };
        for (index, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let taken = serde_json::from_slice(line)
                .map_err(|error| format!("it is not a result: {error}"));
            let taken = taken.and_then(|line| results.take(line));
            taken.map_err(|why| broken(index + 1, &why))?;
        }
        Ok(results)
    }

    fn take(&mut self, line: Line) -> Result<(), String> {
        match line {
            Line::Slice(measured) => return self.keep(measured),
            Line::Resumed(_) => self.resumed += 1,
            Line::Memory(memory) => self.memory = memory,
            Line::Finished(time) => self.finished = Some(time),
        }
        Ok(())
    }

    fn keep(&mut self, measured: SliceLine) -> Result<(), String> {
        let (slice, bench) = (measured.slice, &self.header.bench);
        let (cells, contenders) = (bench.cells.len(), bench.contenders.all().count());
        if slice.cell >= cells || slice.contender >= contenders {
            let Slice { cell, contender, .. } = slice;
            return Err(format!(
                "cell {cell} and contender {contender} are out of range: there are {cells} and {contenders}, counted from 0"
            ));
        }
        let outcome = measured.outcome().ok_or("a slice needs either a sample or an error")?;
        self.record.keep(slice, outcome);
        Ok(())
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the definition of the run.
    pub fn bench(&self) -> &Bench {
        &self.header.bench
    }

    /// Returns the machine, the command line, and the time of the start.
    pub fn environment(&self) -> &Environment {
        &self.header.environment
    }

    /// Returns everything that was measured.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Returns the memory of the contenders, if it was measured.
    pub(crate) fn memory(&self) -> &[Footprint] {
        &self.memory
    }

    /// Returns true if everything was measured.
    pub fn is_finished(&self) -> bool {
        self.finished.is_some()
    }

    /// Returns when the run was finished, in UTC.
    pub fn finished(&self) -> Option<&str> {
        self.finished.as_deref()
    }

    /// Returns the number of times that the run was resumed.
    pub fn resumed(&self) -> usize {
        self.resumed
    }

    /// Returns the report of what was measured so far.
    pub fn report(&self) -> Report {
        let Header { bench, environment, .. } = &self.header;
        let mut report = Report::new(bench, &self.record, environment);
        report.memory.clone_from(&self.memory);
        report.warnings.extend(self.interruptions());
        report
    }

    fn interruptions(&self) -> Option<String> {
        let times = match self.resumed {
            0 => return None,
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        Some(format!(
            "interrupted {times} and resumed: one round of a cell may span each interruption"
        ))
    }

    /// Returns the published tables with what was measured so far; `None` if this is not a suite.
    pub fn suite(&self) -> Option<SuiteReport> {
        self.header.suite.as_ref().map(|run| run.report(&self.report()))
    }
}

/// Returns the error for a line: what is wrong with it, and how to fix it.
fn broken(line: usize, why: &str) -> String {
    format!("{line}: {why}: restore the file, or remove it and measure again")
}

/// Parses the header step by step, so that the error says what is wrong.
fn first_line(line: &[u8]) -> Result<Header, String> {
    // A run killed at its start leaves no complete header.
    let cut =
        || Err("1 is missing or truncated, so nothing was measured: remove the file".to_owned());
    if line.is_empty() {
        return cut();
    }
    let is_ours = line.starts_with(format!("{{\"format\":\"{FORMAT}\"").as_bytes());
    let json = match serde_json::from_slice::<Json>(line) {
        Ok(json) if json["format"] == FORMAT && json["version"].is_u64() => json,
        Err(error) if is_ours && error.is_eof() => return cut(),
        _ => return Err(
            "1 is not the header of a results file: name a .jsonl file written by `annulus bench`"
                .into(),
        ),
    };
    let version = &json["version"];
    if *version != VERSION {
        // The file may not record the version that wrote it.
        let annulus = json["environment"]["version"].as_str().unwrap_or_default();
        let annulus = format!("annulus {annulus}");
        return Err(format!(
            "1: version {version} of the format is not supported, this annulus reads version {VERSION}: use the {} that wrote it, or measure again",
            annulus.trim_end()
        ));
    }
    let header = serde_json::from_slice(line);
    header.map_err(|error| broken(1, &format!("it is not a definition: {error}")))
}
