//! References to documents, files and invariants that do not exist.

use regex_lite::Regex;

use super::finding;
use super::tree::{SourceFile, Tree};
use crate::files::joined;

/// Endings that make a word count as the name of a file in this repository.
const ENDINGS: [&str; 6] = [".rs", ".md", ".toml", ".py", ".c", ".h"];
/// Beginnings of code spans that are not paths in the repository, such as absolute paths, options,
/// build output and kernel headers.
const FOREIGN_STARTS: [&str; 7] = ["/", ".", "-", "~", "target/", "linux/", "asm/"];
/// The document with the numbered invariants.
const INVARIANTS_PAGE: &str = "docs/ARCHITECTURE.md";
/// The parent of the directories of decisions, one per subject.
const DECISIONS_DIRECTORY: &str = "docs/adr/";

/// Returns every reference to something that does not exist.
pub(super) fn find(tree: &Tree) -> Vec<String> {
    let regex = |pattern| Regex::new(pattern).expect("invalid pattern");
    let known = ReferenceChecker {
        tree,
        invariants: invariants(tree),
        cited: regex(r"(ADR|nvariant)s*((?: +(?:and\b|to\b|\d\S*))+)"),
        document: regex(r"[A-Za-z0-9_./-]+\.md\b"),
    };
    tree.files.iter().flat_map(|file| known.check(file)).collect()
}

struct ReferenceChecker<'a> {
    tree: &'a Tree,
    invariants: Vec<u32>,
    /// Matches numbers after a word: `ADR 0017`, `Invariants 4 and 11` or `Invariants 2, 13`.
    cited: Regex,
    /// Matches the name of a document.
    document: Regex,
}

impl ReferenceChecker<'_> {
    fn check(&self, file: &SourceFile) -> Vec<String> {
        let mut found = Vec::new();
        let mut fenced = false;
        for (index, line) in file.text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            if if file.is_markdown() { fenced } else { !is_comment(line) } {
                continue;
            }
            let mut dangling = self.numbers(line);
            dangling.extend(self.spans(file, line));
            dangling.dedup();
            found.extend(dangling.into_iter().map(|text| finding(&file.path, index + 1, &text)));
        }
        found
    }

    /// Checks decisions and invariants cited by number.
    fn numbers(&self, prose: &str) -> Vec<String> {
        let mut lost = Vec::new();
        for cited in self.cited.captures_iter(prose) {
            for word in cited[2].split_whitespace() {
                let Ok(number) = word.trim_end_matches(|c: char| !c.is_ascii_digit()).parse()
                else {
                    continue;
                };
                let is_decision = &cited[1] == "ADR";
                if is_decision && !self.has_decision(number) {
                    lost.push(format!("ADR {number:04} is not in {DECISIONS_DIRECTORY}"));
                }
                if !is_decision && !self.invariants.contains(&number) {
                    lost.push(format!("invariant {number} is not numbered in {INVARIANTS_PAGE}"));
                }
            }
        }
        lost
    }

    /// Returns true if a page `NNNN-title.md` of this number is in a directory of decisions.
    fn has_decision(&self, number: u32) -> bool {
        let start = format!("{number:04}-");
        self.tree.paths.iter().filter_map(|path| path.strip_prefix(DECISIONS_DIRECTORY)).any(
            |page| page.split_once('/').is_some_and(|(_subject, name)| name.starts_with(&start)),
        )
    }

    /// Checks paths in code spans, and names of documents anywhere.
    fn spans(&self, file: &SourceFile, prose: &str) -> Vec<String> {
        let spans = prose.split('`').skip(1).step_by(2).filter(|span| is_path(span, file));
        let documents = self.document.find_iter(prose).map(|found| found.as_str());
        let documents = documents.filter(|path| !path.starts_with('/'));
        let lost = spans.chain(documents).filter(|path| !self.exists(file, path));
        lost.map(|path| format!("`{path}` does not exist")).collect()
    }

    /// Returns true if a path or pattern matches the path of a file or directory, or its last
    /// components.
    fn exists(&self, file: &SourceFile, path: &str) -> bool {
        if self.tree.paths.contains(&beside(file, path)) {
            return true;
        }
        let wanted = path.trim_start_matches("./");
        let mut paths = self.tree.paths.iter();
        if let Some(pattern) = pattern(wanted) {
            return paths.any(|known| pattern.is_match(known));
        }
        paths.any(|known| {
            known.strip_suffix(wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        })
    }
}

