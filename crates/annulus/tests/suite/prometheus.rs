//! The text for Prometheus, parsed according to its format.

use crate::common;

use annulus::net::UdpSocket;
use annulus::stats::{Stats, prometheus};
use annulus::task::yield_now;
use annulus::{Runtime, spawn};
use common::run_on;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

/// The samples of a metric by their labels, and its type.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    samples: BTreeMap<String, f64>,
}

/// Parses the text and checks that it is well-formed: help and type come first, and all samples of
/// a metric are together and unique.
fn parse(text: &str) -> BTreeMap<String, Metric> {
    assert!(text.ends_with('\n'));
    let (mut metrics, mut current) = (BTreeMap::<String, Metric>::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("no help text");
            assert!(!help.is_empty() && !metrics.contains_key(name), "{line}");
            current = name.into();
            metrics.insert(current.clone(), Metric::default());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("no type");
            assert!(name == current && ["gauge", "counter", "histogram"].contains(&kind), "{line}");
            metrics.get_mut(name).expect("the metric has no help text before it").kind =
                kind.into();
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("the sample has no value");
            let (name, labels) = sample.split_once('{').expect("no labels");
            let suffix = name
                .strip_prefix(&*current)
                .expect("a sample does not belong to the metric above it");
            let metric = metrics.get_mut(&current).expect("the metric has no help text before it");
            let suffixes: &[&str] =
                if metric.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.contains(&suffix), "{line}");
            assert_eq!(metric.kind == "counter", current.ends_with("_total"), "{line}");
            let value = value.parse().expect("not a number");
            let labels = labels.strip_suffix('}').expect("the labels do not end");
            let before = metric.samples.insert(format!("{suffix}{{{labels}"), value);
            assert!(before.is_none(), "the sample occurs twice: {line}");
        }
    }
    metrics
}

/// Returns the statistics of a runtime with a socket, tasks that have ended, and one that waits.
fn busy(measures: bool) -> Stats {
    run_on(Runtime::builder().measure(measures), async {
        let _socket = UdpSocket::bind("127.0.0.1:0")?;
        let tasks: Vec<_> = (0..5).map(|_| spawn(yield_now())).collect();
        for task in tasks {
            task.await.expect("the task panicked");
        }
        let _idle = spawn(std::future::pending::<()>());
        annulus::handle()?.stats().await
    })
}

#[test]
fn every_value_is_reported_for_each_shard() {
    let (one, two) = (busy(false), busy(false));
    let metrics = parse(&prometheus([("0", &one), ("a \"b\"\\\n", &two)]));
    for (name, metric) in &metrics {
        assert_eq!(metric.samples.len(), 2, "{name}: {metric:?}");
    }
    let alive = &metrics["annulus_tasks_alive"];
    assert_eq!(alive.kind, "gauge");
    assert_eq!(alive.samples["{shard=\"0\""], 1.0);
    assert_eq!(alive.samples["{shard=\"a \\\"b\\\"\\\\\\n\""], 1.0);
    assert_eq!(metrics["annulus_tasks_spawned_total"].samples["{shard=\"0\""], 6.0);
    assert_eq!(metrics["annulus_enters_total"].samples["{shard=\"0\""], one.counters.enters as f64);
    assert_eq!(metrics["annulus_datagram_sockets"].samples["{shard=\"0\""], 1.0);
    let uptime = metrics["annulus_uptime_seconds"].samples["{shard=\"0\""];
    assert!((uptime - one.uptime.as_secs_f64()).abs() < 1e-6);
    let counters = one.counters.iter().filter(|counter| !counter.is_gauge());
    for counter in counters {
        assert!(metrics.contains_key(&format!("annulus_{}_total", counter.name)), "{counter:?}");
    }
    assert!(!metrics.contains_key("annulus_poll_seconds"), "an unmeasured runtime has timings");
}

#[test]
fn histograms_are_cumulative_and_end_with_the_total() {
    let (stats, unmeasured) = (busy(true), busy(false));
    let metrics = parse(&prometheus([("0", &stats), ("1", &unmeasured)]));
    let timings = stats.timings.expect("the runtime does not measure");
    let histograms = [
        ("annulus_turn_seconds", &timings.turn),
        ("annulus_poll_seconds", &timings.poll),
        ("annulus_wake_to_poll_seconds", &timings.wake_to_poll),
    ];
    for (name, histogram) in histograms {
        let metric = &metrics[name];
        assert_eq!(metric.kind, "histogram");
        let shards: BTreeSet<_> =
            metric.samples.keys().filter_map(|labels| labels.split('"').nth(1)).collect();
        assert_eq!(shards, BTreeSet::from(["0"]), "an unmeasured runtime has timings");
        let bound = |labels: &String| {
            labels.strip_prefix("_bucket{shard=\"0\",le=\"")?.strip_suffix('"').map(str::to_owned)
        };
        let buckets = metric.samples.iter().filter_map(|(labels, count)| {
            let bound = bound(labels)?;
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
            Some((bound, *count))
        });
        let mut buckets: Vec<(f64, f64)> = buckets.collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.len() > 20 && buckets.is_sorted_by(|a, b| a.1 <= b.1), "{buckets:?}");
        let count = histogram.count() as f64;
        assert!(count > 0.0);
        assert_eq!(*buckets.last().unwrap(), (f64::INFINITY, count));
        assert_eq!(metric.samples["_count{shard=\"0\""], count);
        let sum = metric.samples["_sum{shard=\"0\""];
        assert!((sum - histogram.sum().as_secs_f64()).abs() < 1e-9);
        for (bound, below) in &buckets[..buckets.len() - 1] {
            let bound = Duration::from_secs_f64(*bound);
            let exact = histogram.buckets().filter(|(longest, _)| *longest <= bound);
            assert_eq!(*below, exact.map(|(_, count)| count).sum::<u64>() as f64);
        }
    }
    assert_eq!(metrics["annulus_slow_polls_total"].samples.len(), 1);
}

#[test]
fn no_runtime_has_no_samples() {
    let metrics = parse(&prometheus([]));
    assert!(metrics.values().all(|metric| metric.samples.is_empty()), "{metrics:?}");
}

#[test]
fn two_runtimes_of_a_program_differ_in_their_shard_label() -> io::Result<()> {
    let mut runtime = Runtime::new()?;
    runtime.block_on(async {});
    let stats = runtime.stats().expect("the runtime is on another thread");
    let text = prometheus([("first", &stats), ("second", &stats)]);
    assert!(
        text.contains(
            "annulus_turns_total{shard=\"first\"} 1\nannulus_turns_total{shard=\"second\"} 1\n"
        ),
        "{text}"
    );
    Ok(())
}
