//! `annulus load page`: the page of a kept recording.

use super::recordings;
use crate::output::Target;
use annulus_load::page;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

const EXPLAIN: &str = "\
The page is one file of HTML: latency by percentile, over time and as a heat
map, rates, failures, doubts, the host and the command. It loads nothing and
runs no script, follows the reader's choice of light and dark, and can be
printed.

Examples:
  annulus load page run.json -o run.html
  annulus load page run.json -o - | gzip > run.html.gz";

/// Make a page with charts of a recording
#[derive(Args, Debug)]
#[command(after_help = EXPLAIN)]
pub(super) struct PageArgs {
    /// A recording, as `annulus load --json` writes it
    #[arg(value_name = "RECORDING")]
    recording: PathBuf,
    /// Where to write the page: a file, or standard output as -
    #[arg(short, long, value_name = "FILE|-")]
    output: Target,
}

pub(super) fn run(args: PageArgs) -> Result<ExitCode> {
    let recording = recordings::open(&args.recording)?;
    // Not opened before: the file may be the recording, by mistake or through a link.
    recordings::check_distinct(&args.output, [&args.recording])?;
    args.output.open()?.write(&page::html(&recording))?;
    Ok(ExitCode::SUCCESS)
}
