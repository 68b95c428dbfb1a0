//! The kept results: `docs/results` has each run as a compressed results file with its pages, and
//! `docs/results.md` has a table of the runs in [`RUNS`]. The map, which the README
//! and that page lead with, has one row per workload. The pages of the runs, the table, the
//! pictures and the sentences of the documents are generated, and must match the results files.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use flate2::{Compression, GzBuilder};
use fs_err as fs;
use serde_json::Value;

use crate::files::below;
use crate::step::{Outcome, Step, root};

/// The directories with kept runs: for the table, of the documents' own systems, and for the map on
/// a machine with another processor.
const KEPT_DIRECTORIES: [&str; 3] =
    ["docs/results", "docs/results/originals", "docs/results/second-machine"];
/// The directory in which the pages of the kept runs are generated.
const GENERATED_DIRECTORY: &str = "target/kept-results";
/// The page with the table.
const PAGE: &str = "docs/results.md";
/// The page with the total of all verdicts.
const README: &str = "README.md";
/// The picture of the map, in its directory.
const MAP_PICTURE: &str = "map.svg";

/// The lines of the page before and after the table.
const TABLE_MARKERS: [&str; 2] =
    ["<!-- results: `cargo xtask results --write` writes this table -->", "<!-- results end -->"];

/// The lines of the README before and after the total.
const TOTAL_MARKERS: [&str; 2] =
    ["<!-- total: `cargo xtask results --write` writes this sentence -->", "<!-- total end -->"];

/// The lines of the README and of the page before and after the map in words.
const MAP_MARKERS: [&str; 2] = [
    "<!-- map: `cargo xtask results --write` writes these sentences and the picture -->",
    "<!-- map end -->",
];

/// The lines of the page before and after the map of the second machine in words.
const SECOND_MAP_MARKERS: [&str; 2] = [
    "<!-- second map: `cargo xtask results --write` writes these sentences and the picture -->",
    "<!-- second map end -->",
];

/// The page about our drivers, and its lines before and after how they compare.
const DRIVERS: &str = "docs/guide/drivers.md";
const DRIVERS_MARKERS: [&str; 2] = [
    "<!-- drivers: `cargo xtask results --write` writes these sentences -->",
    "<!-- drivers end -->",
];

/// The verdicts in the order of the table.
const VERDICTS: [&str; 5] = ["better", "same", "worse", "undecided", "void"];

const TABLE_HEAD: &str = "\
| run | what is compared | better | same | worse | undecided | void | ± | in words |
|---|---|---|---|---|---|---|---|---|
";

/// The name of a run and its files, and a description of the comparison.
type Run = (&'static str, &'static str);

/// The rows of the table: published tables first, then programs.
const RUNS: [Run; 24] = [
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
    ("fan-out", "a broadcast, with tokio, compio, monoio, C and redis-server"),
    ("proxy", "a TCP proxy, with HAProxy, nginx and socat"),
    ("proxy-2", "the same on two threads, with HAProxy"),
    ("overload", "the proxy at fixed rates, up to 120 % of HAProxy's peak"),
    ("pieces", "replies in many writes, with tokio, compio, monoio and C"),
    ("arrival", "an echo by how requests arrive, with tokio, compio, monoio and C"),
    ("kv", "a server of blocks on disk, on tokio, compio and monoio"),
    ("log", "durable appends, with tokio, threads and compio"),
    ("reads", "random reads, with tokio, threads, compio, monoio and C"),
    ("clients", "the load generator, with wrk, h2load and gcannon"),
    ("clients-h2", "the load generator over HTTP/2, with h2load"),
];

/// The number of cells with each of [`VERDICTS`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts([usize; 5]);

impl Counts {
    /// Reads the lab's counts.
    fn of(comparison: &Value) -> Option<Counts> {
        let counts = &comparison["summary"]["counts"];
        let mut found = [0; 5];
        for (found, verdict) in found.iter_mut().zip(VERDICTS) {
            *found = counts[verdict].as_u64()? as usize;
        }
        Some(Counts(found))
    }

    fn sum(all: impl Iterator<Item = Counts>) -> Counts {
        all.fold(Counts::default(), |mut sum, counts| {
            sum.0.iter_mut().zip(counts.0).for_each(|(sum, count)| *sum += count);
            sum
        })
    }
}

