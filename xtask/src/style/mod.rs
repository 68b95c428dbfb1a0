//! The rules of style that a program can check: sizes, words, cycles of modules, references, examples in documentation.
//!
//! The code does not keep all of them yet, so violations are counted by rule and compared with the counts on record
//! ([`ratchet`]): more is a failure, and a lower count can be recorded.

mod examples;
mod floors;
mod graph;
mod modules;
mod ratchet;
mod references;
mod sizes;
mod tree;
mod words;

use std::fmt;

use crate::step::{Failure, Outcome};
use modules::Modules;
use tree::Tree;
use words::Words;

/// The crate whose modules must not form large cycles.
const CRATE: &str = "crates/annulus/src/lib.rs";
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

/// Compares the findings with the counts on record.
pub(crate) fn check() -> Outcome {
    compare(&apply()?)
}

fn compare(rules: &[Rule]) -> Outcome {
    let verdict = ratchet::compare(&counts(rules), &ratchet::read()?);
    for ((name, count), known) in &verdict.below {
        eprintln!(
            "style: {name}: {count}, down from {known}: `cargo xtask check --lower` records it"
        );
    }
    for ((name, count), known) in &verdict.above {
        let rule = rules.iter().find(|rule| rule.name == *name);
        eprintln!("style: {name}: {count}, above {known}: {}", rule.map_or("", |rule| rule.about));
        match rule.filter(|rule| rule.found.len() <= LISTED) {
            Some(rule) => rule.found.iter().for_each(|finding| eprintln!("  {finding}")),
            None => eprintln!("  `cargo xtask style {name}` lists all"),
        }
    }
    match verdict.above.as_slice() {
        [] => Ok(Vec::new()),
        above => {
            let names: Vec<&str> = above.iter().map(|((name, _), _)| *name).collect();
            Err(Failure::Failed(format!("style: more than on record: {}", names.join(", "))))
        }
    }
}

/// Records the counts, if none is above the one on record.
pub(crate) fn lower() -> Outcome {
    let rules = apply()?;
    let counts = counts(&rules);
    let verdict = ratchet::compare(&counts, &ratchet::read()?);
    if verdict.above.is_empty() {
        ratchet::write(&counts)?;
        return Ok(Vec::new());
    }
    compare(&rules)
}

/// Lists the findings of the named rules, prints the counts of all, and compares them with those on record.
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
    compare(&rules)
}

fn counts(rules: &[Rule]) -> Vec<ratchet::Count> {
    rules.iter().map(|rule| (rule.name, rule.found.len())).collect()
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
    let modules = Modules::read(&tree, CRATE);
    let modules = modules.map_err(|why| Failure::Failed(format!("style: {why}")))?;
    let floors = floors::find(&tree).map_err(|why| Failure::Failed(format!("style: {why}")))?;
    let examples = examples::find(&tree, &modules, &examples::exceptions()?);
    let rule = |name, about, found| Rule { name, about, found };
    Ok(vec![
        rule("files", "source files of more than 500 lines", sizes::files(&tree)),
        rule("functions", "functions of more than 70 lines", sizes::functions(&tree)),
        rule("words", "words of xtask/style/words.txt", words.find(&tree)),
        rule("cycle", "files in the largest cycle of modules of crates/annulus", cycle(&modules)),
        rule("floors", "files in cycles of directories and files beside a crate's lib.rs", floors),
        rule(
            "references",
            "documents, files and invariants that do not exist",
            references::find(&tree),
        ),
        rule(
            "examples",
            "public types of crates/annulus without an example in their docs",
            examples,
        ),
    ])
}

/// The files of the largest cycle, each with the members that it uses.
fn cycle(modules: &Modules) -> Vec<Finding> {
    let graph = modules.graph();
    let cycle = graph::largest_cycle(&graph);
    let member = |&file: &usize| {
        let named = graph[file].iter().filter(|to| cycle.contains(to));
        let names: Vec<&str> = named.map(|&to| short(&modules.files()[to])).collect();
        Finding::new(&modules.files()[file], 1, format!("names {}", names.join(", ")))
    };
    cycle.iter().map(member).collect()
}

/// A file's path below its crate's sources.
fn short(path: &str) -> &str {
    path.split_once("/src/").map_or(path, |(_, rest)| rest)
}
