//! Links of Markdown files, followed as a code host follows them: from a file to another file of
//! the repository, and to the headings that the host turns into anchors.
//!
//! Pages of the guide are also rustdoc pages. There, `links.txt` defines the same labels as items.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pulldown_cmark::{BrokenLink, CowStr, Event, LinkType, Options, Parser, Tag, TagEnd};
use regex_lite::Regex;

use super::finding;
use super::tree::{SourceFile, Tree};
use crate::files::joined;

/// The file of a crate with rustdoc's definitions for the pages next to it.
const ITEM_LINKS: &str = "/src/guide/links.txt";
/// Where rustdoc sends readers who follow a link to a page that rustdoc does not have.
const ELSEWHERE: &str = "guide#in-the-repository";

/// Returns every link that leads nowhere.
pub(super) fn find(tree: &Tree) -> Vec<String> {
    let pages: BTreeMap<&str, Page> = (tree.files.iter().filter(|file| file.is_markdown()))
        .map(|file| (file.path.as_str(), Page::read(file)))
        .collect();
    let mut found = Vec::new();
    for (path, page) in &pages {
        for (line, text) in &page.mistakes {
            found.push(finding(path, *line, text));
        }
        for (line, link) in &page.links {
            if let Some(mistake) = mistake(tree, &pages, path, link) {
                found.push(finding(path, *line, &format!("the link to {link} {mistake}")));
            }
        }
    }
    let lists = tree.files.iter().filter(|file| file.path.ends_with(ITEM_LINKS));
    found.extend(lists.flat_map(|list| compare(list, &item_links(tree, &pages, &list.path))));
    found
}

/// The links of a page, and the targets in it.
#[derive(Default)]
struct Page {
    /// Targets of links and pictures, with their lines.
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
    /// Definitions of labels: `[label]: target`.
    definitions: BTreeMap<String, String>,
    /// Mistakes that need no other file, with their lines.
    mistakes: Vec<(usize, String)>,
}

impl Page {
    fn read(file: &SourceFile) -> Page {
        let text = &file.text;
        let line = |offset: usize| text[..offset].matches('\n').count() + 1;
        let mut page = Page::default();
        let mut undefined = Vec::new();
        let mut on_undefined = |link: BrokenLink<'_>| {
            // Brackets in prose are not links, unless they contain code, as rustdoc's links do.
            if link.link_type != LinkType::Shortcut || link.reference.starts_with('`') {
                undefined.push((line(link.span.start), link.reference.to_string()));
            }
            None::<(CowStr<'_>, CowStr<'_>)>
        };
        let options = Options::ENABLE_TABLES | Options::ENABLE_GFM;
        let parser = Parser::new_with_broken_link_callback(text, options, Some(&mut on_undefined));
        let definitions = parser.reference_definitions().iter();
        page.definitions =
            definitions.map(|(label, to)| (label.to_owned(), to.dest.to_string())).collect();
        let mut unused: BTreeSet<String> = page.definitions.keys().cloned().collect();
        let mut slugs = Slugs::default();
        let mut heading: Option<String> = None;
        for (event, span) in parser.into_offset_iter() {
            match event {
                Event::Start(Tag::Link { dest_url, id, .. } | Tag::Image { dest_url, id, .. }) => {
                    unused.remove(&*id);
                    page.links.push((line(span.start), dest_url.to_string()));
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let heading = heading.take().unwrap_or_default();
                    page.anchors.insert(slugs.next(&heading));
                }
                Event::Html(html) | Event::InlineHtml(html) => {
                    page.read_html(&html, line(span.start));
                }
                Event::Text(words) | Event::Code(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                    if words.contains("{{#") {
                        let text = "a code host shows {{#…}} as it is".to_owned();
                        page.mistakes.push((line(span.start), text));
                    }
                }
                _ => {}
            }
        }
        for (line, label) in undefined {
            page.mistakes.push((line, format!("the label [{label}] is not defined in this file")));
        }
        for label in unused {
            let definition = text.find(&format!("[{label}]:")).unwrap_or(0);
            page.mistakes.push((line(definition), format!("the label [{label}] is not used")));
        }
        page
    }

    /// Reads the links and anchors of a tag.
    fn read_html(&mut self, html: &str, line: usize) {
        let attribute = Regex::new(r#"\b(href|src|id|name)="([^"]*)""#).expect("invalid pattern");
        for attribute in attribute.captures_iter(html) {
            match &attribute[1] {
                "href" | "src" => self.links.push((line, attribute[2].to_owned())),
                _ => _ = self.anchors.insert(attribute[2].to_owned()),
            }
        }
    }
}

