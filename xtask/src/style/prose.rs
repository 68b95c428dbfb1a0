//! Phrases that native technical English rarely uses, counted in comments, messages and documents.
//!
//! `xtask/style/phrases.txt` lists the phrases. `xtask/style/ceilings.txt` has a ceiling for each
//! part of the project, in phrases per 10,000 words. A part fails above its ceiling. A large part
//! also fails well below it, so that its ceiling is lowered after an improvement. Other projects
//! have 4 (rustix) to 14 (h2). The count is only an indicator: a sentence that avoids every phrase
//! can still be bad.

use anyhow::{Context as _, Result};
use fs_err as fs;
use regex_lite::Regex;

use super::finding;
use super::tree::{SourceFile, Tree};
use crate::step::root;

/// If the ceiling of a large part exceeds the rate by more than this, it must be lowered. In a
/// small part, a single sentence changes the rate as much.
const SLACK: f64 = 6.0;
const LARGE_PART_WORDS: usize = 5000;
/// String literals with fewer words are rarely prose.
const MIN_LITERAL_WORDS: usize = 4;
/// Generated files, lists of names, fuzz inputs, and programs that contain code of other projects.
const LEFT_OUT: [&str; 4] = ["/results/", "/api/", "/peers/", "/corpus/"];

/// The phrases, one per line: a pattern, texts that a match contains, text that must not follow.
const PHRASES: &str = include_str!("../../style/phrases.txt");

/// Finds the parts above their ceilings, with each phrase in them.
pub(super) fn find(tree: &Tree) -> Result<Vec<String>> {
    let list = fs::read_to_string(root().join("xtask/style/ceilings.txt"))?;
    let phrases = Phrases::new();
    let mut found = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let entry =
            line.split_once(' ').and_then(|(part, rate)| Some((part, rate.trim().parse().ok()?)));
        let (part, ceiling): (&str, f64) = entry.with_context(|| {
            format!("ceilings.txt: '{line}' does not have the form 'PATH CEILING'")
        })?;
        found.extend(phrases.check(tree, part, ceiling));
    }
    Ok(found)
}

struct Phrases {
    phrases: Vec<Phrase>,
}

struct Phrase {
    pattern: Regex,
    /// Every match contains at least one of these. Searching for them first is much faster.
    texts: Vec<String>,
    /// A match followed by this does not count.
    unless: String,
}

impl Phrases {
    fn new() -> Phrases {
        let lines = PHRASES.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        Phrases { phrases: lines.map(Phrase::parse).collect() }
    }

    /// Compares the files of a part (a directory, or a file) with its ceiling.
    fn check(&self, tree: &Tree, part: &str, ceiling: f64) -> Vec<String> {
        let is_in = |path: &str| {
            path.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                && !LEFT_OUT.iter().any(|directory| path.contains(directory))
        };
        let (mut words, mut found) = (0, Vec::new());
        for file in tree.files.iter().filter(|file| is_in(&file.path)) {
            for (number, line) in Self::lines(file) {
                words += line.split_whitespace().count();
                let shown = |phrase: &str| format!("'{}'", phrase.trim());
                let of_line = self.phrases(&line).map(|it| finding(&file.path, number, &shown(it)));
                found.extend(of_line);
            }
        }
        let rate = found.len() as f64 * 1e4 / words.max(1) as f64;
        if rate > ceiling {
            let head = format!("{part}: {rate:.1} phrases per 10,000 words, {ceiling} at most");
            found.insert(0, head);
            return found;
        }
        let must_fall = words >= LARGE_PART_WORDS && ceiling - rate > SLACK;
        let text = || {
            format!("{part}: {rate:.1} phrases per 10,000 words: lower its ceiling of {ceiling}")
        };
        must_fall.then(text).into_iter().collect()
    }

    fn phrases<'a>(&'a self, line: &'a str) -> impl Iterator<Item = &'a str> {
        let candidates = self
            .phrases
            .iter()
            .filter(|phrase| phrase.texts.iter().any(|text| line.contains(text.as_str())));
        candidates.flat_map(move |phrase| {
            let unless = phrase.unless.as_str();
            let all = phrase.pattern.find_iter(line);
            let counts = move |rest: &str| unless.is_empty() || !follows(rest, unless);
            all.filter(move |found| counts(&line[found.end()..])).map(|found| found.as_str())
        })
    }

