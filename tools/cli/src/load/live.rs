//! The progress line of a run. It is shown only if standard error is a terminal.

use super::agent::{Agent, Mark};
use super::metrics::Metrics;
use crate::output::note;
use crate::signals::{SIGHUP, SIGINT, SIGTERM, Stop};
use annulus_load::recording::{Interval, Percentiles};
use annulus_load::{Observer, Progress};
use annulus_page::text;
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

const BAR_STEPS: u64 = 1000;

/// The progress line of a run, the signals that stop the run, and others that follow it.
pub(super) struct ProgressLine {
    bar: ProgressBar,
    state: RunState,
    /// Where the figures so far are exported, if anywhere.
    metrics: Option<Metrics>,
    /// Reads the server's usage when the measured time begins and ends.
    pub(super) agent: Option<Agent>,
    pub(super) stop: Stop,
}

/// What the progress line shows.
#[derive(Default)]
struct RunState {
    elapsed: Duration,
    total: Duration,
    responses: u64,
    /// The planned number of requests, if there is one.
    requests: Option<u64>,
    /// The latest interval.
    last: Option<Interval>,
    /// The number of failures so far.
    failed: u64,
}

impl ProgressLine {
    /// Creates the progress line on standard error, and installs signal handlers.
    pub(super) fn new(metrics: Option<Metrics>, agent: Option<Agent>) -> Result<ProgressLine> {
        let bar = ProgressBar::with_draw_target(Some(BAR_STEPS), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:12}  {msg}");
        let style = style.expect("the constant template is invalid");
        let stop = Stop::install(&[SIGINT, SIGTERM, SIGHUP]).context("cannot handle signals")?;
        let (bar, state) = (bar.with_style(style), RunState::default());
        Ok(ProgressLine { bar, state, metrics, agent, stop })
    }

    /// Writes a line above the progress line.
    pub(super) fn say(&self, line: &str) {
        self.bar.suspend(|| note(line));
    }
}

impl Observer for ProgressLine {
    fn interval(&mut self, interval: &Interval) {
        if !self.bar.is_hidden() {
            self.state.add(interval);
        }
        self.metrics.iter_mut().for_each(|metrics| metrics.add(interval));
    }

    fn progress(&mut self, progress: Progress) {
        if self.bar.is_hidden() {
            return;
        }
        let Progress { elapsed, total, responses, requests, .. } = progress;
        (self.state.elapsed, self.state.total, self.state.responses) = (elapsed, total, responses);
        self.state.requests = requests;
        self.bar.set_message(self.state.line());
        let of_time = elapsed.as_secs_f64() / total.as_secs_f64().max(1e-9);
        let share = requests.map_or(of_time, |all| (responses as f64 / all as f64).max(of_time));
        self.bar.set_position((share * BAR_STEPS as f64) as u64);
    }

    fn window_opened(&mut self) {
        self.agent.iter().for_each(|agent| agent.mark(Mark::Begin));
    }

    /// Removes the line.
    fn window_closed(&mut self) {
        self.agent.iter().for_each(|agent| agent.mark(Mark::End));
        self.bar.finish_and_clear();
    }

    fn is_interrupted(&self) -> bool {
        self.stop.has_arrived()
    }
}

impl RunState {
    fn add(&mut self, interval: &Interval) {
        self.failed += interval.failed;
        self.last = Some(interval.clone());
    }

    /// Returns the remaining requests or the remaining time as text.
    fn left(&self) -> String {
        if let Some(requests) = self.requests {
            return format!("{} left", text::short(requests.saturating_sub(self.responses) as f64));
        }
        let left = self.total.saturating_sub(self.elapsed).as_secs_f64().ceil();
        format!("{} s left", text::number(left))
    }

    /// Returns the text beside the bar: the latest interval or, before the first one, the average
    /// rate.
    fn line(&self) -> String {
        let Some(last) = &self.last else {
            let rate = self.responses as f64 / self.elapsed.as_secs_f64().max(1e-9);
            return format!("{}/s  {}", text::number(rate.round()), self.left());
        };
        let rate = text::number((last.answered as f64 / last.length.max(1e-9)).round());
        let latency = Percentiles::new(&last.response);
        let time = |micros: Option<f64>| {
            micros.map_or("–".into(), |micros| text::nanoseconds(micros * 1e3))
        };
        let (p50, p99, failed) =
            (time(latency.p50), time(latency.p99), text::short(self.failed as f64));
        format!("{rate}/s  p50 {p50}  p99 {p99}  failed {failed}  {}", self.left())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_load::recording::Latencies;

    /// The width of the bar beside a line.
    const BAR_COLUMNS: usize = 12;

    fn interval(answered: u64, failed: u64) -> Interval {
        let response = (0..answered).map(|n| 100_000 + n * 100).collect::<Latencies>();
        Interval { answered, failed, response, ..Interval::new(0.0, 1.0) }
    }

    fn state(intervals: usize) -> RunState {
        let (elapsed, total) = (Duration::from_millis(12_300), Duration::from_secs(60));
        let mut state = RunState { elapsed, total, responses: 24_600, ..RunState::default() };
        (0..intervals).for_each(|n| state.add(&interval(2000, u64::from(n == 0))));
        state
    }

    #[test]
    fn the_line_has_rate_latency_failures_and_the_time_left() {
        assert_eq!(state(0).line(), "2,000/s  48 s left");
        assert_eq!(state(3).line(), "2,000/s  p50 200 µs  p99 298 µs  failed 1  48 s left");
    }

    #[test]
    fn the_line_shows_how_many_planned_requests_are_left() {
        let state = RunState { requests: Some(50_000), ..state(0) };
        assert_eq!(state.line(), "2,000/s  25.4k left");
    }

    #[test]
    fn the_line_fits_a_terminal() {
        let mut state = state(0);
        state.total = Duration::from_secs(100_000);
        let response = Latencies::from_iter([(12_345_678, 9_999_999)]);
        let (answered, failed) = (9_999_999, 99_999);
        state.add(&Interval { answered, failed, response, ..Interval::new(0.0, 1.0) });
        let line = state.line();
        assert!(BAR_COLUMNS + 2 + line.chars().count() <= 80, "{line}");
    }
}
