//! Stats in the text format of Prometheus.

use super::{Buffers, Histogram, Stats};
use std::fmt::{self, Display, Write};
use std::time::Duration;

/// Exponents of two for the bounds of histogram buckets in nanoseconds: from 1 µs to 17 s.
const BUCKET_BOUND_EXPONENTS: std::ops::RangeInclusive<u32> = 10..=34;

/// Formats the stats of several runtimes in the text format of Prometheus, version 0.0.4. Each
/// sample has the label `shard`, whose value is given with the stats. Serve the text as
/// `text/plain; version=0.0.4`. To add up the shards, query `sum without (shard) (…)`.
///
/// All names begin with `annulus_`, and names of counters end with `_total`. Times are in seconds.
/// Each metric has a help text and a type.
///
/// ```
/// annulus::run(async {
///     let stats = annulus::handle()?.stats().await?;
///     let text = annulus::stats::prometheus([("0", &stats)]);
///     assert!(text.contains("# TYPE annulus_tasks_alive gauge\nannulus_tasks_alive{shard=\"0\"} 0\n"));
///     std::io::Result::Ok(())
/// })
/// # .unwrap();
/// ```
pub fn prometheus<'a>(runtimes: impl IntoIterator<Item = (&'a str, &'a Stats)>) -> String {
    let mut text = Text { out: String::new(), runtimes: runtimes.into_iter().collect() };
    text.info();
    let help = "Time since the runtime was built.";
    text.samples("uptime_seconds", help, "gauge", |stats| Some(Seconds(stats.uptime)));
    text.count("turns", "Turns of the loop.", |stats| stats.turns);
    text.tasks();
    text.resources();
    text.queues();
    text.buffers("stream_buffers", |stats| Some(stats.stream_buffers));
    text.buffers("datagram_buffers", |stats| stats.datagram_buffers);
    text.memory();
    text.counters();
    text.timings();
    text.out
}

/// The text so far, and the runtimes it describes. Writing to the string cannot fail.
struct Text<'a> {
    out: String,
    runtimes: Vec<(&'a str, &'a Stats)>,
}

