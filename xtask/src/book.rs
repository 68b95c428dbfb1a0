//! The book: pages of `docs`, in the order of `docs/SUMMARY.md`, with the guide of rustdoc and rustdoc's pages of `annulus` beside them.

mod links;
mod preprocess;

use std::fs;
use std::path::Path;

use crate::check;
use crate::step::{Failure, Outcome, Step, root, target};

/// Rustdoc's pages of `annulus`, and the files that they load. The rest of rustdoc's directory belongs to other crates.
const OF_RUSTDOC: [&str; 3] = ["annulus", "src/annulus", "static.files"];

/// Builds and checks the book; `preprocess` is the argument with which mdBook calls this program.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => build(),
        ["preprocess"] => preprocess::run(),
        // Every renderer is supported.
        ["preprocess", "supports", _] => Ok(Vec::new()),
        _ => {
            let text = format!("unexpected argument '{}': book takes none", words.join(" "));
            Err(Failure::Usage(text))
        }
    }
}

/// Checks that the pages are complete, builds the book, and checks that it has no dead link.
pub(crate) fn build() -> Outcome {
    let pages = markdown(&root().join("docs"), "").map_err(unread)?;
    complete(&pages)?;
    if Step::new("mdbook", "--version").probe().is_none() {
        return Ok(vec!["book (no mdbook: `cargo install mdbook --locked`)".into()]);
    }
    check::doc()?;
    let book = target().join("book");
    if book.exists() {
        fs::remove_dir_all(&book).map_err(unread)?;
    }
    Step::new("mdbook", "build docs --dest-dir").argument(&book).run()?;
    add(&book).map_err(unread)?;
    links::check(&book)?;
    eprintln!("{}", book.join("index.html").display());
    Ok(Vec::new())
}

fn unread(error: std::io::Error) -> Failure {
    Failure::Failed(format!("book: {error}"))
}

/// Adds what pages link to and mdBook does not copy: rustdoc's pages, and the reports of results.
fn add(book: &Path) -> std::io::Result<()> {
    let (doc, api) = (target().join("doc"), book.join("api"));
    for name in OF_RUSTDOC {
        copy(&doc.join(name), &api.join(name), &|_| true)?;
    }
    copy(&doc, &api, &|name| name.ends_with(".js") || name.ends_with(".html"))?;
    for name in ["search.desc", "search.index", "trait.impl", "type.impl"] {
        if doc.join(name).exists() {
            copy(&doc.join(name), &api.join(name), &|_| true)?;
        }
    }
    ["results", "results/originals"].iter().try_for_each(|reports| {
        copy(&root().join("docs").join(reports), &book.join(reports), &|name| name.ends_with(".md"))
    })
}

/// Copies the files of a directory whose names are wanted; if all are, those below it as well.
fn copy(from: &Path, to: &Path, wanted: &dyn Fn(&str) -> bool) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let target = to.join(&name);
        if entry.file_type()?.is_file() && wanted(&name.to_string_lossy()) {
            fs::copy(entry.path(), target)?;
        } else if entry.file_type()?.is_dir() && wanted("") {
            copy(&entry.path(), &target, wanted)?;
        }
    }
    Ok(())
}

/// The pages below a directory, without the reports of results, which have pages of their own: paths and texts.
fn markdown(directory: &Path, prefix: &str) -> std::io::Result<Vec<(String, String)>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() && path != "results" {
            pages.extend(markdown(&entry.path(), &format!("{path}/"))?);
        } else if path.ends_with(".md") {
            pages.push((path, fs::read_to_string(entry.path())?));
        }
    }
    Ok(pages)
}

/// Fails for a page that the summary lacks, and for Rust that nothing compiles: `cargo test` compiles that of the guide and of
/// `crates/annulus/README.md`, so it stands there, and elsewhere only as a copy.
fn complete(pages: &[(String, String)]) -> Result<(), Failure> {
    let read = |path: &str| fs::read_to_string(root().join(path)).map_err(unread);
    let (summary, compiled) = (read("docs/SUMMARY.md")?, read("crates/annulus/README.md")?);
    let readme = ("../README.md".to_owned(), read("README.md")?);
    match wrong(pages, readme, &summary, &compiled).first() {
        None => Ok(()),
        Some(first) => Err(Failure::Failed(format!("book: {first}"))),
    }
}

fn wrong(
    pages: &[(String, String)],
    readme: (String, String),
    summary: &str,
    compiled: &str,
) -> Vec<String> {
    let unlisted = pages
        .iter()
        .filter(|(path, _)| path != "SUMMARY.md" && !summary.contains(&format!("({path})")));
    let unlisted = unlisted.map(|(path, _)| format!("docs/{path} is not in docs/SUMMARY.md"));
    let code = pages.iter().chain([&readme]).filter(|(_, text)| {
        text.split("```rust").skip(1).any(|code| {
            let block = code.split("\n```").next().unwrap_or_default();
            !compiled.contains(block)
        })
    });
    let code = code.map(|(path, _)| {
        format!("docs/{path} has Rust that nothing compiles: put it into crates/annulus/README.md, or into the guide")
    });
    unlisted.chain(code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_without_a_chapter_and_code_that_nothing_compiles_are_found() {
        let page = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let pages = [page("a.md", "text"), page("b/c.md", "```rust\nlet x = 1;\n```\n")];
        let (readme, compiled) =
            (page("../README.md", "```rust\none();\n```"), "```rust\none();\n```\n");
        assert_eq!(
            wrong(&pages, readme.clone(), "- [A](a.md)", compiled),
            [
                "docs/b/c.md is not in docs/SUMMARY.md",
                "docs/b/c.md has Rust that nothing compiles: put it into crates/annulus/README.md, or into the guide",
            ]
        );
        assert_eq!(
            wrong(&pages[..1], readme, "[A](a.md)", "one();"),
            [
                "docs/../README.md has Rust that nothing compiles: put it into crates/annulus/README.md, or into the guide"
            ]
        );
    }
}
