//! The flight recorder: what the timed turns of the last seconds did.

use annulus_driver::Counters;
use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};
use std::panic::Location;
use std::time::Duration;

/// Records that are kept, in 224 KiB: of a loop with 50 polls a turn the last four seconds, if two turns in 100 ms are timed.
const KEPT: usize = 4096;
const _: () = assert!(KEPT * size_of::<Record>() == 224 * 1024);

/// The last turns, polls and waits of a runtime that measures: with [`slow_poll`](crate::Builder::slow_poll) all, with
/// [`measure`](crate::Builder::measure) those of two turns every 100 ms, up to 4,096 records. [`Handle::trace`](crate::Handle::trace) takes it.
///
/// Its text, or that of [`trace_events`] for several runtimes, is in the Trace Event Format, which `ui.perfetto.dev` and `chrome://tracing`
/// open: a span for each turn, inside it one for each poll with the place that spawned the task, and one for each wait in the kernel; and at
/// the end of each turn the number of completions so far, and of those that came late.
///
/// ```
/// use annulus::signal::{Signal, signals};
///
/// /// Writes the last seconds to a file at each SIGUSR2.
/// async fn write_traces() -> std::io::Result<()> {
///     let mut signals = signals(&[Signal::SIGUSR2])?;
///     while signals.recv().await.is_ok() {
///         let trace = annulus::handle()?.trace().await?;
///         annulus::fs::write("trace.json", trace.to_string()).await?;
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Trace(Vec<Record>);

/// A record: what it was, when it began by the kernel's clock, and how long it took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) what: What,
    pub(super) began: Duration,
    pub(super) took: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// From the return from the kernel to the next entry.
    Turn,
    /// In the kernel.
    Wait,
    /// Of the task that was spawned there; of the future of `block_on`.
    Poll(Option<&'static Location<'static>>),
    /// Completions so far, and of those the late ones.
    Completions { all: u64, late: u64 },
}

/// The last records.
pub(super) struct FlightRecorder(VecDeque<Record>);

impl FlightRecorder {
    /// With its memory, so that recording allocates nothing.
    pub(super) fn new() -> Self {
        Self(VecDeque::with_capacity(KEPT))
    }

    pub(super) fn push(&mut self, what: What, began: Duration, took: Duration) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Record { what, began, took });
    }

    /// The driver's completions so far, noted at a time.
    pub(super) fn note_completions(&mut self, counters: &Counters, at: Duration) {
        let what = What::Completions { all: counters.cqes, late: counters.late_completions };
        self.push(what, at, Duration::ZERO);
    }

    pub(super) fn trace(&self) -> Trace {
        Trace(self.0.iter().copied().collect())
    }
}

/// The traces of several runtimes as one, each with a name: a thread each in the viewer. The times are those of one clock.
///
/// ```
/// let mut runtime = annulus::Runtime::builder().measure(true).build()?;
/// let trace = runtime.block_on(async { annulus::handle()?.trace().await })?;
/// let text = annulus::stats::trace_events([("shard 0", &trace)]);
/// assert!(text.starts_with("{\"traceEvents\":["));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn trace_events<'a>(traces: impl IntoIterator<Item = (&'a str, &'a Trace)>) -> String {
    let events = traces.into_iter().enumerate().flat_map(|(thread, (name, trace))| {
        let name = Quoted(name);
        let head = format!(
            "{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{thread},\"args\":{{\"name\":{name}}}}}"
        );
        std::iter::once(head).chain(trace.0.iter().map(move |record| record.event(thread)))
    });
    let events: Vec<String> = events.collect();
    format!("{{\"traceEvents\":[\n{}\n]}}\n", events.join(",\n"))
}

impl Display for Trace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&trace_events([("annulus", self)]))
    }
}

impl Record {
    /// The event of the format: times are in microseconds.
    fn event(&self, thread: usize) -> String {
        let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
        let (ts, dur) = (micros(self.began), micros(self.took));
        let span = |name: &dyn Display| {
            format!(
                "{{\"name\":{name},\"ph\":\"X\",\"pid\":1,\"tid\":{thread},\"ts\":{ts:.3},\"dur\":{dur:.3}}}"
            )
        };
        match self.what {
            What::Turn => span(&"\"turn\""),
            What::Wait => span(&"\"wait\""),
            What::Poll(None) => span(&"\"block_on\""),
            What::Poll(Some(place)) => span(&Quoted(&format!("{}:{}", place.file(), place.line()))),
            What::Completions { all, late } => format!(
                "{{\"name\":\"completions {thread}\",\"ph\":\"C\",\"pid\":1,\"tid\":{thread},\"ts\":{ts:.3},\"args\":{{\"all\":{all},\"late\":{late}}}}}"
            ),
        }
    }
}

/// A string of JSON.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for part in self.0.chars() {
            match part {
                '"' | '\\' => write!(f, "\\{part}")?,
                '\0'..='\x1f' => write!(f, "\\u{:04x}", part as u32)?,
                _ => write!(f, "{part}")?,
            }
        }
        f.write_str("\"")
    }
}
