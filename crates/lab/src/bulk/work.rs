//! Our own contenders.

use std::time::Duration;

use annulus::DriverChoice;
use annulus_load::bulk::{self, BulkPlan, BulkReport, LENGTHS, MAX_WINDOW};
use anyhow::Result;

use crate::bench::Sample;
use crate::jobs;
use crate::usage::{UsageError, own};

/// The drivers of our contenders, and whether they use segmentation and coalescing.
const OWN: [(&str, (DriverChoice, bool)); 4] = [
    ("uring", (DriverChoice::Uring, true)),
    ("epoll", (DriverChoice::Epoll, true)),
    ("uring-single", (DriverChoice::Uring, false)),
    ("epoll-single", (DriverChoice::Epoll, false)),
];

/// Acts as a contender: answers jobs until there are no more.
///
/// # Errors
/// If the name or a job is invalid, or a transfer fails.
pub fn answer_all(
    name: &str,
    sender_pin: Option<usize>,
    receiver_pin: Option<usize>,
) -> Result<()> {
    let (driver, segments) = own(&OWN, name)?;
    let plan = BulkPlan { segments, driver, sender_pin, receiver_pin, ..BulkPlan::new() };
    jobs::answer_all(|job| {
        let plan = requested(&plan, job)?;
        Ok(sample(&bulk::run(&plan)?, plan.length))
    })
}

/// The plan with the parameters of a job.
fn requested(plan: &BulkPlan, job: &str) -> Result<BulkPlan, UsageError> {
    let parsed = || {
        let [length, window, seconds] = *job.split(' ').collect::<Vec<_>>() else { return None };
        let (length, window) = (length.parse().ok()?, window.parse().ok()?);
        let duration = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
        let plan = BulkPlan { length, window, duration, ..plan.clone() };
        plan.validate().is_ok().then_some(plan)
    };
    let (least, most) = (LENGTHS.start(), LENGTHS.end());
    let usage = format!(
        "'{job}' is not BYTES WINDOW SECONDS, with {least} to {most} bytes and a window of 1 to {MAX_WINDOW}"
    );
    parsed().ok_or(UsageError(usage))
}

fn sample(report: &BulkReport, length: usize) -> Sample {
    let ns = |time: Duration| time.as_nanos() as f64;
    let received = report.received as f64;
    Sample::from([
        ("operations", received),
        ("lost", report.lost as f64),
        ("bytes", received * length as f64),
        ("ns", ns(report.time)),
        ("sender_cpu_ns", ns(report.sender_cpu)),
        ("receiver_cpu_ns", ns(report.receiver_cpu)),
    ])
}
