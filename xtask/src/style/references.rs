//! References to documents, files and invariants that do not exist.

use super::Finding;
use super::tree::{SourceFile, Tree};

/// Endings of words that count as names of files of this repository.
const ENDINGS: [&str; 6] = [".rs", ".md", ".toml", ".py", ".c", ".h"];
/// Beginnings of paths that are not in the repository: absolute ones, options, build output, headers of the kernel.
const FOREIGN: [&str; 7] = ["/", ".", "-", "~", "target/", "linux/", "asm/"];
/// The document with the numbered invariants.
const INVARIANTS: &str = "docs/ARCHITECTURE.md";
const DECISIONS: &str = "docs/adr/";

/// Every reference to something that does not exist.
pub(super) fn find(tree: &Tree) -> Vec<Finding> {
    let known = Known { tree, invariants: invariants(tree) };
    tree.files.iter().flat_map(|file| known.check(file)).collect()
}

struct Known<'a> {
    tree: &'a Tree,
    invariants: Vec<u32>,
}

impl Known<'_> {
    fn check(&self, file: &SourceFile) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut fenced = false;
        for (index, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            }
            let prose =
                if file.is_markdown() { Some(line).filter(|_| !fenced) } else { comment(line) };
            let Some(prose) = prose else { continue };
            let mut dangling = self.numbers(prose);
            dangling.extend(self.spans(file, prose));
            if file.is_markdown() {
                dangling.extend(self.links(file, prose));
            }
            dangling.dedup();
            found
                .extend(dangling.into_iter().map(|text| Finding::new(&file.path, index + 1, text)));
        }
        found
    }

    /// Decisions and invariants cited by number.
    fn numbers(&self, prose: &str) -> Vec<String> {
        let decisions = cited(prose, "ADR").into_iter().filter(|number| {
            let start = format!("{DECISIONS}{number:04}-");
            !self.tree.paths.iter().any(|path| path.starts_with(&start))
        });
        let invariants =
            cited(prose, "nvariant").into_iter().filter(|number| !self.invariants.contains(number));
        let decisions = decisions.map(|number| format!("ADR {number:04} is not in {DECISIONS}"));
        let invariants =
            invariants.map(|number| format!("invariant {number} is not numbered in {INVARIANTS}"));
        decisions.chain(invariants).collect()
    }

    /// Paths in code spans, and names of documents anywhere.
    fn spans(&self, file: &SourceFile, prose: &str) -> Vec<String> {
        let spans = prose.split('`').skip(1).step_by(2).filter(|span| is_path(span, file));
        let documents = prose
            .split(|c: char| !(c.is_ascii_alphanumeric() || "_-./".contains(c)))
            .map(|word| word.trim_end_matches('.'))
            .filter(|word| word.ends_with(".md") && word.len() > 3 && !word.starts_with('/'));
        let lost = spans.chain(documents).filter(|path| !self.exists(file, path));
        lost.map(|path| format!("`{path}` does not exist")).collect()
    }

    /// Targets of links inside the repository.
    fn links(&self, file: &SourceFile, prose: &str) -> Vec<String> {
        let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        // rustdoc checks the links to items.
        let elsewhere = ["mailto:", "crate"];
        let local = targets.filter(|target| {
            !target.contains("://") && !elsewhere.iter().any(|start| target.starts_with(start))
        });
        let lost = local.filter(|target| {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { file.path.clone() } else { beside(&file.path, path) };
            let is_there =
                |known: &String| known.trim_end_matches('/') == path.trim_end_matches('/');
            !self.tree.paths.iter().any(is_there) || !self.has_heading(&path, anchor)
        });
        lost.map(|target| format!("the link to {target} leads nowhere")).collect()
    }

    fn has_heading(&self, path: &str, anchor: &str) -> bool {
        let headings = |file: &SourceFile| {
            let mut headings = file.text.lines().filter(|line| line.starts_with('#'));
            headings.any(|line| slug(line.trim_start_matches('#').trim()) == anchor)
        };
        anchor.is_empty() || self.tree.file(path).is_none_or(headings)
    }

    /// Whether a path, or the end of one, is that of a file or directory.
    fn exists(&self, file: &SourceFile, path: &str) -> bool {
        let direct = beside(&file.path, path);
        let wanted = path.trim_start_matches("./");
        self.tree.paths.iter().any(|known| {
            *known == direct || alternatives(wanted).iter().any(|wanted| ends_with(known, wanted))
        })
    }
}

/// The comment on a line of code.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start();
    let is_comment = text.starts_with("//") || text.starts_with("# ") || text.starts_with("* ");
    is_comment.then_some(text)
}

