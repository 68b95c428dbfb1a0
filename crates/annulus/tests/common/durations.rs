//! Finds the public durations of a crate, so that a test covers all of them and no new one is
//! forgotten.
#![allow(dead_code, reason = "each test file uses only some of it")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Panics unless the list has exactly the public functions and fields in a directory that take a
/// duration, each as `file.rs name`.
pub(crate) fn assert_all_known(directory: &Path, known: &[&str]) {
    let mut found = BTreeSet::new();
    collect(directory, directory, &mut found);
    let known: BTreeSet<String> = known.iter().map(ToString::to_string).collect();
    let missing: Vec<_> = found.difference(&known).collect();
    assert!(
        missing.is_empty(),
        "try Duration::MAX and Duration::ZERO with {missing:?} in this test too"
    );
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "listed, but missing from the sources: {gone:?}");
}

fn collect(root: &Path, directory: &Path, found: &mut BTreeSet<String>) {
    for entry in
        fs::read_dir(directory).expect("the directory cannot be read").map(|entry| entry.unwrap())
    {
        let path = entry.path();
        let name = path.file_stem().expect("no name");
        if path.is_dir() {
            collect(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests" {
            let text = fs::read_to_string(&path).expect("the file cannot be read");
            let file = path.strip_prefix(root).expect("not in the directory").display().to_string();
            found.extend(in_source(&text).into_iter().map(|name| format!("{file} {name}")));
        }
    }
}

fn in_source(text: &str) -> Vec<String> {
    let text = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let text: String = text.lines().filter(is_code).map(|line| format!("{line}\n")).collect();
    let mut found = Vec::new();
    let mut from = 0;
    for line in text.lines() {
        // A signature may continue on the next line.
        let rest = text[from..].split(['{', ';']).next().unwrap_or_default();
        from += line.len() + 1;
        let taken = rest.split("->").next().unwrap_or_default();
        let (word, public) = (line.trim(), line.trim().strip_prefix("pub "));
        let name = |text: &str| {
            text.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        if let Some((_, function)) = public.and_then(|public| public.split_once("fn ")) {
            found.extend(taken.contains("Duration").then(|| name(function)));
        } else if !line.contains("Duration") || line.contains("const ") {
            // Not a duration that a program sets.
        } else if let Some(field) = public.filter(|public| public.contains(": ")) {
            found.push(name(field));
        } else if let Some((_, setter)) =
            word.split_once(" / ").filter(|(_, name)| name.starts_with("set_"))
        {
            found.push(name(setter));
        } else if let Some((variant, held)) = word.split_once('(')
            && variant.starts_with(char::is_uppercase)
            && variant.chars().all(char::is_alphanumeric)
            && held.ends_with("),")
            && !held.contains("::")
        {
            found.push(name(word));
        }
    }
    found
}
