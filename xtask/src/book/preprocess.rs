//! The preprocessor that mdBook calls. Pages define labels of items as links to source files. The
//! preprocessor rewrites these links to rustdoc's pages in the book, and links to other files
//! outside of the book to the repository. Without a repository in `Cargo.toml`, links to the
//! repository become plain text.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use fs_err as fs;
use regex_lite::{Captures, Regex};
use serde_json::Value;

use crate::features::{list, metadata};
use crate::files::joined;
use crate::step::{Outcome, target};

/// A link: its text, which may contain brackets, and its target.
const LINK: &str = r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()]+)\)";
/// A link with a label: its text, and the label.
const LABELLED: &str = r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\[([^\[\]]+)\]";
/// The definition of a label: the label, and its target.
const DEFINITION: &str = r"(?m)^\[([^\[\]]+)\]: (\S+)\n?";
/// The directories of the crates whose items are part of the crate `annulus`, outside of the book.
const ITEM_DIRECTORIES: [&str; 4] = [
    "../crates/annulus/src/",
    "../crates/driver/src/",
    "../crates/macros/src/",
    "../crates/sim/src/",
];

/// Reads the context and the book from stdin, and prints the book.
pub(crate) fn run() -> Outcome {
    let parsed: Result<[Value; 2], _> = serde_json::from_reader(io::stdin());
    let [_, mut book] = parsed.context("book: not a book of mdBook")?;
    let metadata = metadata("--no-deps")?;
    let mut urls = list(&metadata, "packages").filter_map(|package| package["repository"].as_str());
    let repository = urls.next().map(|url| url.trim_end_matches('/').to_owned());
    Pages { rustdoc: target().join("doc/annulus"), repository }.chapters(&mut book)?;
    println!("{book}");
    Ok(Vec::new())
}

struct Pages {
    /// The directory of rustdoc's pages.
    rustdoc: PathBuf,
    /// The URL of the repository, if it is known.
    repository: Option<String>,
}

impl Pages {
    /// Rewrites all chapters in a JSON value, at any depth.
    fn chapters(&self, value: &mut Value) -> Result<()> {
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

    /// Returns a chapter's text with its links rewritten, or replaced with their text. Code blocks
    /// stay as they are.
    fn rewritten(&self, path: &str, text: &str) -> Result<String> {
        let (link, labelled) = (Regex::new(LINK)?, Regex::new(LABELLED)?);
        let definition = Regex::new(DEFINITION)?;
        let mut targets = BTreeMap::new();
        for found in prose(text).flat_map(|prose| definition.captures_iter(prose)) {
            targets.insert(found[1].to_owned(), self.definition(path, &found[1], &found[2])?);
        }
        let written = |link: &Captures<'_>, target: Option<&str>| match target {
            Some(target) => format!("[{}]({target})", &link[1]),
            None => link[1].to_owned(),
        };
        let inline = |link: &Captures<'_>| written(link, self.target(path, &link[2]).as_deref());
        let reference = |link: &Captures<'_>| match targets.get(&link[2]) {
            Some(target) => written(link, target.as_deref()),
            None => link[0].to_owned(),
        };
        let blocks = text.split("```").enumerate().map(|(number, block)| match number % 2 {
            0 => {
                let block = definition.replace_all(block, "");
                let block = link.replace_all(&block, inline);
                labelled.replace_all(&block, reference).into_owned()
            }
            _ => format!("```{block}```"),
        });
        Ok(blocks.collect())
    }

    /// Returns the target of a label, or `None` if it is in an unknown repository.
    fn definition(&self, path: &str, label: &str, target: &str) -> Result<Option<String>> {
        let file = joined(parent(path), target);
        if !ITEM_DIRECTORIES.iter().any(|directory| file.starts_with(directory)) {
            return Ok(self.target(path, target));
        }
        let item = label.strip_prefix("annulus").filter(|rest| rest.starts_with('#'));
        let page = self.rustdoc(item.unwrap_or(label)).with_context(|| {
            format!("book: docs/{path}: rustdoc has no page of {label}; was `cargo doc` run?")
        })?;
        Ok(Some(format!("{}api/annulus/{page}", "../".repeat(path.matches('/').count()))))
    }

    /// Returns the target of a chapter's link, or `None` if it is in an unknown repository.
    fn target(&self, path: &str, link: &str) -> Option<String> {
        if link.contains("://") || link.starts_with(['#', '<']) {
            return Some(link.to_owned());
        }
        let full = joined(parent(path), link);
        match full.strip_prefix("../") {
            Some(file) => self.repository.as_ref().map(|base| format!("{base}/blob/main/{file}")),
            // Reports of results already exist as pages.
            None if full.starts_with("results/") => Some(link.replacen(".md", ".html", 1)),
            // mdBook renames README.md to index.md.
            None => Some(link.replacen("README.md", "index.md", 1)),
        }
    }

    /// Returns the page of an item, given its path in `annulus`.
    fn rustdoc(&self, item: &str) -> Option<String> {
        let (path, anchor) = item.split_at(item.find('#').unwrap_or(item.len()));
        let is_call = path.ends_with("()");
        let names = path.trim_end_matches("()").split("::").filter(|name| !name.is_empty());
        let names: Vec<&str> = names.collect();
        let page = match names.split_last() {
            None => "index.html".to_owned(),
            Some((last, modules)) => {
                self.page(modules, last, is_call).or_else(|| self.part(modules, last))?
            }
        };
        Some(page + anchor)
    }

    /// Returns the page of an item or, unless `is_call`, of a module, to which the page of the
    /// parent module links. A page in the same directory is preferred, because the parent may also
    /// link to an item of the same name elsewhere.
    fn page(&self, modules: &[&str], name: &str, is_call: bool) -> Option<String> {
        let directory: String = modules.iter().map(|module| format!("{module}/")).collect();
        let text = fs::read_to_string(self.rustdoc.join(&directory).join("index.html")).ok()?;
        let links: Vec<&str> = attributes(&text, "href=\"").collect();
        // Names of files consist of kind and name.
        let is_item = |link: &str| {
            let file = link.rsplit('/').next().and_then(|file| file.strip_suffix(".html"));
            file.and_then(|file| file.split_once('.')).is_some_and(|(_, item)| item == name)
        };
        let beside = links.iter().find(|link| is_item(link) && !link.contains('/'));
        let is_module = |link: &str| !is_call && link == format!("{name}/index.html");
        let module = || links.iter().find(|link| is_module(link));
        let link = beside.or_else(module).or_else(|| links.iter().find(|link| is_item(link)))?;
        Some(format!("{directory}{link}"))
    }

    /// Returns the page and anchor of a method, a variant or a field.
    fn part(&self, names: &[&str], part: &str) -> Option<String> {
        let (item, modules) = names.split_last()?;
        let page = self.page(modules, item, false)?;
        let text = fs::read_to_string(self.rustdoc.join(&page)).ok()?;
        let is_part = |id: &&str| id.split_once('.').is_some_and(|(_, name)| name == part);
        let anchor = attributes(&text, "id=\"").find(is_part)?;
        Some(format!("{page}#{anchor}"))
    }
}