/// Returns true if a line of code is a comment.
fn is_comment(line: &str) -> bool {
    ["//", "# ", "* "].iter().any(|start| line.trim_start().starts_with(start))
}

/// Returns true if a code span looks like a path in this repository.
fn is_path(span: &str, file: &SourceFile) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./*{},".contains(c);
    let foreign = FOREIGN_STARTS.iter().any(|start| span.starts_with(start));
    if !span.chars().all(plain) || foreign || span.len() < 3 {
        return false;
    }
    let is_directory = span.ends_with('/') && file.is_markdown();
    is_directory || ENDINGS.iter().any(|ending| span.ends_with(ending) && span.len() > ending.len())
}

/// Returns the numbers of the invariants: items of numbered lists under a heading about invariants.
fn invariants(tree: &Tree) -> Vec<u32> {
    let Some(document) = tree.file(INVARIANTS_PAGE) else { return Vec::new() };
    let mut numbers = Vec::new();
    let mut inside = false;
    for line in document.text.lines() {
        if line.starts_with('#') {
            inside = line.to_lowercase().contains("invariant");
        } else if inside {
            numbers
                .extend(line.split_once(". ").and_then(|(number, _)| number.parse::<u32>().ok()));
        }
    }
    numbers
}

/// Resolves a path relative to the directory of `file`.
fn beside(file: &SourceFile, path: &str) -> String {
    joined(file.path.rsplit_once('/').map_or("", |(directory, _)| directory), path)
}

/// Returns a pattern for a path with `*`, with `{a,b}` for alternatives, or with the name
/// `NNNN-title` of any decision. Returns `None` if it has none of these.
fn pattern(path: &str) -> Option<Regex> {
    let decision = path.split_once("NNNN-").map(|(before, _)| format!("{before}#"));
    if decision.is_none() && !path.contains(['*', '{']) {
        return None;
    }
    let escaped = regex_lite::escape(decision.as_deref().unwrap_or(path));
    let escaped = escaped.replace(r"\#", r"\d[^/]*");
    let pattern = escaped.replace(r"\*", "[^/]*").replace(r"\{", "(?:").replace(r"\}", ")");
    Regex::new(&format!("(?:^|/)(?:{})$", pattern.replace(',', "|"))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 5] = [
        ("docs/ARCHITECTURE.md", "# Map\n## Invariants\n1. One.\n2. Two.\n## Rest\n3. No.\n"),
        ("docs/adr/runtime/0017-a.md", ""),
        ("docs/adr/0018-outside-of-these.md", ""),
        ("crates/a/src/net/stream.rs", ""),
        ("crates/a/src/net/socket.rs", ""),
    ];

    fn found(path: &str, text: &str) -> Vec<String> {
        let files = [&FILES[..], &[(path, text)]].concat();
        find(&Tree::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn existing_references_are_accepted() {
        let text = "ADR 0017, ADR 17; Invariant 2, invariants 1 and 2. `stream.rs`, `net/*.rs`, `net/{stream,socket}.rs`, \
                    `crates/`, `a/src/`, `/etc/no.md`, `--x.rs`, `a b.rs`, `NNNN-title.md`, `linux/x.h`\n[a](docs/adr/runtime/0017-a.md)\n```\n`gone.rs`\n```\n";
        assert_eq!(found("README.md", text), [""; 0]);
    }

    #[test]
    fn missing_references_are_found_once_with_their_line() {
        let text = "ADR 0018\n`net/gone.rs`\nsee NOTES.md, `NOTES.md`\ninvariants 2 and 3\n[a](docs/no.md)\n`gone/`\n";
        assert_eq!(
            found("README.md", text),
            [
                "README.md:1: ADR 0018 is not in docs/adr/",
                "README.md:2: `net/gone.rs` does not exist",
                "README.md:3: `NOTES.md` does not exist",
                "README.md:4: invariant 3 is not numbered in docs/ARCHITECTURE.md",
                "README.md:5: `docs/no.md` does not exist",
                "README.md:6: `gone/` does not exist",
            ]
        );
    }

    #[test]
    fn only_comments_of_code_are_read() {
        let text = "//! Invariant 9; `gone.rs`\nlet path = \"`gone.rs` Invariant 9 x.md\";\n// [`Type`] and `stream.rs`\n";
        assert_eq!(
            found("crates/a/src/lib.rs", text),
            [
                "crates/a/src/lib.rs:1: invariant 9 is not numbered in docs/ARCHITECTURE.md",
                "crates/a/src/lib.rs:1: `gone.rs` does not exist",
            ]
        );
    }
}
