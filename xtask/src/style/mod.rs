//! The rules of style that a program can check: sizes, words, floors, references. Any violation is a failure.

mod floors;
mod modules;
mod references;
mod sizes;
mod tree;
mod words;

use std::fmt;

use crate::step::{Failure, Outcome};
use tree::Tree;
use words::Words;

/// Up to so many findings of a rule are listed even if not asked for.
const LISTED: usize = 20;

/// A violation of a rule.
#[derive(Debug)]
struct Finding {
    path: String,
    line: usize,
    text: String,
}

impl Finding {
    fn new(path: &str, line: usize, text: String) -> Finding {
        Finding { path: path.to_owned(), line, text }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.text)
    }
}

/// The findings of one rule.
struct Rule {
    name: &'static str,
    about: &'static str,
    found: Vec<Finding>,
}

/// Applies the rules.
pub(crate) fn check() -> Outcome {
    verdict(&apply()?)
}

fn verdict(rules: &[Rule]) -> Outcome {
    let violated: Vec<&Rule> = rules.iter().filter(|rule| !rule.found.is_empty()).collect();
    for Rule { name, about, found } in &violated {
        eprintln!("style: {name}: {}: {about}", found.len());
        match found.len() <= LISTED {
            true => found.iter().for_each(|finding| eprintln!("  {finding}")),
            false => eprintln!("  `cargo xtask style {name}` lists all"),
        }
    }
    let names: Vec<&str> = violated.iter().map(|rule| rule.name).collect();
    match names.is_empty() {
        true => Ok(Vec::new()),
        false => Err(Failure::Failed(format!("style: {}", names.join(", ")))),
    }
}

/// Lists the findings of the named rules, and prints the counts of all.
pub(crate) fn list(names: &[String]) -> Outcome {
    let rules = apply()?;
    if let Some(unknown) = names.iter().find(|name| !rules.iter().any(|rule| rule.name == **name)) {
        let known: Vec<&str> = rules.iter().map(|rule| rule.name).collect();
        let text = format!("unknown rule '{unknown}': one of {}", known.join(", "));
        return Err(Failure::Usage(text));
    }
    for rule in rules.iter().filter(|rule| names.iter().any(|name| name == rule.name)) {
        rule.found.iter().for_each(|finding| println!("{finding}"));
    }
    for rule in &rules {
        println!("{:<12} {:>5}  {}", rule.name, rule.found.len(), rule.about);
    }
    verdict(&rules)
}

fn apply() -> Result<Vec<Rule>, Failure> {
    let tree = Tree::read()?;
    let words = Words::read()?;
    let unused = words.unused(&tree);
    if !unused.is_empty() {
        let text =
            format!("xtask/style/allowed.txt allows what is not there: {}", unused.join(", "));
        return Err(Failure::Failed(text));
    }
    let floors = floors::find(&tree).map_err(|why| Failure::Failed(format!("style: {why}")))?;
    let rule = |name, about, found| Rule { name, about, found };
    Ok(vec![
        rule("files", "source files of more than 500 lines", sizes::files(&tree)),
        rule("functions", "functions of more than 70 lines", sizes::functions(&tree)),
        rule("words", "words of xtask/style/words.txt", words.find(&tree)),
        rule("floors", "files in cycles of directories and files beside a crate's lib.rs", floors),
        rule(
            "references",
            "documents, files and invariants that do not exist",
            references::find(&tree),
        ),
    ])
}

/// A file's path below its crate's sources.
fn short(path: &str) -> &str {
    path.split_once("/src/").map_or(path, |(_, rest)| rest)
}
