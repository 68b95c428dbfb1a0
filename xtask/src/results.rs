//! The table of results in the README, which must say what the files in `docs/results` say.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::step::{Failure, Outcome, root};

/// The lines of the README between which the table stands.
const BEGIN: &str = "<!-- results: `cargo xtask results --write` writes this table -->";
const END: &str = "<!-- results end -->";

const HEAD: &str = "\
| run | what is compared | annulus is best or tied in | × the best, mean and worst | behind in | next: mean and worst |
|---|---|---|---|---|---|
";

/// A row of the table.
struct Run {
    /// What `annulus lab` calls it, and its files.
    name: &'static str,
    about: &'static str,
    /// The contender that stands for annulus.
    contender: &'static str,
}

impl Run {
    const fn new(name: &'static str, about: &'static str, contender: &'static str) -> Run {
        Run { name, about, contender }
    }
}

/// The rows: published tables, then programs.
const RUNS: [Run; 15] = [
    Run::new("tcp", "echo over TCP, with a C epoll loop, tokio and monoio", "uring"),
    Run::new("udp", "echo over UDP, with a C epoll loop", "uring"),
    Run::new("go-uring", "echo, with Go's poller and a ring under Go", "uring"),
    Run::new("bench-echo", "a connection a message, with asio, netpoll, tokio, monoio", "uring"),
    Run::new("fibers", "echo, with a thread a connection", "uring"),
    Run::new("op-modes", "echo, with other operations of the ring", "uring"),
    Run::new("file", "open, write, read, close, with threads", "tasks"),
    Run::new("nop", "NOPs, with liburing and the io-uring crate", "ring"),
    Run::new("http", "hyper, on tokio, monoio and compio", "uring"),
    Run::new("https", "hyper under rustls, on tokio", "uring"),
    Run::new("files", "static files, with nginx", "uring"),
    Run::new("store", "the protocol of Redis, with redis-server", "uring"),
    Run::new("proxy", "a TCP proxy, with HAProxy, nginx and socat", "uring"),
    Run::new("proxy-2", "the same on two threads, with HAProxy", "uring"),
    Run::new("overload", "the proxy at fixed rates, up to 120 % of its peak", "uring"),
];

/// The contenders that are annulus, and so never the next best.
const OURS: [&str; 9] =
    ["uring", "epoll", "guest", "guest-tasks", "uring-1", "ring", "lookup", "task", "tasks"];

/// Checks the table, or writes it with `--write`.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    match arguments {
        [] => check(),
        [word] if word == "--write" => write(),
        [other, ..] => {
            let text = format!("unexpected argument '{other}': results takes `--write`, or none");
            Err(Failure::Usage(text))
        }
    }
}

/// Fails if the README's table is not that of the files.
pub(crate) fn check() -> Outcome {
    let (text, wanted) = readme()?;
    match text == wanted {
        true => Ok(Vec::new()),
        false => {
            let remedy = "`cargo xtask results --write` mends it";
            Err(Failure::Failed(format!("README.md differs from docs/results: {remedy}")))
        }
    }
}

/// Writes the table into the README.
fn write() -> Outcome {
    let (_, wanted) = readme()?;
    let written = fs::write(root().join("README.md"), wanted);
    written.map_err(|error| Failure::Failed(format!("README.md cannot be written: {error}")))?;
    Ok(Vec::new())
}

/// The README as it is, and as it should be.
fn readme() -> Result<(String, String), Failure> {
    let text = read(&root().join("README.md"))?;
    let rows: Result<String, Failure> = RUNS.iter().map(row).collect();
    let table = format!("{HEAD}{}", rows?);
    match text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)))
    {
        Some((before, after)) => {
            let wanted = format!("{before}{BEGIN}\n{table}{END}{after}");
            Ok((text, wanted))
        }
        None => Err(Failure::Failed(format!("README.md lacks the lines {BEGIN} and {END}"))),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::Failed(format!("{} cannot be read: {error}", path.display())))
}

fn row(run: &Run) -> Result<String, Failure> {
    let comparison = comparison(run)?;
    let missing = || format!("docs/results/{}.json has no {}", run.name, run.contender);
    cells(run, &comparison).ok_or_else(|| Failure::Failed(missing()))
}

/// What the lab found, from the run's report.
fn comparison(run: &Run) -> Result<Value, Failure> {
    let path = root().join("docs/results").join(run.name).with_extension("json");
    let mut report: Value = serde_json::from_str(&read(&path)?)
        .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    // The report of a published table has it below the table.
    Ok(report.get_mut("comparison").map(Value::take).unwrap_or(report))
}

