//! The preprocessor that mdBook calls for every chapter: links of the guide, which are those of rustdoc, lead to rustdoc's pages beside the book,
//! and links to files that are not in the book to the repository, or are plain text as long as `Cargo.toml` names none.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::step::{Failure, Outcome, root, target};

/// The kinds of rustdoc's pages, by the beginning of their names.
const KINDS: [&str; 9] =
    ["struct", "enum", "trait", "fn", "type", "constant", "macro", "attr", "static"];
/// The kinds of what an item has.
const PARTS: [&str; 6] =
    ["method", "tymethod", "variant", "structfield", "associatedconstant", "associatedtype"];

/// Reads the context and the book from stdin, and writes the book.
pub(super) fn run() -> Outcome {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|error| failed(&error.to_string()))?;
    let parsed: Result<[Value; 2], _> = serde_json::from_str(&text);
    let [_, mut book] =
        parsed.map_err(|error| failed(&format!("not a book of mdBook: {error}")))?;
    let pages = Pages { rustdoc: target().join("doc/annulus"), repository: repository() };
    pages.chapters(&mut book)?;
    println!("{book}");
    Ok(Vec::new())
}

fn failed(why: &str) -> Failure {
    Failure::Failed(format!("book: {why}"))
}

/// Where the repository can be read, if that is known.
fn repository() -> Option<String> {
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).ok()?.parse().ok()?;
    let package = manifest.get("workspace")?.get("package")?;
    Some(package.get("repository")?.as_str()?.trim_end_matches('/').to_owned())
}

/// The destinations of links.
struct Pages {
    /// The directory of rustdoc's pages.
    rustdoc: PathBuf,
    repository: Option<String>,
}

impl Pages {
    /// Rewrites the chapters below a value, whatever the fields that hold them are called.
    fn chapters(&self, value: &mut Value) -> Result<(), Failure> {
        match value {
            Value::Array(all) => all.iter_mut().try_for_each(|one| self.chapters(one)),
            Value::Object(fields) => {
                if let (Some(path), Some(content)) = (fields.get("path"), fields.get("content")) {
                    let text = content.as_str().unwrap_or_default();
                    let text = self.rewritten(path.as_str().unwrap_or_default(), text)?;
                    fields.insert("content".to_owned(), text.into());
                }
                fields.iter_mut().try_for_each(|(_, field)| self.chapters(field))
            }
            _ => Ok(()),
        }
    }

    /// A chapter's text with links that lead somewhere. Code is left alone.
    fn rewritten(&self, path: &str, text: &str) -> Result<String, Failure> {
        let mut written = String::new();
        for (number, block) in text.split("```").enumerate() {
            match number % 2 {
                0 => self.links(path, block, &mut written)?,
                _ => written += &format!("```{block}```"),
            }
        }
        Ok(written)
    }

    fn links(&self, path: &str, text: &str, written: &mut String) -> Result<(), Failure> {
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("](") {
            written.push_str(before);
            let Some((link, after)) = after.split_once(')') else { break };
            // A call in rustdoc's notation: `crate::run()`.
            let (link, after) = match link.strip_suffix('(') {
                Some(name) => (format!("{name}()"), after.strip_prefix(')').unwrap_or(after)),
                None => (link.to_owned(), after),
            };
            match self.target(path, &link)? {
                Some(target) => *written += &format!("]({target})"),
                None => unlink(written),
            }
            rest = after;
        }
        written.push_str(rest);
        Ok(())
    }

    /// Where a link of a chapter leads; `None` if there is no such page to be read.
    fn target(&self, path: &str, link: &str) -> Result<Option<String>, Failure> {
        let up = "../".repeat(path.matches('/').count());
        if let Some(page) = link.strip_prefix("crate::guide::") {
            return Ok(Some(format!("{up}guide/{page}.md")));
        }
        if let Some(item) = link.strip_prefix("crate") {
            let page = self.rustdoc(item).ok_or_else(|| {
                failed(&format!("docs/{path}: rustdoc has no page of {link}; was `cargo doc` run?"))
            })?;
            return Ok(Some(format!("{up}api/annulus/{page}")));
        }
        if link.contains("://") || link.starts_with(['#', '<']) {
            return Ok(Some(link.to_owned()));
        }
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        let full = joined(directory, link);
        match full.strip_prefix("../") {
            Some(file) => {
                Ok(self.repository.as_ref().map(|base| format!("{base}/blob/main/{file}")))
            }
            // The reports of results are pages already.
            None if full.starts_with("results/") => Ok(Some(link.replacen(".md", ".html", 1))),
            // mdBook names the page of a directory so.
            None => Ok(Some(link.replacen("README.md", "index.md", 1))),
        }
    }

    /// The page of an item, from what follows `crate`.
    fn rustdoc(&self, item: &str) -> Option<String> {
        let (path, anchor) = item.split_once('#').unwrap_or((item, ""));
        let anchor = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
        let names: Vec<&str> =
            path.trim_end_matches("()").split("::").filter(|name| !name.is_empty()).collect();
        let is_call = path.ends_with("()");
        let page = match names.split_last() {
            None => "index.html".to_owned(),
            Some((last, modules)) => {
                self.page(modules, last, is_call).or_else(|| self.part(modules, last))?
            }
        };
        Some(page + &anchor)
    }

