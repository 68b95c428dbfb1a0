//! The figures of a running load for Prometheus: served over HTTP, or written to a file for the
//! textfile collector of the node exporter. OTLP, which the feature `otlp` adds, has the same
//! figures.

#[cfg(feature = "otlp")]
use super::otlp::Otlp;
use crate::http::{self, Answer, METRICS_TIMEOUT, PROMETHEUS_MEDIA_TYPE, Refusal, Request};
use crate::output::note;
use crate::usage::UsageError;
use annulus::Runtime;
use annulus_lab::replace::replace;
use annulus_load::Address;
use annulus_load::recording::{Interval, Latencies};
use anyhow::{Context, Result};
use clap::Args;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

/// The upper ends of the latency buckets, in ns: three per decade from 10 µs to 10 s.
pub(super) const BUCKET_ENDS: [u64; 19] = [
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];
const HEADING: &str = "Metrics";

/// A counter: its name, its description, and how to read it.
type CounterFigure = (&'static str, &'static str, fn(&Interval) -> u64);
/// A histogram: its name, its description, and how to read it.
type HistogramFigure = (&'static str, &'static str, fn(&Interval) -> &Latencies);

pub(super) const COUNTERS: [CounterFigure; 8] = [
    ("requests_sent_total", "Requests sent, including those sent again.", |total| total.sent),
    ("responses_total", "Complete replies.", |total| total.answered),
    ("responses_refused_total", "Replies that report a failure or are unexpected.", |total| {
        total.refused
    }),
    ("requests_failed_total", "Requests that were sent and never answered.", |total| total.failed),
    ("requests_late_total", "Requests sent over 1 ms after they were due.", |total| total.late),
    ("reconnects_total", "Connections that replaced others.", |total| total.reconnects),
    ("bytes_sent_total", "Bytes sent.", |total| total.bytes_sent),
    ("bytes_received_total", "Bytes received.", |total| total.bytes_received),
];

pub(super) const HISTOGRAMS: [HistogramFigure; 2] = [
    ("response_seconds", "Response times, from when requests were due.", |total| &total.response),
    ("service_seconds", "Service times, from when requests were sent.", |total| &total.service),
];

/// The options for metrics.
#[derive(Args, Debug)]
pub(super) struct MetricsOptions {
    /// Serve the figures so far at http://HOST:PORT/metrics, as Prometheus text
    #[arg(long, value_name = "HOST:PORT", help_heading = HEADING)]
    prometheus: Option<Address>,
    /// Write the figures so far to this file after each interval, as Prometheus text for the
    /// textfile collector
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    prometheus_file: Option<PathBuf>,
    /// Send the figures so far to an OpenTelemetry collector every second, by OTLP over HTTP: its
    /// URL, such as http://127.0.0.1:4318. The variables OTEL_… set headers, attributes and more
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", help_heading = HEADING)]
    otlp: Option<::http::Uri>,
}

/// The figures so far, and where they are written.
#[derive(Debug)]
pub(super) struct Metrics {
    total: Arc<Mutex<Interval>>,
    file: Option<PathBuf>,
    #[cfg(feature = "otlp")]
    otlp: Option<Otlp>,
}

impl MetricsOptions {
    /// Starts serving, and exports the first figures, so that a bad address or path is reported
    /// early.
    pub(super) fn start(self) -> Result<Option<Metrics>> {
        if !self.are_wanted() {
            return Ok(None);
        }
        let total = Arc::<Mutex<Interval>>::default();
        if let Some(address) = self.prometheus {
            serve(&address, &total)?;
        }
        let metrics = Metrics {
            total,
            file: self.prometheus_file,
            #[cfg(feature = "otlp")]
            otlp: self.otlp.as_ref().map(Otlp::start).transpose()?,
        };
        metrics.write().map_err(|error| UsageError(format!("{error:#}; choose another file")))?;
        Ok(Some(metrics))
    }

    fn are_wanted(&self) -> bool {
        #[cfg(feature = "otlp")]
        if self.otlp.is_some() {
            return true;
        }
        self.prometheus.is_some() || self.prometheus_file.is_some()
    }
}

impl Metrics {
    /// Adds an interval. If the file cannot be written, reports that once and writes no more.
    pub(super) fn add(&mut self, interval: &Interval) {
        #[cfg(feature = "otlp")]
        self.otlp.iter_mut().for_each(|otlp| otlp.add(interval));
        self.total.lock().unwrap_or_else(PoisonError::into_inner).add(interval);
        if let Err(error) = self.write() {
            self.file = None;
            note(format_args!("annulus: {error:#}; the metrics are no longer written"));
        }
    }

