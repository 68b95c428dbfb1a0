//! `annulus doctor`: the features and limits of this machine.

mod findings;
mod limits;
mod render;

use crate::output::{self, Target};
use annulus::DriverChoice;
use anyhow::Result;
use clap::Args;
use findings::Findings;
use std::process::ExitCode;

const AFTER_HELP: &str = "\
Exits with 0 if a driver works; with --require, only if that driver does.

Examples:
  annulus doctor
  annulus doctor --require uring && annulus echo --driver uring
  annulus doctor --json - | jq .driver";

/// Report what io_uring offers here, and which driver would be used
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct DoctorArgs {
    /// Fail unless this driver works here: uring, epoll, or auto for any
    #[arg(long, value_name = "DRIVER")]
    require: Option<DriverChoice>,
    /// Write the findings as JSON to a file, or to standard output as -
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
}

pub(crate) fn run(args: DoctorArgs) -> Result<ExitCode> {
    let json = args.json.map(Target::open).transpose()?;
    let findings = Findings::gather();
    output::deliver(json, &findings, Some(render::page(&findings)))?;
    if let Some(choice) = args.require {
        findings::build(choice)?;
    }
    Ok(if findings.driver.works() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