    /// The page of an item or, unless it is called, of a module.
    fn page(&self, modules: &[&str], name: &str, is_call: bool) -> Option<String> {
        let directory: String = modules.iter().map(|module| format!("{module}/")).collect();
        let module = (!is_call).then(|| format!("{directory}{name}/index.html"));
        let items = KINDS.iter().map(|kind| format!("{directory}{kind}.{name}.html"));
        let mut pages = items.chain(module);
        pages
            .find(|page| self.rustdoc.join(page).is_file())
            .or_else(|| self.named_elsewhere(&directory, name))
    }

    /// The page to which the module's own page leads for an item that it only names again.
    fn named_elsewhere(&self, directory: &str, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.rustdoc.join(directory).join("index.html")).ok()?;
        let is_its =
            |link: &&str| KINDS.iter().any(|kind| link.ends_with(&format!("/{kind}.{name}.html")));
        let link =
            text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()).find(is_its)?;
        Some(format!("{directory}{link}"))
    }

    /// The place of a method, a variant or a field in the page of its item.
    fn part(&self, names: &[&str], part: &str) -> Option<String> {
        let (item, modules) = names.split_last()?;
        let page = self.page(modules, item, false)?;
        let text = fs::read_to_string(self.rustdoc.join(&page)).ok()?;
        let mut anchors = PARTS.iter().map(|kind| format!("{kind}.{part}"));
        let anchor = anchors.find(|anchor| text.contains(&format!("id=\"{anchor}\"")))?;
        Some(format!("{page}#{anchor}"))
    }
}

/// Leaves the words of the link whose words have just been written.
fn unlink(written: &mut String) {
    let mut depth = 0;
    let open = written.char_indices().rev().find(|(_, c)| {
        depth += match c {
            ']' => 1,
            '[' => -1,
            _ => 0,
        };
        depth < 0
    });
    if let Some((at, _)) = open {
        written.remove(at);
    }
}

/// A path below a directory of the book, from its root; outside of it, it begins with `../`.
fn joined(directory: &str, path: &str) -> String {
    let joined = Path::new(directory).join(path);
    let mut parts: Vec<String> = Vec::new();
    for part in joined.components().map(|part| part.as_os_str().to_string_lossy()) {
        match (&*part, parts.last().map(String::as_str)) {
            ("..", Some(last)) if last != ".." => _ = parts.pop(),
            (".", _) => {}
            _ => parts.push(part.into_owned()),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pages of a rustdoc that knows a function, a module of the same name, and a structure with a method.
    fn pages(name: &str, repository: Option<&str>) -> Pages {
        let rustdoc =
            std::env::temp_dir().join(format!("xtask-book-{name}-{}", std::process::id()));
        fs::create_dir_all(rustdoc.join("shards")).unwrap();
        for page in ["fn.shards.html", "shards/index.html"] {
            fs::write(rustdoc.join(page), "").unwrap();
        }
        fs::write(rustdoc.join("index.html"), "<a href=\"task/fn.spawn.html\">").unwrap();
        fs::write(rustdoc.join("struct.Lease.html"), "<a id=\"method.split_to\">").unwrap();
        Pages { rustdoc, repository: repository.map(str::to_owned) }
    }

    fn rewritten(pages: &Pages, path: &str, text: &str) -> Result<String, String> {
        pages.rewritten(path, text).map_err(|failure| match failure {
            Failure::Failed(why) | Failure::Usage(why) => why,
        })
    }

    #[test]
    fn links_of_rustdoc_and_of_the_repository_lead_somewhere() {
        let pages = pages("links", None);
        let text = "[`a`](crate::Lease::split_to) [b](crate::shards()) [c](crate::guide::sending)\n```rust\n[d](crate::no)\n```\n\
                    [e [f]](../../README.md#x) [g](../results/tcp.md) [h](crate#what) [i](https://x.y) [j](crate::spawn)";
        let wanted = "[`a`](../api/annulus/struct.Lease.html#method.split_to) [b](../api/annulus/fn.shards.html) \
                      [c](../guide/sending.md)\n```rust\n[d](crate::no)\n```\n\
                      e [f] [g](../results/tcp.html) [h](../api/annulus/index.html#what) [i](https://x.y) [j](../api/annulus/task/fn.spawn.html)";
        assert_eq!(rewritten(&pages, "guide/a.md", text).as_deref(), Ok(wanted));
        let published = Pages { repository: Some("https://x/y".into()), ..pages };
        let linked = rewritten(&published, "adr/a.md", "[a](../../tools/x.rs)");
        assert_eq!(linked.as_deref(), Ok("[a](https://x/y/blob/main/tools/x.rs)"));
        fs::remove_dir_all(&published.rustdoc).unwrap();
    }

    #[test]
    fn an_item_that_rustdoc_lacks_is_an_error_with_its_page() {
        let pages = pages("lacks", None);
        let error = rewritten(&pages, "guide/a.md", "[a](crate::Gone)").unwrap_err();
        assert!(error.contains("docs/guide/a.md") && error.contains("crate::Gone"), "{error}");
        fs::remove_dir_all(&pages.rustdoc).unwrap();
    }
}