/// The anchors of a page's headings. Later headings with the same words get a number.
#[derive(Default)]
struct Slugs {
    seen: HashMap<String, usize>,
}

impl Slugs {
    fn next(&mut self, heading: &str) -> String {
        let mut slug = heading.trim().to_lowercase().replace(' ', "-");
        slug.retain(|c| c.is_alphanumeric() || "-_".contains(c));
        let count = self.seen.entry(slug.clone()).or_default();
        *count += 1;
        if *count == 1 { slug } else { format!("{slug}-{}", *count - 1) }
    }
}

/// Returns the mistake in a link of the page at `path`, if there is one.
fn mistake(
    tree: &Tree,
    pages: &BTreeMap<&str, Page>,
    path: &str,
    link: &str,
) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    if link == "crate" || link.starts_with("crate#") || link.contains("::") {
        return Some("leads to an item, which a code host does not know: define a label");
    }
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match target {
        "" => path.to_owned(),
        target => joined(path.rsplit_once('/').map_or("", |(directory, _)| directory), target),
    };
    let directory = format!("{}/", target.trim_end_matches('/'));
    if !tree.paths.contains(&target) && !tree.paths.contains(&directory) {
        return Some("leads nowhere");
    }
    let page = pages.get(target.as_str());
    let has_anchor = anchor.is_empty() || page.is_some_and(|page| page.anchors.contains(anchor));
    (!has_anchor).then_some("leads to an anchor that its file does not have")
}

/// Returns the lines that a crate's list of item links must contain, given the path of the list.
fn item_links(tree: &Tree, pages: &BTreeMap<&str, Page>, list: &str) -> BTreeSet<String> {
    let directory = list.trim_end_matches("links.txt");
    let krate = list.trim_end_matches(ITEM_LINKS).rsplit('/').next().unwrap_or_default();
    let included = tree.symlinks.iter().filter(|(link, _)| link.starts_with(directory));
    let pages = included.filter_map(|(_, page)| pages.get(page.as_str()));
    let definitions = pages.flat_map(|page| &page.definitions);
    let local = definitions.filter(|(_, to)| !to.contains("://"));
    local.map(|(label, _)| format!("[{label}]: {}", item(krate, label))).collect()
}

/// Returns the item to which a label leads in the documentation of a crate. A label is a path in
/// `annulus`, or after `compat::` in `annulus_compat`; a label with a slash or with `.md` is a file.
fn item(krate: &str, label: &str) -> String {
    let (owner, path) = match label.strip_prefix("compat::") {
        Some(path) => ("compat", path),
        None => ("annulus", label),
    };
    let root = if krate == owner { "crate" } else { "annulus" };
    // `annulus` does not depend on `annulus_compat`, so its pages cannot link to it.
    let is_file = label.contains('/') || label.ends_with(".md");
    if is_file || krate == "annulus" && owner != krate {
        let root = if krate == "annulus" { "crate" } else { "annulus" };
        return format!("{root}::{ELSEWHERE}");
    }
    match path.strip_prefix("annulus") {
        Some(rest) if rest.is_empty() || rest.starts_with('#') => format!("{root}{rest}"),
        _ => format!("{root}::{path}"),
    }
}

