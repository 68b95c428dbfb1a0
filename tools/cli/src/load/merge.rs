//! `annulus load merge`: recordings of several machines as one.

use super::{logs::Logs, recordings, summary};
use crate::output::{Target, deliver_with};
use annulus_load::recording::{Alignment, Recording, merge};
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Counts and histograms are added exactly, bucket by bucket, so that percentiles
are those of all requests. Runs that were not together, of other protocols or
with other classes of requests are refused; other differences of the plans are
doubts. Intervals are aligned by when each run began, by the clock of its machine.

Examples:
  annulus load merge rank-*.json                     the sum as text
  annulus load merge rank-*.json -o all.json         and as a recording
  annulus load merge a.json b.json -o - | jq .latency_us";

/// Add recordings of runs on several machines
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct MergeArgs {
    /// Recordings, written by --json
    #[arg(required = true, value_name = "RECORDING")]
    recordings: Vec<PathBuf>,
    /// Write the sum as a recording to a file, or to standard output as -
    #[arg(short, long, value_name = "FILE|-")]
    output: Option<Target>,
    /// Write an interval log of HdrHistogram
    #[arg(long, value_name = "FILE|-")]
    hdr: Option<Target>,
    /// A name for the sum
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// Align the recordings at their own starts, whatever their clocks say
    #[arg(long)]
    ignore_clocks: bool,
}

pub(super) fn run(args: MergeArgs) -> Result<ExitCode> {
    let MergeArgs { recordings: files, output, hdr, label, ignore_clocks } = args;
    for target in [&output, &hdr].into_iter().flatten() {
        recordings::check_distinct(target, &files)?;
    }
    let recordings: Vec<_> = files.iter().map(read).collect::<Result<_>>()?;
    let alignment = if ignore_clocks { Alignment::Starts } else { Alignment::Clocks };
    let mut merged = merge(&recordings, alignment).context("cannot merge")?;
    merged.run.label = label.or(merged.run.label);
    let mut logs = Logs::open(hdr)?;
    logs.start(merged.run.started);
    merged.intervals.iter().for_each(|interval| logs.write(interval));
    let output = output.map(Target::open).transpose()?;
    deliver_with(output, |writer| merged.write(writer), Some(summary::of(&merged)))?;
    logs.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a recording; its name is that of its file.
fn read(path: impl AsRef<Path>) -> Result<(String, Recording)> {
    let path = path.as_ref();
    Ok((path.display().to_string(), recordings::open(path)?))
}
