//! The page about kernels: the features of each, its driver, and its test results.

use std::collections::BTreeMap;

use serde_json::Value;

use super::packages::numbers;
use super::plan::Plan;
use super::results::{Results, Verdict};

/// The heading before the tables. What the page has above it is written by hand, and kept.
const FIRST_TABLE: &str = "## Results\n\n";

const FEATURES_HEAD: &str = "\
The answers of each kernel. The version is the kernel that introduced a feature; stable kernels have backports of some. An
empty cell means that the kernel has not been asked.

";

/// The titles of the columns of the tables with a row per kernel.
const RESULT_TITLES: [&str; 4] = ["checks passed", "tests run", "tests skipped", "checks failed"];
const DRIVER_TITLES: [&str; 2] = ["driver", "why"];

/// What the page says about one kernel.
struct Column {
    kernel: String,
    /// Its rows in the tables of results and drivers, without the name.
    result: String,
    driver: String,
    /// Its cells in the tables of features and checks, by the title of their rows.
    cells: BTreeMap<String, String>,
}

impl Column {
    fn of(plan: &Plan, results: &Results) -> Self {
        let driver = &results.doctor["driver"];
        let word = |name: &str| driver[name].as_str().unwrap_or("unknown");
        let checks = plan.checks.iter().zip(&results.checks);
        let checks = checks
            .map(|(check, verdict)| (check.name.clone(), verdict.words().replace("not here", "-")));
        let features = list(results).iter().map(|feature| {
            let present = if feature["present"] == true { "yes" } else { "no" };
            (title(feature), present.to_owned())
        });
        Self {
            kernel: results.kernel.clone(),
            result: summary(plan, results),
            driver: [word("kind"), word("reason")].join(" | "),
            cells: features.chain(checks).collect(),
        }
    }

    /// Reads the columns of a page that [`text`] has written.
    fn read(page: &str) -> Vec<Self> {
        let (mut columns, mut heading): (Vec<Self>, Vec<&str>) = (Vec::new(), Vec::new());
        for line in page.lines().filter(|line| !line.starts_with("|---")) {
            let row = line.strip_prefix("| ").and_then(|rest| rest.strip_suffix('|'));
            let Some(row) = row else {
                heading.clear();
                continue;
            };
            let (first, rest) = row.split_once(" | ").unwrap_or((row, ""));
            let cells = rest.split(" | ").map(str::trim);
            let column = columns.iter_mut().find(|column| column.kernel == first);
            if heading.is_empty() {
                heading = row.split(" | ").map(str::trim).collect();
            } else if heading[1..] == RESULT_TITLES {
                let (kernel, result) = (first.to_owned(), rest.trim().to_owned());
                let (driver, cells) = (String::new(), BTreeMap::new());
                columns.push(Self { kernel, result, driver, cells });
            } else if let Some(column) = column.filter(|_| heading[1..] == DRIVER_TITLES) {
                rest.trim().clone_into(&mut column.driver);
            } else {
                for (kernel, cell) in heading[1..].iter().zip(cells) {
                    if let Some(column) = columns.iter_mut().find(|column| column.kernel == *kernel)
                    {
                        column.cells.insert(first.to_owned(), cell.to_owned());
                    }
                }
            }
        }
        columns
    }

    /// Returns the version, major and minor, which a new release of the same kernel shares. The
    /// machine's own kernel comes last, whatever its version.
    fn version(&self) -> Vec<u64> {
        if self.kernel.ends_with("(here)") {
            return vec![u64::MAX];
        }
        numbers(&self.kernel).into_iter().take(2).collect()
    }
}

/// Returns the page with the results of a run, and with what `old`, the page so far, has about other
/// kernels and above its tables. `missing` lists requested kernels that were not run, each with the
/// reason.
pub(super) fn text(plan: &Plan, run: &[Results], missing: &[String], old: &str) -> String {
    let mut all: Vec<_> = run.iter().map(|results| Column::of(plan, results)).collect();
    let known: Vec<_> = all.iter().map(Column::version).collect();
    all.extend(Column::read(old).into_iter().filter(|column| !known.contains(&column.version())));
    all.sort_by_key(Column::version);
    let head = old.split_once(FIRST_TABLE).map_or("# Kernels\n\n", |(head, _)| head);
    let mut text = format!("{head}{FIRST_TABLE}");
    text += &rows(&RESULT_TITLES, &all, |column| &column.result);
    missing.iter().for_each(|kernel| text += &format!("\nNot run: {kernel}.\n"));
    text += "\n## Drivers\n\nThe driver that runs by default, and why.\n\n";
    text += &rows(&DRIVER_TITLES, &all, |column| &column.driver);
    text += &format!("\n## Features of io_uring\n\n{FEATURES_HEAD}");
    text += &heading("feature", &all, " benefit |");
    for feature in run.iter().map(list).max_by_key(|list| list.len()).unwrap_or_default() {
        let benefit = feature["buys"].as_str().unwrap_or_default();
        text += &format!("{} {benefit} |\n", row(&title(feature), &all));
    }
    text += "\n## Checks\n\nTests that passed, by check; `-` marks a check that needs io_uring. The `echo` checks load a server on the driver in their\n\
             name.\n\n";
    text += &heading("check", &all, "");
    plan.checks.iter().for_each(|check| text += &format!("{}\n", row(&check.name, &all)));
    text
}

/// Formats a table with a row per kernel.
fn rows(titles: &[&str], all: &[Column], cells: fn(&Column) -> &str) -> String {
    let row = |column: &Column| format!("| {} | {} |\n", column.kernel, cells(column));
    let rule = "---|".repeat(titles.len() + 1);
    let rows: String = all.iter().map(row).collect();
    format!("| kernel | {} |\n|{rule}\n{rows}", titles.join(" | "))
}