impl Text<'_> {
    fn info(&mut self) {
        self.head("info", "The driver in use.", "gauge");
        for (shard, stats) in &self.runtimes {
            let (shard, driver) = (Escaped(shard), stats.driver);
            _ = writeln!(self.out, "annulus_info{{shard=\"{shard}\",driver=\"{driver}\"}} 1");
        }
    }

    fn tasks(&mut self) {
        self.gauge("tasks_alive", "Tasks that have not ended.", |stats| stats.tasks.alive);
        self.gauge("tasks_ready", "Tasks in the run queue.", |stats| stats.tasks.ready);
        let help = "Tasks that other threads have spawned or woken and that the loop has not taken in yet.";
        self.gauge("tasks_inbox", help, |stats| stats.tasks.inbox);
        self.count("tasks_spawned", "Tasks spawned.", |stats| stats.tasks.spawned);
    }

    fn resources(&mut self) {
        self.gauge("streams", "Streams.", |stats| stats.resources.streams);
        self.gauge("listeners", "Listeners.", |stats| stats.resources.listeners);
        let help = "Accepted connections that no call of accept has taken yet.";
        self.gauge("unclaimed_connections", help, |stats| stats.resources.unclaimed);
        self.gauge("datagram_sockets", "Datagram sockets.", |stats| {
            stats.resources.datagram_sockets
        });
        self.gauge("connects", "Connects in progress.", |stats| stats.resources.connects);
        self.gauge("polls", "Descriptors polled for readiness.", |stats| stats.resources.polls);
        self.gauge("file_calls", "File calls off the loop.", |stats| stats.resources.file_calls);
        self.gauge("timers", "Timers.", |stats| stats.resources.timers);
        let help = "Operations whose last event has not arrived yet.";
        self.gauge("operations_in_flight", help, |stats| stats.resources.in_flight);
    }

    fn queues(&mut self) {
        let help = "Sockets that have something to send in the next turn.";
        self.gauge("queued_sends", help, |stats| stats.queues.sends);
        let help = "Sockets with a send from the last turn that may complete without an event.";
        self.gauge("unsettled_sends", help, |stats| stats.queues.unsettled);
        let help = "Sockets whose receive waits for a turn or for buffers to be armed.";
        self.gauge("queued_receives", help, |stats| stats.queues.receives);
        let help = "Wait queues with waiters that have not been notified yet.";
        self.gauge("queued_rechecks", help, |stats| stats.queues.rechecks);
    }

    fn buffers(&mut self, name: &str, of: fn(&Stats) -> Option<Buffers>) {
        let mut gauge = |what: &str, help: &str, value: fn(Buffers) -> usize| {
            self.samples(&format!("{name}{what}"), help, "gauge", |stats| of(stats).map(value));
        };
        gauge("", "Receive buffers.", |buffers| buffers.count as usize);
        gauge("_size_bytes", "Bytes per receive buffer.", |buffers| buffers.size as usize);
        gauge(
            "_lent",
            "Buffers that are held by leases or wait in sockets to be received.",
            |buffers| buffers.lent as usize,
        );
        gauge("_with_kernel", "Buffers that the kernel may fill.", |buffers| {
            buffers.with_kernel as usize
        });
        gauge("_resident_bytes", "Bytes of the receive buffers that are in memory.", |buffers| {
            buffers.resident
        });
    }

    fn memory(&mut self) {
        let help = "Memory of streams and datagram sockets.";
        self.gauge("memory_held_bytes", help, |stats| stats.memory.held);
        let help = "Heap memory of streams and datagram sockets.";
        self.gauge("memory_heap_bytes", help, |stats| stats.memory.heap);
        let help = "The memory limit, which runtimes can share.";
        self.samples("memory_limit_bytes", help, "gauge", |stats| stats.memory.limit);
        let help = "Streams that the memory limit has paused.";
        self.gauge("streams_paused", help, |stats| stats.memory.streams_paused);
    }

    /// Adds the counters of the driver, except its gauges.
    fn counters(&mut self) {
        let Some((_, first)) = self.runtimes.first() else { return };
        let counters = first.counters.iter().enumerate();
        for (index, counter) in counters.filter(|(_, counter)| !counter.is_gauge()) {
            self.count(counter.name, counter.help, |stats| {
                stats.counters.iter().nth(index).map_or(0, |counter| counter.value)
            });
        }
    }

    fn timings(&mut self) {
        if self.runtimes.iter().all(|(_, stats)| stats.timings.is_none()) {
            return;
        }
        let help = "Time from the return of a system call for events to the next such call, for the timed turns.";
        self.histogram("turn_seconds", help, |stats| Some(&stats.timings.as_ref()?.turn));
        let help = "Duration of a task's poll, in the timed turns.";
        self.histogram("poll_seconds", help, |stats| Some(&stats.timings.as_ref()?.poll));
        let help = "Time from the wake of a task to its poll, in the timed turns.";
        self.histogram("wake_to_poll_seconds", help, |stats| {
            Some(&stats.timings.as_ref()?.wake_to_poll)
        });
        let help = "Polls that took at least as long as slow_poll.";
        self.samples("slow_polls_total", help, "counter", |stats| {
            Some(stats.timings.as_ref()?.slow_polls)
        });
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        _ = writeln!(self.out, "# HELP annulus_{name} {help}");
        _ = writeln!(self.out, "# TYPE annulus_{name} {kind}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Fn(&Stats) -> usize) {
        self.samples(name, help, "gauge", |stats| Some(value(stats)));
    }

    fn count(&mut self, name: &str, help: &str, value: impl Fn(&Stats) -> u64) {
        self.samples(&format!("{name}_total"), help, "counter", |stats| Some(value(stats)));
    }

    /// Adds a metric with a sample for each runtime that has it.
    fn samples<V: Display>(
        &mut self,
        name: &str,
        help: &str,
        kind: &str,
        value: impl Fn(&Stats) -> Option<V>,
    ) {
        if self.runtimes.iter().all(|(_, stats)| value(stats).is_none()) {
            return;
        }
        self.head(name, help, kind);
        for (shard, stats) in &self.runtimes {
            if let Some(value) = value(stats) {
                let shard = Escaped(shard);
                _ = writeln!(self.out, "annulus_{name}{{shard=\"{shard}\"}} {value}");
            }
        }
    }

    fn histogram(&mut self, name: &str, help: &str, of: fn(&Stats) -> Option<&Histogram>) {
        self.head(name, help, "histogram");
        for (shard, stats) in &self.runtimes {
            let Some(histogram) = of(stats) else { continue };
            let shard = Escaped(shard);
            let mut line = |what: &str, le: &dyn Display, value: &dyn Display| {
                _ = writeln!(self.out, "annulus_{name}{what}{{shard=\"{shard}\"{le}}} {value}");
            };
            for bound in BUCKET_BOUND_EXPONENTS.map(|power| Duration::from_nanos((1 << power) - 1))
            {
                let le = format_args!(",le=\"{}\"", Seconds(bound)).to_string();
                let within = histogram.buckets().take_while(|(longest, _)| *longest <= bound);
                line("_bucket", &le, &within.map(|(_, count)| count).sum::<u64>());
            }
            line("_bucket", &",le=\"+Inf\"", &histogram.count());
            line("_sum", &"", &Seconds(histogram.sum()));
            line("_count", &"", &histogram.count());
        }
    }
}

/// Displays the value of a label, escaped.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}

/// Displays a duration in seconds, exactly.
struct Seconds(Duration);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0.as_secs(), self.0.subsec_nanos())
    }
}