/// Generates everything from the results files, and writes it if `write` is true. Otherwise fails
/// if a file differs from what was generated.
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
    let [kept, _, second] = KEPT_DIRECTORIES;
    let (map, second_map) = (Map::of_runs(kept)?, Map::of_runs(second)?);
    let documents = [
        (PAGE.to_owned(), page(&compared, &map, &second_map)?),
        (README.to_owned(), readme(&compared, &map)?),
        (DRIVERS.to_owned(), drivers(&map)?),
        (format!("{kept}/{MAP_PICTURE}"), map.picture),
        (format!("{second}/{MAP_PICTURE}"), second_map.picture),
    ];
    for (path, wanted) in documents {
        let file = root().join(&path);
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

/// The map of the kept runs.
struct Map {
    /// The picture, as SVG.
    picture: String,
    /// The map in words, one sentence per line.
    sentences: String,
    /// How our drivers compare, in words.
    drivers: String,
}

impl Map {
    /// Draws the map of the runs in a directory.
    fn of_runs(kept: &str) -> Result<Map> {
        let out = root().join(GENERATED_DIRECTORY).join("map");
        let command = format!("run -q -p annulus-cli -- bench map --from {kept} --out");
        Step::new("cargo", &command).argument(&out).run()?;
        let json: Value = serde_json::from_str(&fs::read_to_string(out.join("map.json"))?)?;
        let sentences = json["sentences"].as_array().context("the map has no sentences")?;
        let sentences: Vec<&str> = sentences.iter().filter_map(Value::as_str).collect();
        let drivers = json["drivers"]["sentence"].as_str();
        let drivers = drivers.context("the map has no sentence about our drivers")?;
        Ok(Map {
            picture: fs::read_to_string(out.join("map.svg"))?,
            sentences: sentences.join("\n"),
            drivers: drivers.to_owned(),
        })
    }
}

/// Returns the text with other contents between two markers.
fn replaced(path: &str, text: &str, [begin, end]: [&str; 2], contents: &str) -> Result<String> {
    let parts =
        text.split_once(begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let (before, after) =
        parts.with_context(|| format!("{path} lacks the lines {begin} and {end}"))?;
    Ok(format!("{before}{begin}\n{contents}\n{end}{after}"))
}

/// Returns the page with the current table and the maps in words.
fn page(compared: &[(&Run, Value)], map: &Map, second_map: &Map) -> Result<String> {
    let text = fs::read_to_string(root().join(PAGE))?;
    let mut table = TABLE_HEAD.to_owned();
    for (run, comparison) in compared {
        table += &row(run, comparison)
            .with_context(|| format!("the run {} compares annulus with nothing", run.0))?;
    }
    let text = replaced(PAGE, &text, TABLE_MARKERS, table.trim_end())?;
    let text = replaced(PAGE, &text, SECOND_MAP_MARKERS, &second_map.sentences)?;
    replaced(PAGE, &text, MAP_MARKERS, &map.sentences)
}

/// Returns the page about our drivers with how they compare.
fn drivers(map: &Map) -> Result<String> {
    replaced(DRIVERS, &fs::read_to_string(root().join(DRIVERS))?, DRIVERS_MARKERS, &map.drivers)
}

/// Reads the lab's comparison from the run's report.
fn comparison(run: &Run, reports: &Path) -> Result<Value> {
    let path = reports.join(run.0).with_extension("json");
    let report: Result<Value, _> = serde_json::from_str(&fs::read_to_string(&path)?);
    let mut report = report.with_context(|| path.display().to_string())?;
    // The report of a suite contains the comparison in a field.
    Ok(report.get_mut("comparison").map(Value::take).unwrap_or(report))
}

/// Returns half the width of the interval of a typical cell (the median), in percent of its ratio.
fn half_width(comparison: &Value) -> Option<f64> {
    let half_width = |cell: &Value| {
        let cost = &cell["cost"];
        let [low, high] = ["low", "high"].map(|end| cost["interval"][end].as_f64());
        Some((high? - low?) / 2.0 / cost["median"].as_f64()? * 100.0)
    };
    let mut widths: Vec<f64> =
        comparison["verdicts"].as_array()?.iter().filter_map(half_width).collect();
    widths.sort_unstable_by(f64::total_cmp);
    widths.get(widths.len() / 2).copied()
}

/// Formats a row: the number of cells with each verdict, the precision, and the verdicts in words.
fn row((run, about): &Run, comparison: &Value) -> Option<String> {
    let counts = Counts::of(comparison)?;
    let sentences = comparison["summary"]["sentences"].as_array()?.iter();
    let words: Vec<&str> = sentences.filter_map(Value::as_str).collect();
    let counts = counts.0.map(|count| count.to_string()).join(" | ");
    let precision = half_width(comparison).map_or_else(String::new, |half| format!("{half:.1} %"));
    let words = words.join(" ");
    Some(format!("| [{run}](results/{run}.md) | {about} | {counts} | {precision} | {words} |\n"))
}

/// Returns the README with the current total and the map in words.
fn readme(compared: &[(&Run, Value)], map: &Map) -> Result<String> {
    let text = fs::read_to_string(root().join(README))?;
    let all = compared.iter().filter_map(|(_, comparison)| Counts::of(comparison));
    let Counts([better, same, worse, undecided, void]) = Counts::sum(all);
    let cells = better + same + worse + undecided + void;
    let total = format!(
        "Of {cells} cells in {} runs, annulus is better in {better}, the same in {same} and worse in {worse}; \
         {undecided} are undecided and {void} void.",
        compared.len()
    );
    let text = replaced(README, &text, TOTAL_MARKERS, &total)?;
    replaced(README, &text, MAP_MARKERS, &map.sentences)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        fs::read_to_string(root().join(path)).unwrap()
    }

    /// Returns the number before each verdict in a text such as `1 better, 5 undecided`, which must
    /// begin with one.
    fn stated(text: &str) -> Option<Counts> {
        let mut counts = Counts::default();
        let mut is_any = false;
        for part in text.split(", ") {
            let Some((number, rest)) = part.split_once(' ') else { break };
            let word = rest.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or("");
            let place = VERDICTS.iter().position(|verdict| *verdict == word);
            let (Some(place), Ok(number)) = (place, number.parse()) else { break };
            counts.0[place] = number;
            is_any = true;
            if rest.len() > word.len() {
                break;
            }
        }
        is_any.then_some(counts)
    }

    #[test]
    fn readme_table_and_pages_have_the_same_counts() {
        let [table, readme] = [PAGE, README].map(read);
        let mut all = Vec::new();
        for (run, _) in RUNS {
            let page = read(&format!("{}/{run}.md", KEPT_DIRECTORIES[0]));
            let of_page =
                Counts(VERDICTS.map(|verdict| page.matches(&format!(" | {verdict}: ")).count()));
            let html = read(&format!("{}/{run}.html", KEPT_DIRECTORIES[0]));
            let of_html =
                Counts(VERDICTS.map(|verdict| html.matches(&format!("<td>{verdict}: ")).count()));
            let row = table.lines().find(|line| line.starts_with(&format!("| [{run}](")));
            let cells: Vec<&str> =
                row.expect("the table has no row of the run").split(" | ").collect();
            let of_table = Counts([2, 3, 4, 5, 6].map(|column| cells[column].parse().unwrap()));
            assert_eq!([of_html, of_table], [of_page; 2], "{run}");
            for (place, _) in readme.match_indices(&format!("`{run}`: ")) {
                let text = &readme[place + run.len() + 4..];
                if let Some(of_readme) = stated(text) {
                    assert_eq!(of_readme, of_page, "{run} in {README}");
                }
            }
            all.push(of_page);
        }
        let Counts([better, same, worse, undecided, void]) = Counts::sum(all.into_iter());
        let total = format!(
            "better in {better}, the same in {same} and worse in {worse}; {undecided} are undecided and {void} void."
        );
        assert!(readme.contains(&total), "{README} lacks: {total}");
    }

    #[test]
    fn readme_and_page_lead_with_the_same_map() {
        let between = |text: &str| {
            let [begin, end] = MAP_MARKERS;
            let rest = text.split_once(begin).expect("there is no map").1;
            rest.split_once(end).expect("the map has no end").0.trim().to_owned()
        };
        let [page, readme] = [PAGE, README].map(read);
        assert_eq!(between(&page), between(&readme));
        assert_eq!(between(&readme).lines().count(), 3);
        for (text, picture) in [(&page, "(results/map.svg)"), (&readme, "(docs/results/map.svg)")] {
            assert!(text.contains(picture), "the picture of the map is missing");
        }
        assert!(read(&format!("{}/{MAP_PICTURE}", KEPT_DIRECTORIES[0])).starts_with("<svg "));
    }

    #[test]
    fn text_between_markers_is_replaced() {
        let text = replaced("a.md", "x <a> y <b> z", ["<a>", "<b>"], "new").unwrap();
        assert_eq!(text, "x <a>\nnew\n<b> z");
        let error = replaced("a.md", "x <a> y", ["<a>", "<b>"], "new").unwrap_err().to_string();
        assert_eq!(error, "a.md lacks the lines <a> and <b>");
    }

    #[test]
    fn counts_in_words_are_read() {
        let counts = Counts([1, 0, 0, 5, 0]);
        assert_eq!(stated("1 better, 5 undecided | ..."), Some(counts));
        assert_eq!(stated("2 worse; the rest"), Some(Counts([0, 0, 2, 0, 0])));
        assert_eq!(stated("79 µs of CPU"), None);
    }

    #[test]
    fn row_has_all_counts_and_the_words() {
        let counts =
            serde_json::json!({"better": 1, "same": 0, "worse": 1, "undecided": 2, "void": 3});
        let words = ["annulus takes less.", "It could not be compared."];
        let cell = |low: f64| serde_json::json!({"cost": {"median": 0.5, "interval": {"low": low, "high": 0.51}}});
        let verdicts = [cell(0.5), cell(0.49), cell(0.4), serde_json::json!({"cost": null})];
        let summary = serde_json::json!({"sentences": words, "counts": counts});
        let comparison = serde_json::json!({"summary": summary, "verdicts": verdicts});
        let run = ("files", "static files");
        assert_eq!(
            row(&run, &comparison).unwrap(),
            "| [files](results/files.md) | static files | 1 | 0 | 1 | 2 | 3 | 2.0 % \
             | annulus takes less. It could not be compared. |\n"
        );
        assert_eq!(row(&run, &serde_json::json!({})), None);
    }
}