/// The cells of a row.
fn cells(run: &Run, comparison: &Value) -> Option<String> {
    let decided = decided(comparison)?;
    let contenders = primary(comparison)?["contenders"].as_array()?;
    let ours = contenders.iter().find(|it| it["contender"] == run.contender)?;
    let standing = |cell: usize| ours["cells"][cell]["standing"].as_str().unwrap_or("failed");
    let leads = |cell: &&usize| ["best", "tied"].contains(&standing(**cell));
    let behind: Vec<String> = decided
        .iter()
        .filter(|cell| !leads(cell))
        .map(|&cell| {
            let ratio = &ours["cells"][cell]["ratio"]["median"];
            let cell = &comparison["settings"]["cells"][cell];
            format!("{} ({:.2} ×)", name(cell), ratio.as_f64().unwrap_or(f64::NAN))
        })
        .collect();
    let behind = if behind.is_empty() { "–".to_owned() } else { behind.join("; ") };
    let next = next(contenders).map_or("–".to_owned(), |it| {
        format!("{}: {}", it["contender"].as_str().unwrap_or(""), distance(it))
    });
    let count = decided.iter().filter(leads).count();
    Some(format!(
        "| [{0}](docs/results/{0}.md) | {1} | {count} of {2} cells | {3} | {behind} | {next} |\n",
        run.name,
        run.about,
        decided.len(),
        distance(ours),
    ))
}

/// The closest to the best of those that are not annulus; annulus with other settings, if there are only such.
fn next(contenders: &[Value]) -> Option<&Value> {
    let closest = |is: fn(&str) -> bool| {
        let mean = |it: &Value| it["mean"]["median"].as_f64().unwrap_or(f64::MAX);
        let some = contenders.iter().filter(|it| it["contender"].as_str().is_some_and(is));
        some.min_by(|a, b| mean(a).total_cmp(&mean(b)))
    };
    closest(|name| !OURS.contains(&name) && !is_set(name)).or(closest(is_set))
}

/// Whether it is annulus with other settings than the usual ones.
fn is_set(name: &str) -> bool {
    name.starts_with("uring+")
}

/// The cells in which contenders could be compared: as many as the summary of the run counts.
fn decided(comparison: &Value) -> Option<Vec<usize>> {
    let verdicts = comparison["verdicts"].as_array()?.iter().enumerate();
    let decided = verdicts.filter(|(_, it)| {
        it["outcome"].as_str().is_some_and(|outcome| ["win", "guarded", "tie"].contains(&outcome))
    });
    Some(decided.map(|(cell, _)| cell).collect())
}

/// The distances by the metric that decides.
fn primary(comparison: &Value) -> Option<&Value> {
    let metrics = comparison["settings"]["metrics"].as_array()?;
    let metric = metrics.iter().find(|metric| metric["role"] == "primary")?;
    comparison["envelopes"].as_array()?.iter().find(|it| it["metric"] == metric["key"])
}

/// A contender's mean and worst distance from the best.
fn distance(contender: &Value) -> String {
    let figure =
        |value: &Value| value.as_f64().map_or("–".to_owned(), |value| format!("{value:.2}"));
    let worst = &contender["worst"]["ratio"];
    format!("{}, {}", figure(&contender["mean"]["median"]), figure(worst))
}

/// A cell's name, as the run's page has it: the name of a load, or all parameters, the bytes last. (Read from JSON they come in the
/// order of the alphabet.)
fn name(cell: &Value) -> String {
    if let Some(load) = cell["load"].as_str() {
        return load.to_owned();
    }
    let parameters = cell.as_object().into_iter().flatten().rev();
    let names: Vec<String> = parameters.map(|(key, value)| format!("{value} {key}")).collect();
    names.join(" × ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_counts_distances_and_what_is_behind() {
        let at = |ratio: f64, standing: &str| serde_json::json!({"ratio": {"median": ratio}, "standing": standing});
        let contender = |name: &str, cells: [Value; 3], mean: f64, worst: f64| {
            serde_json::json!({"contender": name, "cells": cells, "mean": {"median": mean},
                "worst": {"ratio": worst}})
        };
        let comparison = serde_json::json!({
            "settings": {
                "metrics": [{"key": "rate", "role": "shown"}, {"key": "cpu", "role": "primary"}],
                "cells": [{"load": "4k"}, {"clients": 5, "bytes": 1}, {"load": "noisy"}],
            },
            "verdicts": [{"outcome": "tie"}, {"outcome": "guarded"}, {"outcome": "control_unsteady"}],
            "envelopes": [{"metric": "rate"}, {"metric": "cpu", "contenders": [
                contender("uring", [at(1.0, "best"), at(1.3, "behind"), at(2.0, "behind")], 1.14, 1.3),
                contender("epoll", [at(1.0, "tied"), at(1.0, "best"), at(1.0, "best")], 1.0, 1.0),
                contender("slow", [at(9.0, "behind"), at(9.0, "behind"), at(9.0, "behind")], 9.0, 9.0),
                contender("nginx", [at(1.1, "tied"), at(1.2, "behind"), at(1.0, "best")], 1.15, 1.2),
            ]}],
        });
        let run = Run::new("files", "static files", "uring");
        let row = cells(&run, &comparison).unwrap();
        assert_eq!(
            row,
            "| [files](docs/results/files.md) | static files | 1 of 2 cells | 1.14, 1.30 \
             | 5 clients × 1 bytes (1.30 ×) | nginx: 1.15, 1.20 |\n"
        );
        assert_eq!(cells(&Run::new("files", "", "other"), &comparison), None);
    }

    #[test]
    fn as_many_cells_are_decided_as_each_run_counts() {
        for run in &RUNS {
            let Ok(comparison) = comparison(run) else { panic!("no report of {}", run.name) };
            let decided = decided(&comparison).unwrap().len();
            assert_eq!(comparison["summary"]["decided"], decided, "{}", run.name);
        }
    }
}
