//! The flight recorder: the turns of the last seconds.

use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};
use std::panic::Location;
use std::time::Duration;

/// Number of records that are kept. They take 224 KiB, whose pages are in memory once they have
/// been used. With a coarse clock that ticks every 4 ms, they cover at least the last two seconds
/// of a loop that is never idle.
const MAX_TRACE_RECORDS: usize = 4096;
const _: () = assert!(MAX_TRACE_RECORDS * size_of::<Record>() == 224 * 1024);

/// The last seconds of a runtime: up to 4,096 records of turns, polls and waits. Every runtime
/// keeps them, and [`Handle::trace`](crate::Handle::trace) returns them.
///
/// A trace is displayed in the Trace Event Format, which `ui.perfetto.dev` and `chrome://tracing`
/// can open. [`trace_events`] does the same for several runtimes. The events are:
///
/// - *turn* and *wait*: two exactly timed turns per 100 ms, each from the return from the kernel to
///   the next entry, and the time in the kernel. In such a turn, the first 64 polls and all polls
///   of at least 1 ms are spans that show where the task was spawned. With
///   [`slow_poll`](crate::Builder::slow_poll), this applies to all turns and all polls.
/// - *turns* and *turns, then wait*: about 4 ms of other turns, including the waits between them,
///   with the numbers of turns and polls. The second kind ends with a wait in the kernel, which may
///   be long.
/// - *turn*, with *polled* events at its beginning: an untimed turn that took at least 12 ms, and
///   the places that spawned the last 256 tasks it polled. It begins up to one tick of the coarse
///   clock (1 to 10 ms) too early, and its polls are counted in the *turns* before it.
/// - *completions*: the number of completions so far, and of late ones among them, whose operations
///   had been dropped.
///
/// Recording makes no system call and reads the coarse clock twice per turn, which is less than 1 %
/// of the CPU time of a small message. The records take up to 224 KiB per runtime, as far as they
/// have been used: a runtime that sleeps uses one page.
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

/// An entry of the trace. `began` is a time of the kernel's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) what: RecordKind,
    pub(super) began: Duration,
    pub(super) took: Duration,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum RecordKind {
    /// A turn, from the return from the kernel to the next entry.
    Turn,
    /// A wait in the kernel.
    Wait,
    /// A poll of the task spawned at this place; `None` for the future of `block_on`.
    Poll(Option<&'static Location<'static>>),
    /// The number of polls of tasks spawned at this place, at unknown times in the preceding turn.
    Polls(Option<&'static Location<'static>>, u32),
    /// Several turns, including the waits between them. If `waited`, the last one ends with a wait.
    Turns { turns: u32, polls: u32, waited: bool },
    /// The number of completions so far, and of late ones among them.
    Completions { all: u64, late: u64 },
}

/// The last records, at most [`MAX_TRACE_RECORDS`].
pub(super) struct FlightRecorder(VecDeque<Record>);

impl FlightRecorder {
    /// Creates a recorder with all its memory, so that recording does not allocate.
    pub(super) fn new() -> Self {
        Self(VecDeque::with_capacity(MAX_TRACE_RECORDS))
    }

    pub(super) fn push(&mut self, what: RecordKind, began: Duration, took: Duration) {
        if self.0.len() == MAX_TRACE_RECORDS {
            self.0.pop_front();
        }
        self.0.push_back(Record { what, began, took });
    }

    /// Adds a poll to the turn that was recorded last and that began at `began`.
    pub(super) fn add_poll(&mut self, place: Option<&'static Location<'static>>, began: Duration) {
        for record in self.0.iter_mut().rev() {
            match &mut record.what {
                RecordKind::Polls(known, times) if *known == place => return *times += 1,
                RecordKind::Polls(..) => {}
                _ => break,
            }
        }
        self.push(RecordKind::Polls(place, 1), began, Duration::ZERO);
    }

    pub(super) fn trace(&self) -> Trace {
        Trace(self.0.iter().copied().collect())
    }
}

impl Trace {
    /// Returns when the last turn that held the loop for at least `least` ended, by the clock of
    /// the trace, or `None` if no turn did. A later result in a later trace means another stall.
    /// Turns shorter than 12 ms are found only if they were timed exactly.
    pub fn last_stall(&self, least: Duration) -> Option<Duration> {
        let is_stall =
            |record: &&Record| matches!(record.what, RecordKind::Turn) && record.took >= least;
        self.0.iter().rev().find(is_stall).map(|stall| stall.began + stall.took)
    }
}

/// Combines the traces of several runtimes. Each has a name and is shown as a thread in the viewer.
/// All traces must use the same clock.
///
/// ```
/// let mut runtime = annulus::Runtime::new()?;
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
    /// Returns the record as a trace event, with times in microseconds.
    fn event(&self, thread: usize) -> String {
        let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
        let (ts, dur) = (micros(self.began), micros(self.took));
        let name = |place: Option<&Location<'_>>| match place {
            None => "block_on".to_owned(),
            Some(place) => format!("{}:{}", place.file(), place.line()),
        };
        let (name, kind, args) = match self.what {
            RecordKind::Turn => ("turn".into(), "X", String::new()),
            RecordKind::Wait => ("wait".into(), "X", String::new()),
            RecordKind::Poll(place) => (name(place), "X", String::new()),
            RecordKind::Polls(place, times) => {
                (format!("polled {}", name(place)), "i", format!("\"times\":{times}"))
            }
            RecordKind::Turns { turns, polls, waited } => {
                let name = if waited { "turns, then wait" } else { "turns" };
                (name.into(), "X", format!("\"turns\":{turns},\"polls\":{polls}"))
            }
            RecordKind::Completions { all, late } => {
                (format!("completions {thread}"), "C", format!("\"all\":{all},\"late\":{late}"))
            }
        };
        let name = Quoted(&name);
        format!(
            "{{\"name\":{name},\"ph\":\"{kind}\",\"pid\":1,\"tid\":{thread},\"ts\":{ts:.3},\"dur\":{dur:.3},\"args\":{{{args}}}}}"
        )
    }
}

/// Displays a JSON string.
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
