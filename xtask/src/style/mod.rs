//! The style rules that neither rustfmt nor clippy checks: file sizes, phrases, floors, links,
//! references. Any violation is a failure.

mod floors;
mod links;
mod prose;
mod references;
mod tree;

use anyhow::ensure;

use crate::step::Outcome;
use tree::Tree;

/// The rules, each with a description of its findings.
pub(crate) const RULES: [(&str, &str); 5] = [
    ("files", "source files of more than 900 lines"),
    ("prose", "phrases above the ceilings of xtask/style/ceilings.txt"),
    ("floors", "files in cycles of directories and files beside a crate's lib.rs"),
    ("links", "links of Markdown files that a code host cannot follow"),
    ("references", "documents, files and invariants that do not exist"),
];

/// The maximum number of lines of a source file. Documents may be longer. Clippy limits functions
/// (`too_many_lines`).
const MAX_FILE_LINES: usize = 900;

/// A rule with at most this many findings lists them even if it was not given.
const MAX_LISTED_FINDINGS: usize = 20;

/// Formats a violation of a rule with its place.
fn finding(path: &str, line: usize, text: &str) -> String {
    format!("{path}:{line}: {text}")
}

/// Applies all rules and prints their numbers of findings. Lists the findings of the given rules,
/// and of rules with few.
pub(crate) fn list(names: &[String]) -> Outcome {
    let tree = Tree::read()?;
    let found = [
        long_files(&tree),
        prose::find(&tree)?,
        floors::find(&tree)?,
        links::find(&tree),
        references::find(&tree),
    ];
    let mut violated = Vec::new();
    for ((name, about), found) in RULES.iter().zip(found) {
        println!("{name:<12} {:>5}  {about}", found.len());
        if found.len() > MAX_LISTED_FINDINGS && !names.iter().any(|named| named == name) {
            println!("  `cargo xtask style {name}` lists all");
        } else {
            found.iter().for_each(|finding| println!("  {finding}"));
        }
        violated.extend((!found.is_empty()).then_some(*name));
    }
    ensure!(violated.is_empty(), "style: {}", violated.join(", "));
    Ok(Vec::new())
}

/// Returns source files above the limit.
fn long_files(tree: &Tree) -> Vec<String> {
    let sources = tree.files.iter().filter(|file| !file.is_markdown());
    let long = sources.filter_map(|file| {
        let lines = file.text.lines().count();
        let text = || format!("{lines} lines, {MAX_FILE_LINES} at most");
        (lines > MAX_FILE_LINES).then(|| finding(&file.path, 1, &text()))
    });
    long.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_above_the_limit_is_found_and_a_document_is_not() {
        let (fits, long) = ("\n".repeat(MAX_FILE_LINES), "\n".repeat(MAX_FILE_LINES + 1));
        let tree = Tree::of(&[("a.rs", &fits), ("b.c", &long), ("c.md", &long)]);
        assert_eq!(long_files(&tree), ["b.c:1: 901 lines, 900 at most"]);
    }
}
