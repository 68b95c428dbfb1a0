//! The book: pages of `docs` in the order of `docs/SUMMARY.md`, the guide, and rustdoc's pages of
//! `annulus`.

mod links;
mod preprocess;

use std::path::Path;

use anyhow::{Result, ensure};
use fs_err as fs;

use crate::files::{below, remove};
use crate::step::{Outcome, Step, root, target};
use crate::verbs;

pub(crate) use preprocess::run as preprocess;

/// Directories with rustdoc's pages of `annulus` and the files that they load. Rustdoc's other
/// directories belong to other crates.
const RUSTDOC_PATHS: [&str; 7] = [
    "annulus/",
    "src/annulus/",
    "static.files/",
    "search.desc/",
    "search.index/",
    "trait.impl/",
    "type.impl/",
];

/// Checks that the pages are complete, builds the book, and checks that it has no dead link.
pub(crate) fn build() -> Outcome {
    check_pages()?;
    if Step::new("mdbook", "--version").probe().is_none() {
        return Ok(vec!["book (no mdbook: `cargo install mdbook --locked`)".into()]);
    }
    verbs::doc()?;
    let book = target().join("book");
    remove(&book)?;
    Step::new("mdbook", "build docs --dest-dir").argument(&book).run()?;
    // mdBook does not copy these, but pages link to them.
    copy(&target().join("doc"), &book.join("api"), |path| {
        let is_shared = path.ends_with(".js") || path.ends_with(".html");
        is_shared && !path.contains('/') || RUSTDOC_PATHS.iter().any(|part| path.starts_with(part))
    })?;
    copy(&root().join("docs/results"), &book.join("results"), |path| path.ends_with(".md"))?;
    links::check(&book)?;
    eprintln!("{}", book.join("index.html").display());
    Ok(Vec::new())
}

/// Copies the files below a directory whose relative paths are `wanted`.
fn copy(from: &Path, to: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
    for file in below(from, &|_| false)? {
        let path = file.strip_prefix(from)?;
        if wanted(&path.to_string_lossy()) {
            let copy = to.join(path);
            fs::create_dir_all(copy.parent().unwrap_or(to))?;
            fs::copy(&file, copy)?;
        }
    }
    Ok(())
}

/// The crates whose documentation includes pages of `docs/guide`.
const GUIDES: [&str; 2] = ["crates/annulus/src/guide", "crates/compat/src/guide"];

/// Fails for pages that are missing in the summary, and for Rust code that nothing compiles. `cargo
/// test` compiles the code in `crates/annulus/README.md` and in the pages that a crate's guide
/// includes; code in other pages must be a copy of that code. Reports of results are not checked.
fn check_pages() -> Result<()> {
    let (root, docs) = (root(), root().join("docs"));
    let mut pages = vec![("README.md".to_owned(), fs::read_to_string(root.join("README.md"))?)];
    for file in below(&docs, &|path| path.ends_with("docs/results"))? {
        if file.extension().is_some_and(|ending| ending == "md") {
            let path = file.strip_prefix(&root)?.to_string_lossy().into_owned();
            pages.push((path, fs::read_to_string(&file)?));
        }
    }
    let summary = fs::read_to_string(docs.join("SUMMARY.md"))?;
    let mut compiled = fs::read_to_string(root.join("crates/annulus/README.md"))?;
    for guide in GUIDES {
        let modules = fs::read_to_string(root.join(guide).join("mod.rs"))?;
        for module in modules.lines().map(str::trim) {
            if let Ok(page) = fs::read_to_string(root.join(guide).join(format!("{module}.md"))) {
                compiled += &page;
            }
        }
    }
    let wrong = wrong(&pages, &summary, &compiled);
    ensure!(wrong.is_empty(), "book: {}", wrong.join("; "));
    Ok(())
}

fn wrong(pages: &[(String, String)], summary: &str, compiled: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (path, text) in pages {
        let page = path.strip_prefix("docs/").filter(|page| *page != "SUMMARY.md");
        if page.is_some_and(|page| !summary.contains(&format!("({page})"))) {
            wrong.push(format!("{path} is not in docs/SUMMARY.md"));
        }
        let mut code = text.split("```rust").skip(1).filter_map(|code| code.split("\n```").next());
        if code.any(|block| !compiled.contains(block)) {
            wrong.push(format!(
                "{path} has Rust that nothing compiles: put it into crates/annulus/README.md, or into a page of the guide"
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_without_a_chapter_and_code_that_nothing_compiles_are_found() {
        let page = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let pages = [
            page("README.md", "```rust\none();\n```"),
            page("docs/a.md", "text"),
            page("docs/b/c.md", "```rust\nlet x = 1;\n```\n"),
        ];
        let code = "has Rust that nothing compiles: put it into crates/annulus/README.md, or into a page of the guide";
        assert_eq!(
            wrong(&pages, "- [A](a.md)", "```rust\none();\n```\n"),
            ["docs/b/c.md is not in docs/SUMMARY.md".to_owned(), format!("docs/b/c.md {code}")]
        );
        let readme = format!("README.md {code}");
        assert_eq!(wrong(&pages[..2], "[A](a.md)", "two();"), [readme]);
    }
}
