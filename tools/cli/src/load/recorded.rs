//! Where the recording of a run goes, beside `--json`.

use super::logs::{self, Logs};
use crate::duration;
use crate::output::{JsonFile, Target};
use crate::usage::UsageError;
use annulus_load::recording::{Interval, Recording};
use annulus_load::{Plan, clock, page};
use anyhow::Result;
use clap::Args;
use std::time::Duration;

/// Where the recording of a run goes.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Recordings")]
pub(super) struct OutputArgs {
    /// Write an interval log of HdrHistogram while the run lasts, in ns; the
    /// times since requests were written have the tag service
    #[arg(long, value_name = "FILE|-")]
    hdr: Option<Target>,
    /// Write a page with charts, as `load page` makes it of a recording
    #[arg(long, value_name = "FILE|-")]
    html: Option<Target>,
    /// The length of an interval of the recording
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = duration::parse)]
    interval: Duration,
    /// A name for the recording
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
}

/// The outputs of a run, and the label that is added to its recording.
#[derive(Default)]
pub(super) struct Output {
    logs: Logs,
    label: Option<String>,
    page: Option<JsonFile>,
    takes_stdout: bool,
}

impl OutputArgs {
    /// Refuses more than one output on standard output.
    fn check(&self, json: Option<&Target>) -> Result<(), UsageError> {
        let all = [json, self.hdr.as_ref(), self.html.as_ref()];
        match all.into_iter().flatten().filter(|target| **target == Target::Stdout).count() {
            0 | 1 => Ok(()),
            _ => Err(UsageError(
                "standard output takes one of --json, --hdr and --html: name files for the others"
                    .into(),
            )),
        }
    }

    /// Whether an option was given that is about recordings.
    pub(super) fn given(&self) -> [(&'static str, bool); 3] {
        [
            ("--hdr", self.hdr.is_some()),
            ("--html", self.html.is_some()),
            ("--label", self.label.is_some()),
        ]
    }

    fn takes_stdout(&self) -> bool {
        [&self.hdr, &self.html].into_iter().flatten().any(|target| *target == Target::Stdout)
    }

    /// Opens the logs.
    pub(super) fn open(&self, json: Option<&Target>) -> Result<Output> {
        self.check(json)?;
        Ok(Output {
            logs: Logs::open(self.hdr.clone())?,
            label: self.label.clone(),
            page: self.html.clone().map(Target::open).transpose()?,
            takes_stdout: self.takes_stdout(),
        })
    }

    /// Sets what is recorded.
    pub(super) fn set(&self, plan: &mut Plan) {
        plan.interval = self.interval;
    }
}

impl Output {
    /// Measuring begins.
    pub(super) fn start(&mut self) {
        self.logs.start(clock::unix().as_secs_f64());
    }

    pub(super) fn write(&mut self, interval: &Interval) {
        self.logs.write(interval);
    }

    /// Writes the page of the recording, if one was asked for.
    pub(super) fn write_page(&mut self, recording: &Recording) -> Result<()> {
        self.page.take().map_or(Ok(()), |page| page.write(&page::html(recording)))
    }

    /// Whether a log or the page goes to standard output.
    pub(super) fn takes_stdout(&self) -> bool {
        self.takes_stdout
    }

    /// Adds to the recording what the run does not know.
    pub(super) fn complete(&self, recording: &mut Recording) {
        let run = &mut recording.run;
        (run.command, run.label) = (logs::command(), self.label.clone());
    }

    /// Fails if a log lacks something.
    pub(super) fn finish(self) -> Result<()> {
        self.logs.finish()
    }
}
