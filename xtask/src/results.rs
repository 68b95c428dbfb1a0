//! The page of results and its picture, which must say what the files in `docs/results` say.

mod picture;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::step::{Failure, Outcome, root};

/// The page with the table, and the picture of the same cells.
const PAGE: &str = "docs/results.md";
const PICTURE: &str = "docs/results/overview.svg";

/// The lines of the page between which the table stands.
const BEGIN: &str =
    "<!-- results: `cargo xtask results --write` writes this table and the picture -->";
const END: &str = "<!-- results end -->";

const HEAD: &str = "\
| run | what is compared | better | same | worse | undecided | × the best rival, mean and worst | worse in |
|---|---|---|---|---|---|---|---|
";

/// A row of the table.
struct Run {
    /// The name in `annulus bench`, and of the files.
    name: &'static str,
    about: &'static str,
}

impl Run {
    const fn new(name: &'static str, about: &'static str) -> Run {
        Run { name, about }
    }
}

/// The rows: published tables, then programs.
const RUNS: [Run; 15] = [
    Run::new("tcp", "echo over TCP, with a C epoll loop, tokio and monoio"),
    Run::new("udp", "echo over UDP, with a C epoll loop"),
    Run::new("go-uring", "echo, with Go's poller and a ring under Go"),
    Run::new("bench-echo", "a connection a message, with asio, netpoll, tokio, monoio"),
    Run::new("fibers", "echo, with a thread a connection"),
    Run::new("op-modes", "echo, with other operations of the ring"),
    Run::new("file", "open, write, read, close, with threads"),
    Run::new("nop", "NOPs, with liburing and the io-uring crate"),
    Run::new("http", "hyper, on tokio, monoio and compio"),
    Run::new("https", "hyper under rustls, on tokio"),
    Run::new("files", "static files, with nginx"),
    Run::new("store", "the protocol of Redis, with redis-server"),
    Run::new("proxy", "a TCP proxy, with HAProxy, nginx and socat"),
    Run::new("proxy-2", "the same on two threads, with HAProxy"),
    Run::new("overload", "the proxy at fixed rates, up to 120 % of its peak"),
];

/// Checks the table and the picture, or writes them with `--write`.
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

/// Fails if the page or the picture is not that of the files.
pub(crate) fn check() -> Outcome {
    let differs =
        |(path, wanted): &(&str, String)| read(&root().join(path)).ok().as_ref() != Some(wanted);
    match made()?.iter().find(|made| differs(made)) {
        None => Ok(Vec::new()),
        Some((path, _)) => {
            let remedy = "`cargo xtask results --write` mends it";
            Err(Failure::Failed(format!("{path} differs from docs/results: {remedy}")))
        }
    }
}

/// Writes the table into the page, and the picture.
fn write() -> Outcome {
    for (path, wanted) in made()? {
        let written = fs::write(root().join(path), wanted);
        written.map_err(|error| Failure::Failed(format!("{path} cannot be written: {error}")))?;
    }
    Ok(Vec::new())
}

/// The files that are made: paths, and what they should contain.
fn made() -> Result<[(&'static str, String); 2], Failure> {
    let compared: Result<Vec<(&Run, Value)>, Failure> =
        RUNS.iter().map(|run| Ok((run, comparison(run)?))).collect();
    let compared = compared?;
    Ok([(PAGE, page(&compared)?), (PICTURE, picture::svg(&compared))])
}

/// The page, with the table of the files.
fn page(compared: &[(&Run, Value)]) -> Result<String, Failure> {
    let text = read(&root().join(PAGE))?;
    let rows: Result<String, Failure> =
        compared.iter().map(|(run, comparison)| row(run, comparison)).collect();
    let table = format!("{HEAD}{}", rows?);
    match text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)))
    {
        Some((before, after)) => Ok(format!("{before}{BEGIN}\n{table}{END}{after}")),
        None => Err(Failure::Failed(format!("{PAGE} lacks the lines {BEGIN} and {END}"))),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::Failed(format!("{} cannot be read: {error}", path.display())))
}

fn row(run: &Run, comparison: &Value) -> Result<String, Failure> {
    let missing = || format!("docs/results/{}.json compares annulus with nothing", run.name);
    cells(run, comparison).ok_or_else(|| Failure::Failed(missing()))
}

/// The lab's findings, from the run's report.
fn comparison(run: &Run) -> Result<Value, Failure> {
    let path = root().join("docs/results").join(run.name).with_extension("json");
    let mut report: Value = serde_json::from_str(&read(&path)?)
        .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
    // The report of a published table has it below the table.
    Ok(report.get_mut("comparison").map(Value::take).unwrap_or(report))
}

/// The cells of a row: annulus against the best of its rivals in each cell. Only cells with a verdict are in the mean.
fn cells(run: &Run, comparison: &Value) -> Option<String> {
    let against = comparison["against"].as_array().filter(|all| !all.is_empty())?;
    let with = |verdict: &'static str| against.iter().filter(move |it| it["verdict"] == verdict);
    let cost = |it: &Value| it["cost"]["median"].as_f64().unwrap_or(f64::NAN);
    let costs: Vec<f64> =
        ["better", "same", "worse"].into_iter().flat_map(with).map(cost).collect();
    let mean = (costs.iter().map(|cost| cost.ln()).sum::<f64>() / costs.len() as f64).exp();
    let worst = costs.iter().copied().fold(f64::NAN, f64::max);
    let shown = |cost: f64| if cost.is_nan() { "–".into() } else { format!("{cost:.2}") };
    let worse: Vec<String> = with("worse")
        .map(|it| {
            let rival = it["rival"].as_str().unwrap_or("");
            format!("{} ({:.2} × {rival})", name(&it["cell"]), cost(it))
        })
        .collect();
    let worse = if worse.is_empty() { "–".to_owned() } else { worse.join("; ") };
    let [better, same, lost] = ["better", "same", "worse"].map(|verdict| with(verdict).count());
    let open = against.len() - better - same - lost;
    Some(format!(
        "| [{0}](results/{0}.md) | {1} | {better} | {same} | {lost} | {open} | {2}, {3} | {worse} |\n",
        run.name,
        run.about,
        shown(mean),
        shown(worst),
    ))
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
    fn a_row_has_counts_and_only_cells_with_a_verdict_in_its_mean() {
        let at = |verdict: &str, cost: f64, cell: Value| serde_json::json!({"verdict": verdict, "cost": {"median": cost}, "cell": cell, "rival": "nginx"});
        let comparison = serde_json::json!({"against": [
            at("better", 0.5, serde_json::json!({"load": "4k"})),
            at("worse", 2.0, serde_json::json!({"clients": 5, "bytes": 1})),
            at("undecided", 9.0, serde_json::json!({"load": "noisy"})),
            at("void", 9.0, serde_json::json!({"load": "noisier"})),
        ]});
        let run = Run::new("files", "static files");
        assert_eq!(
            cells(&run, &comparison).unwrap(),
            "| [files](results/files.md) | static files | 1 | 0 | 1 | 2 | 1.00, 2.00 \
             | 5 clients × 1 bytes (2.00 × nginx) |\n"
        );
        assert_eq!(cells(&run, &serde_json::json!({"against": []})), None);
    }
}