    /// Replaces the file as a whole, so that no reader sees a partial file.
    fn write(&self) -> Result<()> {
        let Some(path) = &self.file else { return Ok(()) };
        let text = prometheus(&self.total.lock().unwrap_or_else(PoisonError::into_inner));
        replace(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Starts a thread that serves the metrics until accepting connections fails or the process ends.
/// Returns once it listens.
fn serve(address: &Address, total: &Arc<Mutex<Interval>>) -> Result<()> {
    let addresses = address.resolve()?;
    let total = Arc::clone(total);
    let (sender, ready) = mpsc::channel();
    let serve = move || {
        let Ok(mut runtime) = Runtime::builder().build().map_err(|error| sender.send(Err(error)))
        else {
            return;
        };
        runtime.block_on(async move {
            let listener = match http::bind(&addresses) {
                Ok(listener) => listener,
                Err(error) => {
                    _ = sender.send(Err(error));
                    return;
                }
            };
            _ = sender.send(listener.local_addr());
            let answer = move |request: Request| {
                let text = prometheus(&total.lock().unwrap_or_else(PoisonError::into_inner));
                async move {
                    match request.path.as_str() {
                        "/metrics" => Ok(Answer::new(PROMETHEUS_MEDIA_TYPE, text)),
                        _ => Err(Refusal::unknown("the only path is /metrics")),
                    }
                }
            };
            if let Err(error) = http::serve(listener, METRICS_TIMEOUT, answer).await {
                note(format_args!("annulus: the metrics are no longer served: {error}"));
            }
        });
    };
    thread::Builder::new().spawn(serve).context("cannot start a thread for --prometheus")?;
    let bound = ready.recv().context("the thread of --prometheus has failed")?;
    let bound = bound.with_context(|| format!("cannot serve metrics at {address}"))?;
    note(format_args!("annulus load: metrics at http://{bound}/metrics"));
    Ok(())
}

fn prometheus(total: &Interval) -> String {
    let mut text = String::new();
    for (name, help, of) in COUNTERS {
        let value = of(total);
        _ = write!(
            text,
            "# HELP annulus_load_{name} {help}\n# TYPE annulus_load_{name} counter\n\
             annulus_load_{name} {value}\n"
        );
    }
    if !total.statuses.is_empty() {
        text += "# HELP annulus_load_status_total Replies by HTTP status.\n\
                 # TYPE annulus_load_status_total counter\n";
        for (status, count) in &total.statuses {
            _ = writeln!(text, "annulus_load_status_total{{status=\"{status}\"}} {count}");
        }
    }
    for (name, help, of) in HISTOGRAMS {
        add_histogram(&mut text, name, help, of(total));
    }
    text
}

fn add_histogram(text: &mut String, name: &str, help: &str, latencies: &Latencies) {
    let name = format!("annulus_load_{name}");
    _ = write!(text, "# HELP {name} {help}\n# TYPE {name} histogram\n");
    let (mut buckets, mut below) = (latencies.buckets().iter().peekable(), 0);
    for end in BUCKET_ENDS {
        while let Some((_, count)) = buckets.next_if(|(latency, _)| *latency <= end) {
            below += count;
        }
        _ = writeln!(text, "{name}_bucket{{le=\"{}\"}} {below}", end as f64 / 1e9);
    }
    let (count, sum) = (latencies.len(), latencies.mean() * latencies.len() as f64 / 1e9);
    _ = write!(
        text,
        "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}\n"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_counters_and_cumulative_histograms() {
        let total = Interval {
            sent: 5,
            answered: 4,
            statuses: [(200, 3), (503, 1)].into(),
            response: Latencies::from_iter([15_000, 15_000, 400_000, 20_000_000_000]),
            ..Interval::default()
        };
        let text = prometheus(&total);
        for line in [
            "# TYPE annulus_load_requests_sent_total counter",
            "annulus_load_requests_sent_total 5",
            "annulus_load_status_total{status=\"503\"} 1",
            "# TYPE annulus_load_response_seconds histogram",
            "annulus_load_response_seconds_bucket{le=\"0.00001\"} 0",
            "annulus_load_response_seconds_bucket{le=\"0.00002\"} 2",
            "annulus_load_response_seconds_bucket{le=\"0.0005\"} 3",
            "annulus_load_response_seconds_bucket{le=\"10\"} 3",
            "annulus_load_response_seconds_bucket{le=\"+Inf\"} 4",
            "annulus_load_response_seconds_count 4",
            "annulus_load_service_seconds_count 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in:\n{text}");
        }
    }
}
