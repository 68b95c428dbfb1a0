//! `annulus bench build`: builds peers and lists missing tools.

use crate::duration;
use crate::output::{self, note};
use crate::usage::UsageError;
use annulus_lab::describe::Description;
use annulus_lab::distinct;
use annulus_lab::peer::{BuildOutcome, Peers};
use annulus_load::clock;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::env;
use std::process::ExitCode;

/// How many lines from the end of a failed build are shown.
const MAX_FAILURE_LINES: usize = 20;

const AFTER_HELP: &str = "\
Peers are built into target/peers. A peer whose tools are missing here is left
out, with a line that says how to install them. Programs that are used but not
built, such as nginx or wrk, are reported in the same way. The systems of the
published documents are built from their sources, which are in the directory
given by ANNULUS_ORIGINALS, or are fetched by git. A run builds what it needs by
itself; this command builds beforehand, and shows why a build fails.

Exit status: 0 built or left out; 1 a build failed; 2 usage error.

Examples:
  annulus bench build
  annulus bench build hyper liburing-nop";

/// Build the peers that benches measure
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct BuildArgs {
    /// Peers by name [default: all]
    #[arg(value_name = "PEER")]
    names: Vec<String>,
}

pub(super) fn run(args: &BuildArgs) -> Result<ExitCode> {
    let here = env::current_dir().context("cannot read the current directory")?;
    let peers = Peers::find(&here).context(
        "no directory 'tools/peers' here or in a parent: run this inside the repository",
    )?;
    let names = names(args, &peers)?;
    let mut failed = Vec::new();
    for (index, name) in names.iter().enumerate() {
        note(format_args!("annulus: building peer {name} ({} of {})", index + 1, names.len()));
        let began = clock::now();
        let built = peers.build(name).with_context(|| format!("peer {name}"))?;
        let took = clock::now() - began;
        let mut text = format!("{name:<22}{}\n", outcome(&built, &duration::shown(took)));
        if let BuildOutcome::Failed { printed, .. } = &built {
            text += &tail(printed);
            failed.push(name.as_str());
        }
        output::print(&text)?;
    }
    if args.names.is_empty() {
        missing_programs()?;
    }
    if !failed.is_empty() {
        bail!("did not build: {}", failed.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the named peers, or all of them.
fn names(args: &BuildArgs, peers: &Peers) -> Result<Vec<String>> {
    let all = peers.all();
    distinct(&args.names, |name| format!("peer '{name}'"))?;
    if let Some(name) = args.names.iter().find(|name| !all.contains(name)) {
        return Err(UsageError(format!(
            "unknown peer '{name}': known peers are {}",
            all.join(", ")
        ))
        .into());
    }
    Ok(if args.names.is_empty() { all } else { args.names.clone() })
}

fn outcome(built: &BuildOutcome, took: &str) -> String {
    match built {
        BuildOutcome::Program(_) => format!("built, {took}"),
        BuildOutcome::Missing(why) => format!("left out: {why}"),
        BuildOutcome::Failed { status, .. } => format!("failed, {took}: {status}"),
    }
}

/// Returns the last lines of a build, indented.
fn tail(printed: &str) -> String {
    let lines: Vec<&str> = printed.lines().collect();
    let last = &lines[lines.len().saturating_sub(MAX_FAILURE_LINES)..];
    last.iter().map(|line| format!("    {line}\n")).collect()
}

/// Prints the programs that comparisons use but that are not installed.
fn missing_programs() -> Result<()> {
    let mut missing: Vec<String> = Description::names()
        .filter_map(|name| Description::find(name)?.comparison())
        .flat_map(|comparison| comparison.missing().collect::<Vec<_>>())
        .collect();
    missing.sort();
    missing.dedup();
    missing.iter().try_for_each(|why| output::print(&format!("left out: {why}\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_build_are_shown() {
        let text: String = (0..30).map(|n| format!("line {n}\n")).collect();
        let tail = tail(&text);
        assert_eq!((tail.lines().count(), tail.lines().next()), (20, Some("    line 10")));
        assert_eq!(super::tail("one\n"), "    one\n");
        assert_eq!(super::tail(""), "");
    }
}
