//! Finds dead links in the built book: links to missing files and anchors.

use std::path::Path;

use anyhow::{Result, ensure};
use fs_err as fs;

use super::preprocess::attributes;
use crate::files::below;

/// The maximum number of dead links listed.
const MAX_LISTED_LINKS: usize = 20;

/// Fails if a link within the book is dead.
pub(super) fn check(book: &Path) -> Result<()> {
    let mut dead = dead(book)?;
    let count = dead.len();
    dead.truncate(MAX_LISTED_LINKS);
    ensure!(dead.is_empty(), "book: {count} dead links\n{}", dead.join("\n"));
    Ok(())
}

/// Returns the dead links. Leaves out rustdoc's pages, whose links rustdoc checks, and 404.html,
/// whose links have another base.
fn dead(book: &Path) -> Result<Vec<String>> {
    let left_out = |path: &Path| path.ends_with("api") || path.ends_with("404.html");
    let is_page = |path: &Path| path.extension().is_some_and(|ending| ending == "html");
    let mut dead = Vec::new();
    for page in below(book, &left_out)?.iter().filter(|path| is_page(path)) {
        let text = fs::read_to_string(page)?;
        let links = attributes(&text, " href=\"").chain(attributes(&text, " src=\""));
        for link in links.filter(is_local) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let mut target = match path.split('?').next() {
                None | Some("") => page.clone(),
                Some(path) => page.parent().unwrap_or(book).join(path),
            };
            if target.is_dir() {
                target.push("index.html");
            }
            let id = format!("id=\"{anchor}\"");
            let has_anchor = || fs::read_to_string(&target).is_ok_and(|text| text.contains(&id));
            let leads = target.is_file() && (anchor.is_empty() || has_anchor());
            if !leads {
                dead.push(format!("{}: {link}", page.strip_prefix(book)?.display()));
            }
        }
    }
    Ok(dead)
}

fn is_local(link: &&str) -> bool {
    !link.is_empty() && !["://", "data:", "mailto:"].iter().any(|foreign| link.contains(foreign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_files_and_anchors_are_found() {
        let book = std::env::temp_dir().join(format!("xtask-book-dead-{}", std::process::id()));
        fs::create_dir_all(book.join("api")).unwrap();
        let page = "<a href=\"b.html#here\"> <a href=\"#top\" id=\"top\"> <img src=\"no.png\"> <a href=\"b.html#gone\"> \
                    <a href=\"https://x.y/z\"> <a href=\"api/\">";
        for (name, text) in [
            ("a.html", page),
            ("b.html", "<h2 id=\"here\">"),
            ("api/index.html", "<a href=\"no\">"),
        ] {
            fs::write(book.join(name), text).unwrap();
        }
        let mut found = dead(&book).unwrap();
        fs::remove_dir_all(&book).unwrap();
        found.sort();
        assert_eq!(found, ["a.html: b.html#gone", "a.html: no.png"]);
    }
}