/// Compares a list of item links with the lines that it must contain.
fn compare(list: &SourceFile, wanted: &BTreeSet<String>) -> Vec<String> {
    let listed: BTreeSet<String> = list.text.lines().map(str::to_owned).collect();
    let lacking = wanted.difference(&listed).map(|line| format!("lacks `{line}`"));
    let unused = listed.difference(wanted).map(|line| format!("does not need `{line}`"));
    lacking.chain(unused).map(|text| finding(&list.path, 1, &text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        find(&Tree::of(files))
    }

    #[test]
    fn links_to_files_directories_and_headings_are_accepted() {
        let text = "# A `b`, (c)\n[a](docs/b.md) [b](docs/) [c](#a-b-c) [d](docs/b.md#two-1) [e][f], [0.9, 1.0]\n\
                    <a href=\"docs/b.md#here\">x</a> ![p](p.png) [g](https://x/y) `[n](no.md)`\n\n\
                    ```\n[n](no.md)\n```\n\n[f]: docs/b.md\n";
        let page = "# Two\n\n<a name=\"here\"></a>\n\n# Two\n";
        assert_eq!(found(&[("README.md", text), ("docs/b.md", page), ("p.png", "")]), [""; 0]);
    }

    #[test]
    fn links_that_a_code_host_cannot_follow_are_found() {
        let text = "[a\nb](no.md)\n[c](a.md#gone)\n[d](crate::Lease)\n[e][f]\n[`g`]\n{{#include x.md}}\n\
                    <img src=\"no.png\">\n[h](../../out.md)\n\n[i]: a.md\n";
        assert_eq!(
            found(&[("docs/a.md", text)]),
            [
                "docs/a.md:7: a code host shows {{#…}} as it is",
                "docs/a.md:5: the label [f] is not defined in this file",
                "docs/a.md:6: the label [`g`] is not defined in this file",
                "docs/a.md:11: the label [i] is not used",
                "docs/a.md:1: the link to no.md leads nowhere",
                "docs/a.md:3: the link to a.md#gone leads to an anchor that its file does not have",
                "docs/a.md:4: the link to crate::Lease leads to an item, which a code host does not know: define a label",
                "docs/a.md:8: the link to no.png leads nowhere",
                "docs/a.md:9: the link to ../../out.md leads nowhere",
            ]
        );
    }

    #[test]
    fn item_links_define_every_label_of_the_pages_beside_them() {
        let page = "[a][spawn] [b][annulus#x] [c][guide::d] [e][docs/f.md] [g][compat::tower] [h][H.md]\n\n\
                    [spawn]: a.rs\n[annulus#x]: a.rs\n[guide::d]: p.md\n[docs/f.md]: p.md\n[compat::tower]: a.rs\n[H.md]: p.md\n";
        let list = "[spawn]: crate::spawn\n[annulus#x]: crate#x\n[guide::d]: crate::guide::d\n\
                    [docs/f.md]: crate::guide#in-the-repository\n[H.md]: crate::guide#in-the-repository\n[old]: crate::old\n";
        let other = "[spawn]: annulus::spawn\n[annulus#x]: annulus#x\n[guide::d]: annulus::guide::d\n\
                     [docs/f.md]: annulus::guide#in-the-repository\n[H.md]: annulus::guide#in-the-repository\n[compat::tower]: crate::tower\n";
        let [ours, theirs] = ["annulus", "compat"].map(|name| format!("crates/{name}/src/guide/"));
        let lists = [&ours, &theirs].map(|directory| format!("{directory}links.txt"));
        let mut tree = Tree::of(&[
            ("docs/p.md", page),
            ("docs/a.rs", ""),
            (&lists[0], list),
            (&lists[1], other),
        ]);
        for directory in [ours, theirs] {
            tree.symlinks.insert(format!("{directory}p.md"), "docs/p.md".to_owned());
        }
        let place = &lists[0];
        assert_eq!(
            find(&tree),
            [
                format!("{place}:1: lacks `[compat::tower]: crate::guide#in-the-repository`"),
                format!("{place}:1: does not need `[old]: crate::old`"),
            ]
        );
    }
}