/// Returns the parts of a text that are outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2)
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// Returns the values of an attribute, given its start including the opening quotation mark.
pub(super) fn attributes<'a>(text: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(start).skip(1).filter_map(|rest| rest.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates rustdoc pages with a function, a module of the same name, and a struct with a
    /// method.
    fn pages(name: &str, repository: Option<&str>) -> Pages {
        let rustdoc =
            std::env::temp_dir().join(format!("xtask-book-{name}-{}", std::process::id()));
        fs::create_dir_all(&rustdoc).unwrap();
        let files = [
            "task/fn.spawn.html",
            "shards/index.html",
            "shards/fn.shards.html",
            "net/struct.Lease.html",
            "struct.Lease.html",
            "net/index.html",
        ];
        let links = files.map(|file| format!("<a href=\"{file}\">")).concat();
        fs::write(rustdoc.join("index.html"), links).unwrap();
        fs::write(rustdoc.join("struct.Lease.html"), "<a id=\"method.split_to\">").unwrap();
        Pages { rustdoc, repository: repository.map(str::to_owned) }
    }

    #[test]
    fn links_to_rustdoc_and_the_repository_are_rewritten() {
        let pages = pages("links", None);
        let text = "[`a`][Lease::split_to] [b][shards()] [m][shards] [c](sending.md) [no][label]\n```rust\n[d][shards]\n```\n\
                    [e [f]](../../README.md#x) [g](../results/tcp.md) [h][annulus#what] [i](https://x.y) [j][spawn] [k][net] [l][l] [m\nn][n]\n\n\
                    [Lease::split_to]: ../../crates/annulus/src/a.rs\n[shards()]: ../../crates/annulus/src/b.rs\n\
                    [shards]: ../../crates/annulus/src/b.rs\n[annulus#what]: ../../crates/annulus/src/lib.rs\n\
                    [spawn]: ../../crates/driver/src/c.rs\n[net]: ../../crates/sim/src/d.rs\n\
                    [l]: ../../crates/compat/src/e.rs\n[n]: leases.md#x\n";
        let wanted = "[`a`](../api/annulus/struct.Lease.html#method.split_to) [b](../api/annulus/shards/fn.shards.html) [m](../api/annulus/shards/index.html) \
                      [c](sending.md) [no][label]\n```rust\n[d][shards]\n```\n\
                      e [f] [g](../results/tcp.html) [h](../api/annulus/index.html#what) [i](https://x.y) [j](../api/annulus/task/fn.spawn.html) \
                      [k](../api/annulus/net/index.html) l [m\nn](leases.md#x)\n\n";
        assert_eq!(pages.rewritten("guide/a.md", text).unwrap(), wanted);
        let published = Pages { repository: Some("https://x/y".into()), ..pages };
        let linked = published.rewritten("adr/a.md", "[a](../../tools/x.rs)").unwrap();
        assert_eq!(linked, "[a](https://x/y/blob/main/tools/x.rs)");
        fs::remove_dir_all(&published.rustdoc).unwrap();
    }

    #[test]
    fn item_missing_in_rustdoc_is_an_error_with_its_page() {
        let pages = pages("lacks", None);
        let text = "[a][Gone]\n\n[Gone]: ../../crates/annulus/src/gone.rs\n";
        let error = pages.rewritten("guide/a.md", text).unwrap_err().to_string();
        assert!(error.contains("docs/guide/a.md") && error.contains("Gone"), "{error}");
        fs::remove_dir_all(&pages.rustdoc).unwrap();
    }
}
