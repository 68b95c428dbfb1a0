//! The kept results: `docs/results` has each run as a compressed results file with its pages, and
//! `docs/results.md` has a table and a picture of all runs. Everything but the results files is
//! generated, and must match them.

mod picture;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use flate2::{Compression, GzBuilder};
use fs_err as fs;
use serde_json::Value;

use crate::files::below;
use crate::step::{Outcome, Step, root};

/// The directories with kept runs.
const KEPT_DIRECTORIES: [&str; 2] = ["docs/results", "docs/results/originals"];
/// The directory in which their pages are generated.
const GENERATED_DIRECTORY: &str = "target/kept-results";
/// The page with the table.
const PAGE: &str = "docs/results.md";
/// The picture of the same cells.
const PICTURE: &str = "docs/results/overview.svg";

/// The lines of the page before and after the table.
const TABLE_BEGIN: &str =
    "<!-- results: `cargo xtask results --write` writes this table and the picture -->";
const TABLE_END: &str = "<!-- results end -->";

const TABLE_HEAD: &str = "\
| run | what is compared | better | same | worse | undecided | × the best rival, mean and worst | worse in |
|---|---|---|---|---|---|---|---|
";

/// The name of a run and its files, and a description of the comparison.
type Run = (&'static str, &'static str);

/// The rows of the table: published tables first, then programs.
const RUNS: [Run; 16] = [
    ("tcp", "echo over TCP, with a C epoll loop, tokio and monoio"),
    ("udp", "echo over UDP, with a C epoll loop"),
    ("go-uring", "echo, with Go's poller and a ring under Go"),
    ("bench-echo", "a connection per message, with asio, netpoll, tokio, monoio"),
    ("fibers", "echo, with a thread per connection"),
    ("op-modes", "echo, with other operations of the ring"),
    ("file", "open, write, read, close, with threads"),
    ("nop", "NOPs, with liburing and the io-uring crate"),
    ("http", "hyper, on tokio, monoio and compio"),
    ("https", "hyper under rustls, on tokio"),
    ("axum-2", "axum on all cores, with tokio's multi-threaded runtime"),
    ("files", "static files, with nginx"),
    ("store", "the protocol of Redis, with redis-server"),
    ("proxy", "a TCP proxy, with HAProxy, nginx and socat"),
    ("proxy-2", "the same on two threads, with HAProxy"),
    ("overload", "the proxy at fixed rates, up to 120 % of its peak"),
];

/// Fails if a page or the picture does not match the results files, or writes them all.
pub(crate) fn run(write: bool) -> Outcome {
    for directory in KEPT_DIRECTORIES {
        let kept = root().join(directory);
        if write {
            compress(&kept)?;
        }
        let pages = generate(directory, "html,md")?;
        for page in below(&pages, &|_| false)? {
            let (kept, wanted) =
                (kept.join(page.file_name().expect("a page has no file name")), fs::read(&page)?);
            if write {
                fs::write(kept, wanted)?;
            } else if fs::read(&kept).ok() != Some(wanted) {
                let kept = kept.display();
                bail!("{kept} does not match its results: run `cargo xtask results --write`");
            }
        }
    }
    let reports = generate(KEPT_DIRECTORIES[0], "json")?;
    let compared = RUNS.iter().map(|run| Ok((run, comparison(run, &reports)?)));
    let compared = compared.collect::<Result<Vec<_>>>()?;
    for (path, wanted) in [(PAGE, page(&compared)?), (PICTURE, picture::svg(&compared))] {
        let file = root().join(path);
        if write {
            fs::write(file, wanted)?;
        } else if fs::read_to_string(file)? != wanted {
            bail!("{path} does not match docs/results: run `cargo xtask results --write`");
        }
    }
    Ok(Vec::new())
}

/// Generates documents of the runs in a directory, and returns the directory of the documents. Its
/// last component, which becomes the title of the index, is that of `kept`.
fn generate(kept: &str, forms: &str) -> Result<PathBuf> {
    let name = Path::new(kept).file_name().expect("the directory has no name");
    let out = root().join(GENERATED_DIRECTORY).join(forms).join(name);
    let command = format!("run -q -p annulus-cli -- bench page {kept} --forms {forms} --out");
    Step::new("cargo", &command).argument(&out).run()?;
    Ok(out)
}

/// Compresses the results files in a directory and removes the uncompressed ones.
fn compress(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let plain = entry?.path();
        if plain.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let kept = fs::File::create(plain.with_extension("jsonl.gz"))?;
        // Without a name and a time, equal results are equal bytes.
        let mut writer = GzBuilder::new().write(kept, Compression::best());
        std::io::copy(&mut fs::File::open(&plain)?, &mut writer)?;
        writer.finish()?;
        fs::remove_file(plain)?;
    }
    Ok(())
}

/// Returns the page with the current table.
fn page(compared: &[(&Run, Value)]) -> Result<String> {
    let text = fs::read_to_string(root().join(PAGE))?;
    let parts = text
        .split_once(TABLE_BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(TABLE_END)?.1)));
    let (before, after) =
        parts.with_context(|| format!("{PAGE} lacks the lines {TABLE_BEGIN} and {TABLE_END}"))?;
    let mut table = TABLE_HEAD.to_owned();
    for (run, comparison) in compared {
        table += &cells(run, comparison)
            .with_context(|| format!("the run {} compares annulus with nothing", run.0))?;
    }
    Ok(format!("{before}{TABLE_BEGIN}\n{table}{TABLE_END}{after}"))
}

/// Reads the lab's comparison from the run's report.
fn comparison(run: &Run, reports: &Path) -> Result<Value> {
    let path = reports.join(run.0).with_extension("json");
    let report: Result<Value, _> = serde_json::from_str(&fs::read_to_string(&path)?);
    let mut report = report.with_context(|| path.display().to_string())?;
    // The report of a suite has it in a field.
    Ok(report.get_mut("comparison").map(Value::take).unwrap_or(report))
}

/// Formats a row: annulus against its best rival in each cell. The mean covers only cells with a
/// verdict.
fn cells((run, about): &Run, comparison: &Value) -> Option<String> {
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
        "| [{run}](results/{run}.md) | {about} | {better} | {same} | {lost} | {open} | {}, {} | {worse} |\n",
        shown(mean),
        shown(worst),
    ))
}

/// Formats a cell as on the run's page: the name of a load, or all parameters with the bytes last.
/// Parameters read from JSON are in alphabetical order, so they are reversed.
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
    fn row_has_counts_and_a_mean_of_cells_with_a_verdict() {
        let at = |verdict: &str, cost: f64, cell: Value| serde_json::json!({"verdict": verdict, "cost": {"median": cost}, "cell": cell, "rival": "nginx"});
        let comparison = serde_json::json!({"against": [
            at("better", 0.5, serde_json::json!({"load": "4k"})),
            at("worse", 2.0, serde_json::json!({"clients": 5, "bytes": 1})),
            at("undecided", 9.0, serde_json::json!({"load": "noisy"})),
            at("void", 9.0, serde_json::json!({"load": "noisier"})),
        ]});
        let run = ("files", "static files");
        assert_eq!(
            cells(&run, &comparison).unwrap(),
            "| [files](results/files.md) | static files | 1 | 0 | 1 | 2 | 1.00, 2.00 \
             | 5 clients × 1 bytes (2.00 × nginx) |\n"
        );
        assert_eq!(cells(&run, &serde_json::json!({"against": []})), None);
    }
}
