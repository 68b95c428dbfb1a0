//! The flight recorder: the turns of the last seconds.

use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};
use std::panic::Location;
use std::time::Duration;

/// Records that are kept, in 224 KiB, whose pages are in memory once they were used. There are at most 1,900 a second, if the coarse clock
/// ticks every 4 ms and two turns in 100 ms are timed: of a loop that is never idle the last two seconds, or more.
const KEPT: usize = 4096;
const _: () = assert!(KEPT * size_of::<Record>() == 224 * 1024);

/// The last seconds of a runtime: its turns, polls and waits, in up to 4,096 records, which every runtime makes.
/// [`Handle::trace`](crate::Handle::trace) takes it.
///
/// The text, as that of [`trace_events`] for several runtimes, is in the Trace Event Format, which `ui.perfetto.dev` and `chrome://tracing`
/// open:
///
/// - *turn* and *wait*, exactly, of two turns every 100 ms: from the return from the kernel to the next entry, and the time in the kernel. In
///   such a turn a poll is a span with the place that spawned the task, of the first 64 polls and of those that take 1 ms. With
///   [`slow_poll`](crate::Builder::slow_poll) these are all turns and all polls.
/// - *turns* and *turns, then wait*: some 4 ms of other turns, with the waits between and the numbers of turns and polls. In the second the
///   loop was in the kernel at the end; so a long wait is one, too.
/// - *turn*, and *polled* at its beginning: another turn that took 12 ms or longer, and the places that spawned the tasks which it polled, of
///   the last 256. It begins up to a tick of the coarse clock too early (1 to 10 ms), and the *turns* before it count its polls.
/// - *completions*: how many there were so far, and how many of them came late, for what was dropped.
///
/// It makes no system call, and reads the coarse clock twice a turn: below 1 % of the CPU time of a small message. The records take up to
/// 224 KiB a runtime, as far as they were used: of one that sleeps a page.
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
    /// A poll of the task spawned at this place; `None` is the future of `block_on`.
    Poll(Option<&'static Location<'static>>),
    /// The number of polls of tasks spawned at this place, at unknown times in the turn before.
    Polls(Option<&'static Location<'static>>, u32),
    /// Several turns, with the waits between. It `waited` at the end.
    Turns { turns: u32, polls: u32, waited: bool },
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

    /// Notes one more poll of the turn that was recorded last and began then.
    pub(super) fn add_poll(&mut self, place: Option<&'static Location<'static>>, began: Duration) {
        for record in self.0.iter_mut().rev() {
            match &mut record.what {
                What::Polls(known, times) if *known == place => return *times += 1,
                What::Polls(..) => {}
                _ => break,
            }
        }
        self.push(What::Polls(place, 1), began, Duration::ZERO);
    }

    pub(super) fn trace(&self) -> Trace {
        Trace(self.0.iter().copied().collect())
    }
}

impl Trace {
    /// When the last turn ended that held the loop for `least` or longer, by the clock of the trace; `None` if none of its turns did. A later
    /// time is another stall. If `least` is below 12 ms, only turns that were timed exactly are looked at.
    pub fn last_stall(&self, least: Duration) -> Option<Duration> {
        let is_stall = |record: &&Record| matches!(record.what, What::Turn) && record.took >= least;
        self.0.iter().rev().find(is_stall).map(|stall| stall.began + stall.took)
    }
}

/// The traces of several runtimes as one, each with a name: a thread each in the viewer. The times are those of one clock.
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
    /// The event of the format: times are in microseconds.
    fn event(&self, thread: usize) -> String {
        let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
        let (ts, dur) = (micros(self.began), micros(self.took));
        let name = |place: Option<&Location<'_>>| match place {
            None => "block_on".to_owned(),
            Some(place) => format!("{}:{}", place.file(), place.line()),
        };
        let (name, kind, args) = match self.what {
            What::Turn => ("turn".into(), "X", String::new()),
            What::Wait => ("wait".into(), "X", String::new()),
            What::Poll(place) => (name(place), "X", String::new()),
            What::Polls(place, times) => {
                (format!("polled {}", name(place)), "i", format!("\"times\":{times}"))
            }
            What::Turns { turns, polls, waited } => {
                let name = if waited { "turns, then wait" } else { "turns" };
                (name.into(), "X", format!("\"turns\":{turns},\"polls\":{polls}"))
            }
            What::Completions { all, late } => {
                (format!("completions {thread}"), "C", format!("\"all\":{all},\"late\":{late}"))
            }
        };
        let name = Quoted(&name);
        format!(
            "{{\"name\":{name},\"ph\":\"{kind}\",\"pid\":1,\"tid\":{thread},\"ts\":{ts:.3},\"dur\":{dur:.3},\"args\":{{{args}}}}}"
        )
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
