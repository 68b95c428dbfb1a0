//! Our own contenders at work: a question a line, an answer a line.

use super::contenders::Contender;
use super::setup::BulkArgs;
use crate::output;
use crate::usage::Misuse;
use annulus_load::bulk::{self, BulkPlan, LENGTHS, MAX_WINDOW};
use anyhow::{Context, Result};
use std::io::{self, BufRead};
use std::time::Duration;

/// Answers until there are no more questions.
pub(super) fn answer_all(contender: Contender, args: &BulkArgs) -> Result<()> {
    let name = contender.name();
    let style = contender.style().ok_or_else(|| Misuse(format!("{name} is none of ours")))?;
    let plan = BulkPlan {
        segments: style.segments,
        driver: style.driver,
        sender_pin: args.pins.sender_pin,
        receiver_pin: args.pins.receiver_pin,
        ..BulkPlan::new()
    };
    for question in io::stdin().lock().lines() {
        let question = question.context("cannot read the next question")?;
        let report = bulk::run(&asked(&plan, &question)?)?;
        let [time, sender, receiver] =
            [report.time, report.sender_cpu, report.receiver_cpu].map(|time| time.as_nanos());
        output::print(&format!(
            "{} {} {time} {sender} {receiver}\n",
            report.received, report.lost
        ))?;
    }
    Ok(())
}

/// The plan with what a question asks for.
fn asked(plan: &BulkPlan, question: &str) -> Result<BulkPlan> {
    let parsed = || {
        let [length, window, seconds] = *question.split(' ').collect::<Vec<_>>() else {
            return None;
        };
        let (length, window) = (length.parse().ok()?, window.parse().ok()?);
        let duration = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
        let plan = BulkPlan { length, window, duration, ..plan.clone() };
        plan.validate().is_ok().then_some(plan)
    };
    let (least, most) = (LENGTHS.start(), LENGTHS.end());
    let usage = format!(
        "'{question}' is not BYTES WINDOW SECONDS, with {least} to {most} bytes and a window of 1 to {MAX_WINDOW}"
    );
    Ok(parsed().ok_or(Misuse(usage))?)
}
