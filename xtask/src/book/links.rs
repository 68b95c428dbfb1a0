//! Dead links of the book that was built: files that are not there, and places that a page does not have.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::step::Failure;

/// Up to so many are listed.
const LISTED: usize = 20;

/// Fails if a link of the book, other than of rustdoc's pages, leads nowhere within it.
pub(super) fn check(book: &Path) -> Result<(), Failure> {
    let dead = dead(book).map_err(|error| Failure::Failed(format!("book: {error}")))?;
    if dead.is_empty() {
        return Ok(());
    }
    let listed: Vec<&str> = dead.iter().take(LISTED).map(String::as_str).collect();
    Err(Failure::Failed(format!("book: {} dead links\n{}", dead.len(), listed.join("\n"))))
}

fn dead(book: &Path) -> std::io::Result<Vec<String>> {
    let mut pages = Vec::new();
    find(book, &mut pages)?;
    let mut anchors = Anchors::default();
    let mut dead = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page)?;
        let name = page.strip_prefix(book).unwrap_or(&page).display().to_string();
        let links = links(&text).filter(is_local);
        let lost = links.filter(|link| !anchors.leads(&page, link));
        dead.extend(lost.map(|link| format!("{name}: {link}")));
    }
    Ok(dead)
}

/// The pages of the book, without rustdoc's, which rustdoc checks, and without the page of what is not found, whose links have another
/// base.
fn find(directory: &Path, pages: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "api" {
            find(&path, pages)?;
        } else if path.extension().is_some_and(|ending| ending == "html") && name != "404.html" {
            pages.push(path);
        }
    }
    Ok(())
}

/// The destinations of the page's links and pictures.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let named = |attribute: &'static str| {
        text.split(attribute).skip(1).filter_map(|rest| rest.split('"').next())
    };
    named(" href=\"").chain(named(" src=\""))
}

fn is_local(link: &&str) -> bool {
    !link.is_empty() && !["://", "data:", "mailto:"].iter().any(|foreign| link.contains(foreign))
}

/// The texts of pages that were asked for.
#[derive(Default)]
struct Anchors(HashMap<PathBuf, String>);

impl Anchors {
    fn leads(&mut self, page: &Path, link: &str) -> bool {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let path = path.split('?').next().unwrap_or_default();
        let mut target = match path {
            "" => page.to_owned(),
            path => page.parent().unwrap_or(page).join(path),
        };
        if target.is_dir() {
            target.push("index.html");
        }
        target.is_file() && (anchor.is_empty() || self.has(&target, anchor))
    }

    fn has(&mut self, target: &Path, anchor: &str) -> bool {
        let read = || fs::read_to_string(target).unwrap_or_default();
        let text = self.0.entry(target.to_owned()).or_insert_with(read);
        text.contains(&format!("id=\"{anchor}\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_places_that_are_not_there_are_found() {
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