/// Whether a code span is meant as a path of this repository.
fn is_path(span: &str, file: &SourceFile) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./*{},".contains(c);
    let foreign = FOREIGN.iter().any(|start| span.starts_with(start));
    if !span.chars().all(plain) || foreign || span.len() < 3 {
        return false;
    }
    let is_directory = span.ends_with('/') && file.is_markdown();
    is_directory || ENDINGS.iter().any(|ending| span.ends_with(ending) && span.len() > ending.len())
}

/// Numbers that follow a word, such as `ADR 0017`, `Invariants 4 and 11` or `Invariants 2, 13`.
fn cited(prose: &str, word: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for (at, _) in prose.match_indices(word) {
        let rest = prose[at + word.len()..].trim_start_matches('s');
        let mut words = rest.split_whitespace();
        if !rest.starts_with(' ') {
            continue;
        }
        for word in words.by_ref().take_while(|word| {
            matches!(*word, "and" | "to") || word.starts_with(|c: char| c.is_ascii_digit())
        }) {
            let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
            numbers.extend(digits.parse::<u32>());
        }
    }
    numbers
}

/// The numbers of the invariants: items of numbered lists under a heading that names them.
fn invariants(tree: &Tree) -> Vec<u32> {
    let Some(document) = tree.file(INVARIANTS) else { return Vec::new() };
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

/// A path that is relative to the directory of `file`, from the root.
fn beside(file: &str, path: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Expands braces to each of their alternatives.
fn alternatives(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (inside, after))) => {
            inside.split(',').map(|middle| format!("{before}{middle}{after}")).collect()
        }
        None => vec![path.to_owned()],
    }
}

/// Whether a path ends with another, in whole names.
fn ends_with(known: &str, wanted: &str) -> bool {
    let (known, wanted): (Vec<_>, Vec<_>) =
        (known.split('/').collect(), wanted.split('/').collect());
    let start = known.len().checked_sub(wanted.len());
    start.is_some_and(|start| {
        known[start..].iter().zip(&wanted).all(|(name, pattern)| fits(name, pattern))
    })
}

/// Whether a name matches a pattern with at most one `*`. `NNNN` in the name of a decision is any number.
fn fits(name: &str, pattern: &str) -> bool {
    if pattern.starts_with("NNNN-") {
        return name.starts_with(|c: char| c.is_ascii_digit());
    }
    match pattern.split_once('*') {
        Some((before, after)) => {
            name.len() >= before.len() + after.len()
                && name.starts_with(before)
                && name.ends_with(after)
        }
        None => name == pattern,
    }
}

/// A heading as links name it.
fn slug(heading: &str) -> String {
    let kept = heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .collect::<String>();
    kept.replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [(&str, &str); 4] = [
        ("docs/ARCHITECTURE.md", "# Map\n## Invariants\n1. One.\n2. Two.\n## Rest\n3. No.\n"),
        ("docs/adr/0017-a.md", ""),
        ("crates/a/src/net/stream.rs", ""),
        ("crates/a/src/net/socket.rs", ""),
    ];

    fn found(path: &str, text: &str) -> Vec<String> {
        let files = [&FILES[..], &[(path, text)]].concat();
        find(&Tree::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_exists_is_found() {
        let text = "ADR 0017, ADR 17; Invariant 2, invariants 1 and 2. `stream.rs`, `net/*.rs`, `net/{stream,socket}.rs`, \
                    `crates/`, `a/src/`, `/etc/no.md`, `--x.rs`, `a b.rs`, `NNNN-title.md`, `linux/x.h`\n[a](docs/adr/0017-a.md#) [b](docs/) \
                    [c](https://x/y.rs) [d](docs/ARCHITECTURE.md#invariants)\n```\n`gone.rs`\n```\n";
        assert_eq!(found("README.md", text), [""; 0]);
    }

    #[test]
    fn what_does_not_exist_is_found_once_with_its_line() {
        let text = "ADR 0018\n`net/gone.rs`\nsee NOTES.md, `NOTES.md`\ninvariants 2 and 3\n[a](docs/no.md)\n`gone/`\n[b](docs/ARCHITECTURE.md#no)\n";
        assert_eq!(
            found("README.md", text),
            [
                "README.md:1: ADR 0018 is not in docs/adr/",
                "README.md:2: `net/gone.rs` does not exist",
                "README.md:3: `NOTES.md` does not exist",
                "README.md:4: invariant 3 is not numbered in docs/ARCHITECTURE.md",
                "README.md:5: `docs/no.md` does not exist",
                "README.md:5: the link to docs/no.md leads nowhere",
                "README.md:6: `gone/` does not exist",
                "README.md:7: the link to docs/ARCHITECTURE.md#no leads nowhere",
            ]
        );
    }

    #[test]
    fn of_code_only_comments_are_read() {
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
