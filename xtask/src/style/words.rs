//! Forbidden words: `xtask/style/words.txt` lists them, each with a replacement;
//! `xtask/style/allowed.txt` lists the files in which one of them is allowed. Identifiers are split
//! into parts: `OutgoingParcel` and `send_parcel` both contain `parcel`. Neighbouring parts are
//! also joined: a listed `postoffice` matches `PostOffice` and `post_office`.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail};
use fs_err as fs;

use super::finding;
use super::tree::{SourceFile, Tree};
use crate::step::root;

pub(super) struct Words {
    /// Words and their replacements.
    instead: HashMap<String, String>,
    /// Pairs of a path and a word allowed there; `*` allows every word.
    allowed: Vec<(String, String)>,
}

impl Words {
    /// Reads both lists.
    pub(super) fn read() -> Result<Words> {
        let text = |name: &str| fs::read_to_string(root().join("xtask/style").join(name));
        Words::parse(&text("words.txt")?, &text("allowed.txt")?)
    }

    fn parse(words: &str, allowed: &str) -> Result<Words> {
        let mut instead = HashMap::new();
        for line in entries(words) {
            let (listed, advice) = line.split_once("  ").with_context(|| {
                format!(
                    "words.txt: '{line}' is not of the form 'WORDS  REPLACEMENT', with two spaces"
                )
            })?;
            for word in listed.split_whitespace() {
                instead.insert(word.to_owned(), advice.trim().to_owned());
            }
        }
        let allowed =
            entries(allowed).map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
                [path, word, _, ..] => Ok((path.to_owned(), word.to_owned())),
                _ => bail!("allowed.txt: '{line}' is not of the form 'PATH WORD REASON'"),
            });
        Ok(Words { instead, allowed: allowed.collect::<Result<_>>()? })
    }

    /// Returns the places of forbidden words, and the unused entries of `allowed.txt`.
    pub(super) fn find(&self, tree: &Tree) -> (Vec<String>, Vec<String>) {
        let (mut found, mut unused) = (Vec::new(), self.allowed.clone());
        for file in &tree.files {
            for (line, word) in self.listed(file) {
                let allows = |(path, any): &(String, String)| {
                    *path == file.path && (any == "*" || *any == word)
                };
                unused.retain(|entry| !allows(entry));
                if !self.allowed.iter().any(allows) {
                    let text = format!("'{word}': {}", self.instead[&word]);
                    found.push(finding(&file.path, line, &text));
                }
            }
        }
        (found, unused.iter().map(|(path, word)| format!("{path} {word}")).collect())
    }

    /// Returns the listed words in a file, each with its line.
    fn listed<'a>(&'a self, file: &'a SourceFile) -> impl Iterator<Item = (usize, String)> + 'a {
        let lines = file.text.lines().enumerate();
        lines.flat_map(|(index, line)| {
            let words = identifiers(line).flat_map(parts);
            let listed = words.filter(|word| self.instead.contains_key(word));
            listed.map(move |word| (index + 1, word)).collect::<Vec<_>>()
        })
    }
}

/// Returns the lines of a list without comments.
fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Returns the runs of ASCII alphabetic characters and underscores in a line.
fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    let runs = line.split(|c: char| !(c.is_ascii_alphabetic() || c == '_'));
    runs.filter(|run| !run.is_empty())
}

/// Returns the words of an identifier in lower case, and each pair of neighbours joined.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for piece in identifier.split('_').filter(|piece| !piece.is_empty()) {
        let mut word = String::new();
        let mut after_small = false;
        for c in piece.chars() {
            if c.is_ascii_uppercase() && after_small {
                parts.push(std::mem::take(&mut word));
            }
            word.push(c.to_ascii_lowercase());
            after_small = c.is_ascii_lowercase();
        }
        parts.push(word);
    }
    let joined: Vec<String> = parts.windows(2).map(<[String]>::concat).collect();
    parts.extend(joined);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str =
        "# a comment\nparcel parcels  OutgoingDatagram\npostoffice  Datagrams\nwho  a noun\n";

    fn found(allowed: &str, files: &[(&str, &str)]) -> Vec<String> {
        let words = Words::parse(WORDS, allowed).unwrap();
        words.find(&Tree::of(files)).0
    }

    #[test]
    fn identifiers_and_prose_are_read_alike() {
        let text =
            "struct OutgoingParcel;\n// Who sends parcels?\nlet post_office = PostOffice;\nwhole";
        assert_eq!(
            found("", &[("a.rs", text)]),
            [
                "a.rs:1: 'parcel': OutgoingDatagram",
                "a.rs:2: 'who': a noun",
                "a.rs:2: 'parcels': OutgoingDatagram",
                "a.rs:3: 'postoffice': Datagrams",
                "a.rs:3: 'postoffice': Datagrams",
            ]
        );
    }

    #[test]
    fn a_word_is_allowed_by_file() {
        let files = [("a.md", "who parcel"), ("b.md", "who parcel"), ("c.md", "who")];
        let allowed = "a.md who it is a quotation\nc.md * names all of them";
        assert_eq!(
            found(allowed, &files),
            [
                "a.md:1: 'parcel': OutgoingDatagram",
                "b.md:1: 'who': a noun",
                "b.md:1: 'parcel': OutgoingDatagram"
            ]
        );
    }

    #[test]
    fn an_entry_that_allows_nothing_is_found() {
        let words =
            Words::parse(WORDS, "a.md who reason\na.md parcel reason\nno.md * reason").unwrap();
        assert_eq!(words.find(&Tree::of(&[("a.md", "who")])).1, ["a.md parcel", "no.md *"]);
    }

    #[test]
    fn malformed_lists_are_refused_by_line() {
        assert!(Words::parse("parcel", "").err().unwrap().to_string().contains("'parcel' is not"));
        assert!(
            Words::parse("", "a.md who").err().unwrap().to_string().contains("'a.md who' is not")
        );
    }
}