    /// Returns the lines of prose, each with its number.
    fn lines(file: &SourceFile) -> Vec<(usize, String)> {
        match (file.is_rust(), file.is_markdown()) {
            (true, _) => comments_and_literals(&file.text),
            (_, true) => outside_code(&file.text),
            _ => Vec::new(),
        }
    }
}

impl Phrase {
    /// Reads a line of phrases.txt.
    fn parse(line: &str) -> Phrase {
        let mut fields = line.split("  ");
        let mut field = || fields.next().unwrap_or_default();
        let pattern = Regex::new(field()).expect("phrases.txt has an invalid pattern");
        let texts = field().replace('_', " ").split('|').map(str::to_owned).collect();
        Phrase { pattern, texts, unless: field().replace('_', " ") }
    }
}

/// Returns the whole-line comments of Rust source and the string literals that are prose, with line
/// numbers.
fn comments_and_literals(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    // The literal being read: the number of its first line, and its text.
    let mut literal: Option<(usize, String)> = None;
    for (index, line) in text.lines().enumerate() {
        if let (None, Some(comment)) = (&literal, line.trim_start().strip_prefix("//")) {
            let comment = comment.strip_prefix(['/', '!']).unwrap_or(comment);
            lines.push((index + 1, comment.to_owned()));
            continue;
        }
        let mut characters = line.chars();
        while let Some(character) = characters.next() {
            match (&mut literal, character) {
                (None, '"') => literal = Some((index + 1, String::new())),
                (None, _) => {}
                (Some(_), '"') => lines.extend(literal.take().filter(|(_, text)| is_prose(text))),
                (Some((_, text)), '\\') => text.extend(['\\'].into_iter().chain(characters.next())),
                (Some((_, text)), character) => text.push(character),
            }
        }
        // An unclosed quotation mark is something else, such as a character literal.
        literal = literal.filter(|_| line.ends_with('\\'));
    }
    lines
}

/// Returns true if a literal looks like a sentence, not like a name, a command or code.
fn is_prose(literal: &str) -> bool {
    literal.split_whitespace().count() >= MIN_LITERAL_WORDS
        && !literal.trim_end().ends_with(['{', '}', ';'])
}

/// Returns true if the text starts with `unless`: a word, or a space and the beginning of a link or
/// a code span.
fn follows(text: &str, unless: &str) -> bool {
    match unless {
        " [`" => text.starts_with(" [") || text.starts_with(" `"),
        word => text.starts_with(word),
    }
}

/// Returns the lines of a document that are not in a code block.
fn outside_code(text: &str) -> Vec<(usize, String)> {
    let mut is_code = false;
    let lines = text.lines().enumerate().filter(|(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.map(|(index, line)| (index + 1, line.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_counted_in_comments_literals_and_documents_but_not_in_code() {
        let rust = "// The buffers of which one is full.\nlet of_which = \"of which\";\n\
                    fail(\"the port of which one is none\");\n";
        let markdown = "Rows of which\n```\nof which\n```\nthose of `a`\n";
        let tree = Tree::of(&[("a/b.rs", rust), ("a/c.md", markdown), ("ab.md", "of which")]);
        let found = Phrases::new().check(&tree, "a", 0.0);
        let expected = [
            "a: 2000.0 phrases per 10,000 words, 0 at most",
            "a/b.rs:1: 'of which'",
            "a/b.rs:3: 'of which'",
            "a/b.rs:3: 'is none'",
            "a/c.md:1: 'of which'",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_ceiling_far_above_the_rate_of_a_large_part_must_be_lowered() {
        let long = "plain words ".repeat(LARGE_PART_WORDS / 2);
        let tree = Tree::of(&[("long.md", &long), ("short.md", "plain words")]);
        let check = |part, ceiling| Phrases::new().check(&tree, part, ceiling);
        assert!(check("long.md", SLACK).is_empty() && check("short.md", SLACK + 1.0).is_empty());
        let found = check("long.md", SLACK + 1.0);
        assert!(found[0].ends_with("lower its ceiling of 7"), "{found:?}");
    }
}
