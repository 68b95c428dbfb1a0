//! What is shown of a run while it lasts: a line, or several with `--live`. Nothing if standard error is no terminal.

use annulus_load::Progress;
use annulus_load::recording::{Interval, Percentiles};
use annulus_page::text;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::VecDeque;
use std::time::Duration;

/// Steps of the bar.
const LENGTH: u64 = 1000;

/// Intervals that are shown one beside the other.
const SHOWN: usize = 60;

/// From few to many.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The view of a run.
pub(super) struct Live {
    bar: ProgressBar,
    is_large: bool,
    state: State,
}

/// What is known of a run while it lasts.
#[derive(Default)]
struct State {
    elapsed: Duration,
    total: Duration,
    responses: u64,
    /// The last intervals.
    recent: VecDeque<Interval>,
    /// What has happened in all intervals that are over.
    sum: Interval,
}

impl Live {
    /// A view on standard error: one line, or several if it is large.
    pub(super) fn new(is_large: bool) -> Live {
        let bar = ProgressBar::with_draw_target(Some(LENGTH), ProgressDrawTarget::stderr());
        let template = if is_large { "{bar:70} {percent:>3} %\n{msg}" } else { "{bar:12}  {msg}" };
        let style = ProgressStyle::with_template(template).expect("a template that is a constant");
        Live { bar: bar.with_style(style), is_large, state: State::default() }
    }

    /// An interval is over.
    pub(super) fn interval(&mut self, interval: &Interval) {
        if !self.bar.is_hidden() {
            self.state.add(interval);
        }
    }

    /// The run goes on.
    pub(super) fn progress(&mut self, progress: Progress) {
        if self.bar.is_hidden() {
            return;
        }
        let Progress { elapsed, total, responses, .. } = progress;
        (self.state.elapsed, self.state.total, self.state.responses) = (elapsed, total, responses);
        let message = if self.is_large { self.state.lines() } else { self.state.line() };
        self.bar.set_message(message);
        let share = elapsed.as_secs_f64() / total.as_secs_f64().max(1e-9);
        self.bar.set_position((share * LENGTH as f64) as u64);
    }

    /// The run is over: the view goes away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl State {
    fn add(&mut self, interval: &Interval) {
        self.sum.length += interval.length;
        self.sum.add(interval);
        if self.recent.len() == SHOWN {
            self.recent.pop_front();
        }
        self.recent.push_back(interval.clone());
    }

    /// Seconds that are left.
    fn left(&self) -> String {
        let left = self.total.saturating_sub(self.elapsed).as_secs_f64().ceil();
        format!("{} s left", text::number(left))
    }

    /// One line beside the bar: the last interval, or the rate of the run before there is one.
    fn line(&self) -> String {
        let Some(last) = self.recent.back() else {
            let rate = self.responses as f64 / self.elapsed.as_secs_f64().max(1e-9);
            return format!("{}/s  {}", text::number(rate.round()), self.left());
        };
        let [rate, p50, p99, failed] = figures(last).map(|(_, value)| value);
        let failed = if self.sum.failed > 0 { text::short(self.sum.failed as f64) } else { failed };
        format!("{rate}  p50 {p50}  p99 {p99}  failed {failed}  {}", self.left())
    }

    /// Several lines below the bar.
    fn lines(&self) -> String {
        let mut lines = vec![self.left(), String::new()];
        let Some(last) = self.recent.back() else { return lines.join("\n") };
        lines.push(format!("{:<10}{:>16}{:>16}", "", "now", "the whole run"));
        let both = figures(last).into_iter().zip(figures(&self.sum));
        lines.extend(
            both.map(|((name, now), (_, whole))| format!("{name:<10}{now:>16}{whole:>16}")),
        );
        lines.push(String::new());
        type Height = fn(&Interval) -> f64;
        let heights: [(&str, Height); 3] = [
            ("rate", |interval| interval.answered as f64 / interval.length),
            ("p50", |interval| interval.response.quantile(0.5) as f64),
            ("p99", |interval| interval.response.quantile(0.99) as f64),
        ];
        let heights =
            heights.map(|(name, of)| format!("{name:<10}{}", columns(self.recent.iter().map(of))));
        lines.extend(heights);
        lines.join("\n")
    }
}

/// The figures that are shown of an interval, by name.
fn figures(interval: &Interval) -> [(&'static str, String); 4] {
    let rate = interval.answered as f64 / interval.length.max(1e-9);
    let latency = Percentiles::new(&interval.response);
    let time =
        |micros: Option<f64>| micros.map_or("–".into(), |micros| text::nanoseconds(micros * 1e3));
    [
        ("rate", text::number(rate.round()) + "/s"),
        ("p50", time(latency.p50)),
        ("p99", time(latency.p99)),
        ("failed", text::short(interval.failed as f64)),
    ]
}

/// A column for each value, as high as its share of the largest.
fn columns(values: impl Iterator<Item = f64> + Clone) -> String {
    let largest = values.clone().fold(f64::MIN_POSITIVE, f64::max);
    let height = |value: f64| HEIGHTS[((value / largest * 8.0).ceil() as usize).clamp(1, 8) - 1];
    values.map(height).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use annulus_load::recording::Latencies;

    /// The width of the bar beside a line.
    const BAR: usize = 12;

    fn interval(answered: u64, failed: u64) -> Interval {
        let response = (0..answered).map(|n| 100_000 + n * 100).collect::<Latencies>();
        Interval { answered, failed, response, ..Interval::new(0.0, 1.0) }
    }

    fn state(intervals: usize) -> State {
        let (elapsed, total) = (Duration::from_millis(12_300), Duration::from_secs(60));
        let mut state = State { elapsed, total, responses: 24_600, ..State::default() };
        (0..intervals).for_each(|n| state.add(&interval(2000, u64::from(n == 0))));
        state
    }

    #[test]
    fn the_line_has_rate_latency_failures_and_the_time_left() {
        assert_eq!(state(0).line(), "2,000/s  48 s left");
        assert_eq!(state(3).line(), "2,000/s  p50 200 µs  p99 298 µs  failed 1  48 s left");
    }

    #[test]
    fn the_line_fits_a_terminal() {
        let mut state = state(0);
        state.total = Duration::from_secs(100_000);
        let response = Latencies::from_iter([(12_345_678, 9_999_999)]);
        let (answered, failed) = (9_999_999, 99_999);
        state.add(&Interval { answered, failed, response, ..Interval::new(0.0, 1.0) });
        let line = state.line();
        assert!(BAR + 2 + line.chars().count() <= 80, "{line}");
    }

    #[test]
    fn the_large_view_fits_a_terminal() {
        for intervals in [0, 1, 500] {
            let lines = state(intervals).lines();
            assert!(lines.lines().all(|line| line.chars().count() <= 80), "{lines}");
            assert!(lines.lines().count() < 20, "{lines}");
        }
        let lines = state(500).lines();
        assert_eq!(lines.matches('█').count(), 3 * SHOWN, "{lines}");
        assert!(lines.contains("failed") && lines.contains("the whole run"), "{lines}");
    }

    #[test]
    fn columns_are_as_high_as_their_share() {
        assert_eq!(columns([0.0, 1.0, 4.0, 8.0].into_iter()), "▁▁▄█");
        assert_eq!(columns([0.0, 0.0].into_iter()), "▁▁");
    }
}
