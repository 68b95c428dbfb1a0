//! The style rules that a program can check: sizes, words, phrases, floors, links, references. Any
//! violation is a failure.

mod floors;
mod links;
mod prose;
mod references;
mod sizes;
mod tree;
mod words;

use anyhow::ensure;

use crate::step::Outcome;
use tree::Tree;
use words::Words;

/// The rules, each with a description of its findings.
pub(crate) const RULES: [(&str, &str); 7] = [
    ("files", "source files of more than 900 lines"),
    ("functions", "functions of more than 70 lines"),
    ("words", "words of xtask/style/words.txt"),
    ("prose", "phrases above the ceilings of xtask/style/ceilings.txt"),
    ("floors", "files in cycles of directories and files beside a crate's lib.rs"),
    ("links", "links of Markdown files that a code host cannot follow"),
    ("references", "documents, files and invariants that do not exist"),
];

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
    let words = Words::read()?;
    let (words, unused) = words.find(&tree);
    let unused = unused.join(", ");
    ensure!(unused.is_empty(), "xtask/style/allowed.txt has unused entries: {unused}");
    let found = [
        sizes::files(&tree),
        sizes::functions(&tree),
        words,
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