/// Formats a row of a table with a column per kernel.
fn row(title: &str, all: &[Column]) -> String {
    let cell = |column: &Column| column.cells.get(title).cloned().unwrap_or_default();
    let cells: Vec<_> = all.iter().map(cell).collect();
    format!("| {title} | {} |", cells.join(" | "))
}

/// Formats the cells of a kernel's row in the first table.
fn summary(plan: &Plan, results: &Results) -> String {
    let verdicts = || results.checks.iter();
    let passed = verdicts().filter(|verdict| matches!(verdict, Verdict::Passed(_))).count();
    let checks = passed + verdicts().filter(|verdict| verdict.is_bad()).count();
    let tests = verdicts().filter_map(|verdict| match verdict {
        Verdict::Passed(tests) => *tests,
        _ => None,
    });
    let (run, skipped) =
        tests.fold((0, 0), |(run, skipped), tests| (run + tests.run, skipped + tests.skipped));
    let failed: Vec<_> = results.bad(plan).collect();
    let failed = if failed.is_empty() { "none".into() } else { failed.join(", ") };
    format!("{passed} of {checks} | {run} | {skipped} | {failed}")
}

/// Formats the header of a table: the names, a column for each kernel, and the last column, if it
/// has a title.
fn heading(name: &str, all: &[Column], last: &str) -> String {
    let kernels: Vec<_> = all.iter().map(|column| column.kernel.as_str()).collect();
    let rule = "---|".repeat(all.len() + 1 + usize::from(!last.is_empty()));
    format!("| {name} | {} |{last}\n|{rule}\n", kernels.join(" | "))
}

/// Returns the features that a kernel reports.
fn list(results: &Results) -> &[Value] {
    results.doctor["io_uring"]["features"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns a feature's name and the version that introduced it.
fn title(feature: &Value) -> String {
    let word = |name: &str| feature[name].as_str().unwrap_or_default();
    format!("{} ({})", word("name"), word("since"))
}

#[cfg(test)]
mod tests {
    use super::super::results::Passed;
    use super::*;
    use serde_json::json;

    fn results(kernel: &str, features: Value) -> Results {
        let doctor = json!({
            "driver": { "kind": "uring", "reason": "io_uring works here" },
            "io_uring": { "features": features },
        });
        let checks = vec![Verdict::NotHere];
        Results { kernel: kernel.into(), checks, doctor }
    }

    #[test]
    fn features_are_rows_and_kernels_are_columns() {
        let feature = |present| json!([{"name": "bundles", "since": "6.10", "present": present, "buys": "less"}]);
        let all = [
            results("5.10", json!([])),
            results("6.1", feature(false)),
            results("6.12", feature(true)),
        ];
        let text = text(&Plan::of_names(&["ring"]), &all, &["kernel 5.4 (no package)".into()], "");
        assert!(
            text.contains("| feature | 5.10 | 6.1 | 6.12 | benefit |\n|---|---|---|---|---|\n")
        );
        assert!(text.contains("| bundles (6.10) |  | no | yes | less |\n"), "{text}");
        assert!(text.contains("| 6.1 | uring | io_uring works here |\n"));
        assert!(text.contains("| ring | - | - | - |\n"));
        assert!(text.contains("| 6.12 | 0 of 0 | 0 | 0 | none |\n"), "{text}");
        assert!(text.contains("\nNot run: kernel 5.4 (no package).\n"));
    }

    #[test]
    fn summary_names_failed_checks_and_counts_the_rest() {
        let mut results = results("6.1", json!([]));
        let tests = Passed { run: 7, skipped: 2 };
        results.checks =
            vec![Verdict::Passed(Some(tests)), Verdict::Passed(None), Verdict::Failed(vec![])];
        let plan = Plan::of_names(&["ring", "echo", "files"]);
        assert_eq!(summary(&plan, &results), "2 of 3 | 7 | 2 | files");
    }

    #[test]
    fn run_replaces_its_kernels_and_keeps_the_others() {
        let plan = Plan::of_names(&["ring"]);
        let feature =
            json!([{"name": "bundles", "since": "6.10", "present": true, "buys": "less"}]);
        let old = ["6.18.44 (here)", "6.12.9-amd64", "6.1.0-9-amd64"];
        let by_hand = "# Kernels\n\n## Newer kernels\n\nWritten by hand.\n\n";
        let old = old.map(|kernel| results(kernel, json!([])));
        let old = text(&plan, &old, &[], &format!("{by_hand}{FIRST_TABLE}"));
        let new = ["7.0.13-amd64", "6.12.100-amd64"].map(|kernel| results(kernel, feature.clone()));
        let text = text(&plan, &new, &[], &old);
        assert!(text.starts_with(&format!("{by_hand}{FIRST_TABLE}| kernel |")), "{text}");
        let kernels = "6.1.0-9-amd64 | 6.12.100-amd64 | 7.0.13-amd64 | 6.18.44 (here)";
        assert!(text.contains(&format!("| check | {kernels} |\n")), "{text}");
        assert!(text.contains("| bundles (6.10) |  | yes | yes |  | less |\n"), "{text}");
        assert!(text.contains("| ring | - | - | - | - |\n"), "{text}");
        assert!(text.contains("| 6.1.0-9-amd64 | 0 of 0 | 0 | 0 | none |\n"), "{text}");
        assert!(text.contains("| 6.1.0-9-amd64 | uring | io_uring works here |\n"), "{text}");
        assert_eq!(super::text(&plan, &new, &[], &text), text);
    }
}
