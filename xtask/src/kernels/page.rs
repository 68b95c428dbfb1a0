//! The page about kernels: the features of each, its driver, and its test results.

use serde_json::Value;

use super::plan::Plan;
use super::results::{Results, Verdict};

const PAGE_HEAD: &str = "\
# Kernels

`cargo xtask kernels 6.1 6.12 5.10 here --write` writes this page from its runs on Debian's kernels of these versions, each
in a virtual machine with two processors, and on the kernel of the machine itself. On a kernel that is too old for io_uring,
tests that need it are skipped and counted as skipped; tests of every driver run on the drivers that exist.

On aarch64 (Debian's Linux 6.12 in QEMU, by `sh xtask/src/kernels/aarch64.sh`), 2,717 tests of `annulus` passed and 12 failed:
11 reached a time limit of 100 s, now 1,000 s, and one showed a bug that has been fixed. Run again, these and the tests with
similar names passed, 31 of 31.

## Newer kernels

Debian's backports have newer kernels: `cargo xtask kernels 6.19 7.0 7.1 7.2 7.3` takes them, but has not run yet. They
have been booted in QEMU by hand, and asked what they know (`IORING_REGISTER_QUERY`). Of the checks below,
`driver-operations`, `ring` and `ring-linux` have run on three of them: on 6.19.14 and 7.3.4, all 40 tests passed; on
7.0.13, 39 passed, and one exceeded a time limit of 20 s while the machine had no processor time.

| feature | 6.18.44 (here) | 6.19.14 | 7.0.13 | 7.1.13 | 7.2.12 | 7.3.4 |
|---|---|---|---|---|---|---|
| mixed completions (6.18) | yes | yes | yes | yes | yes | yes |
| mixed entries (6.19) | no | yes | yes | yes | yes | yes |
| rewound submissions (7.0) | no | no | yes | yes | yes | yes |
| operation filters (7.0) | no | no | yes | yes | yes | yes |
| deviceless receive (7.1) | no | no | no | yes | yes | yes |
| filters that see the address of a connect (7.2) | no | no | no | no | yes | yes |

The driver uses none of them. Rewound submissions save too little: with NOPs, the cheapest operation, an enter of 4, 16 or 64
entries takes 0.6 %, 0.6 % or 0.4 % fewer instructions (7.3.4, QEMU with `-icount shift=0`, medians of five interleaved
pairs; with one entry, the pairs vary by more than that), and an enter that sends or receives does more work. A receive
without a device has the interface of zero-copy receive, but the kernel copies all bytes. A locked-down ring has no use for
filters, since its restrictions already allow only the operations of the runtime
([decision](adr/runtime/0062-operation-filters.md)).

## Results

";

/// Returns the page. `missing` lists requested kernels that were not run, each with the reason.
pub(super) fn text(plan: &Plan, all: &[Results], missing: &[String]) -> String {
    let mut text = PAGE_HEAD.to_owned();
    text += "| kernel | checks passed | tests run | tests skipped | checks failed |\n|---|---|---|---|---|\n";
    all.iter().for_each(|results| text += &summary(plan, results));
    missing.iter().for_each(|kernel| text += &format!("\nNot run: {kernel}.\n"));
    text += "\n## Drivers\n\nThe driver that runs by default, and why.\n\n| kernel | driver | why |\n|---|---|---|\n";
    for results in all {
        let driver = &results.doctor["driver"];
        let word = |name: &str| driver[name].as_str().unwrap_or("unknown").to_owned();
        text += &format!("| {} | {} | {} |\n", results.kernel, word("kind"), word("reason"));
    }
    text += "\n## Features of io_uring\n\nThe answers of each kernel. The version is the kernel that introduced a feature; stable kernels \
             have backports of some.\n\n";
    text += &heading("feature", all, " benefit |");
    features(all).iter().for_each(|feature| text += &feature_row(feature, all));
    text += "\n## Checks\n\nTests that passed, by check; `-` marks a check that needs io_uring. The `echo` checks load a server on the driver in their\n\
             name.\n\n";
    text += &heading("check", all, "");
    for (row, check) in plan.checks.iter().enumerate() {
        let cells = all.iter().map(|results| results.checks[row].words());
        let cells: Vec<_> = cells.map(|words| words.replace("not here", "-")).collect();
        text += &format!("| {} | {} |\n", check.name, cells.join(" | "));
    }
    text
}

/// Formats a kernel's row of the first table.
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
    format!("| {} | {passed} of {checks} | {run} | {skipped} | {failed} |\n", results.kernel)
}

/// Formats the header of a table: the names, a column for each kernel, and the last column, if it
/// has a title.
fn heading(name: &str, all: &[Results], last: &str) -> String {
    let kernels: Vec<_> = all.iter().map(|results| results.kernel.as_str()).collect();
    let rule = "---|".repeat(all.len() + 1 + usize::from(!last.is_empty()));
    format!("| {name} | {} |{last}\n|{rule}\n", kernels.join(" | "))
}

/// Returns the features, from the kernel that reports the most.
fn features(all: &[Results]) -> Vec<Value> {
    let lists = all.iter().filter_map(|results| results.doctor["io_uring"]["features"].as_array());
    lists.max_by_key(|list| list.len()).cloned().unwrap_or_default()
}

fn feature_row(feature: &Value, all: &[Results]) -> String {
    let word = |name: &str| feature[name].as_str().unwrap_or_default();
    let cells: Vec<_> = all.iter().map(|results| cell(results, &feature["name"])).collect();
    let (name, since) = (word("name"), word("since"));
    format!("| {name} ({since}) | {} | {} |\n", cells.join(" | "), word("buys"))
}

/// Returns `yes` or `no` for a kernel's feature, or nothing if the kernel's report lacks it.
fn cell(results: &Results, name: &Value) -> &'static str {
    let features = results.doctor["io_uring"]["features"].as_array();
    let line = features.and_then(|list| list.iter().find(|line| line["name"] == *name));
    match line.map(|line| line["present"] == true) {
        Some(true) => "yes",
        Some(false) => "no",
        None => "",
    }
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
        let text = text(&Plan::of_names(&["ring"]), &all, &["kernel 5.4 (no package)".into()]);
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
        assert_eq!(summary(&plan, &results), "| 6.1 | 2 of 3 | 7 | 2 | files |\n");
    }
}
