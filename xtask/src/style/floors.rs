//! Finds cycles between the top-level modules of a crate, which are the files and directories next
//! to `lib.rs`. Without cycles they form floors (layers). A path counts as a use of its top-level
//! module: `crate::net::Stream` uses `net`. A name that the crate's root imports counts as a use of
//! the module it comes from. Paths inside macros are not seen, and paths in tests do not count.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context as _, Result};
use syn::visit::{self, Visit};

use super::finding;
use super::tree::Tree;

/// The path of a module or an item from the root of its crate.
type ModulePath = Vec<String>;

/// Returns a finding for each file that takes part in a cycle, naming the paths that lead back.
pub(super) fn find(tree: &Tree) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let roots = tree.files.iter().filter_map(|file| file.path.strip_suffix("/src/lib.rs"));
    for root in roots.filter(|root| root.matches('/').count() == 1) {
        found.extend(Crate::read(tree, &format!("{root}/src/"))?.find());
    }
    Ok(found)
}

/// A crate: its files with the paths that they use, and the names that its root imports.
struct Crate {
    files: Vec<(String, FileNames)>,
    floors: BTreeSet<String>,
    /// Names imported in `lib.rs` and in modules inside that file, and the paths they refer to.
    imported: HashMap<ModulePath, ModulePath>,
}

impl Crate {
    fn read(tree: &Tree, sources: &str) -> Result<Crate> {
        let (mut files, mut tests) = (Vec::new(), Vec::new());
        for file in tree.files.iter().filter(|file| file.is_rust()) {
            let Some(path) = file.path.strip_prefix(sources) else { continue };
            let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
            let place = path.split('/').filter(|name| *name != "lib").map(str::to_owned).collect();
            let parsed = syn::parse_file(&file.text).with_context(|| file.path.clone())?;
            let mut names = FileNames { place, ..FileNames::default() };
            names.visit_file(&parsed);
            tests.append(&mut names.tests);
            files.push((file.path.clone(), names));
        }
        files.retain(|(_, names)| !tests.iter().any(|test| names.place.starts_with(test)));
        let floors = files.iter().filter_map(|(_, names)| names.place.first().cloned()).collect();
        let root = files.iter_mut().find(|(_, names)| names.place.is_empty());
        let imported =
            root.map(|(_, names)| std::mem::take(&mut names.imported)).unwrap_or_default();
        Ok(Crate { files, floors, imported })
    }

    fn find(&self) -> Vec<String> {
        let mut edges = BTreeSet::new();
        for (_, names) in &self.files {
            let below = names.paths.iter().filter_map(|path| self.floor(path));
            edges.extend(below.filter_map(|below| Some((names.floor()?, below))));
        }
        edges.retain(|(from, to)| from != to);
        let found = |(path, names): &(String, FileNames)| {
            let own = names.floor()?;
            let back = |path: &&ModulePath| {
                self.floor(path).is_some_and(|floor| floor != own && leads_to(&edges, floor, own))
            };
            let back: BTreeSet<String> =
                names.paths.iter().filter(back).map(|path| path.join("::")).collect();
            let named = Vec::from_iter(back).join(", ");
            let text = format!("uses {named}, which leads back to {own}");
            (!named.is_empty()).then(|| finding(path, 1, &text))
        };
        self.files.iter().filter_map(found).collect()
    }

    /// Returns the top-level module that a path leads to.
    fn floor<'a>(&'a self, path: &'a [String]) -> Option<&'a str> {
        let first = path.first()?;
        if self.floors.contains(first) {
            return Some(first);
        }
        let imported = (1..=path.len()).find_map(|end| self.imported.get(&path[..end]));
        imported.filter(|imported| !path.starts_with(imported)).and_then(|path| self.floor(path))
    }
}

/// Returns true if the uses in `edges` lead from module `from` to module `to`.
fn leads_to(edges: &BTreeSet<(&str, &str)>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut next = vec![from];
    while let Some(floor) = next.pop() {
        if floor == to {
            return true;
        }
        for &(user, used) in edges {
            if user == floor && seen.insert(used) {
                next.push(used);
            }
        }
    }
    false
}

/// What a file refers to in its own crate: the paths that it uses and imports, and its test
/// modules.
#[derive(Default)]
struct FileNames {
    /// The current module.
    place: ModulePath,
    paths: Vec<ModulePath>,
    /// Items imported by `use`: the path of each import, and its target.
    imported: HashMap<ModulePath, ModulePath>,
    /// Modules compiled for tests only.
    tests: Vec<ModulePath>,
}

impl FileNames {
    /// Returns the file's top-level module, or `None` for the root.
    fn floor(&self) -> Option<&str> {
        self.place.first().map(String::as_str)
    }

    /// Returns the path of a name in the current module.
    fn here(&self, name: &syn::Ident) -> ModulePath {
        [self.place.as_slice(), &[name.to_string()]].concat()
    }

    /// Converts a path used in the current module to a path from the crate root and returns it.
    /// Records it if it starts with `crate`, `super` or `self`.
    fn add(&mut self, path: &[String]) -> ModulePath {
        let mut place = self.place.clone();
        let mut rest = path;
        while let Some((first, after)) = rest.split_first() {
            match first.as_str() {
                "crate" => place.clear(),
                "super" => _ = place.pop(),
                "self" => {}
                _ => break,
            }
            rest = after;
        }
        place.extend(rest.iter().cloned());
        if rest.len() < path.len() {
            self.paths.push(place.clone());
        }
        place
    }

    fn import(&mut self, tree: &syn::UseTree, mut path: ModulePath) {
        match tree {
            syn::UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                self.import(&inner.tree, path);
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.import(item, path.clone()));
            }
            syn::UseTree::Name(name) => self.import_name(&name.ident, &name.ident, path),
            syn::UseTree::Rename(name) => self.import_name(&name.ident, &name.rename, path),
            syn::UseTree::Glob(_) => _ = self.add(&path),
        }
    }

    fn import_name(&mut self, name: &syn::Ident, shown: &syn::Ident, mut path: ModulePath) {
        path.push(name.to_string());
        let shown = self.here(shown);
        let target = self.add(&path);
        self.imported.insert(shown, target);
    }
}

impl<'ast> Visit<'ast> for FileNames {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Mod(module) if is_test(item) => self.tests.push(self.here(&module.ident)),
            _ if is_test(item) => {}
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.place.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.place.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, Vec::new());
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: ModulePath =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add(&names);
        visit::visit_path(self, path);
    }
}

/// Returns true if an item is compiled for tests only.
fn is_test(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        _ => return false,
    };
    let is_test = |path: syn::Path| path.is_ident("test");
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args().is_ok_and(is_test)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the findings for a crate with these files.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> =
            files.iter().map(|(path, text)| (format!("crates/one/src/{path}"), *text)).collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        find(&Tree::of(&files)).unwrap().iter().map(ToString::to_string).collect()
    }

    const ROOT: (&str, &str) = (
        "lib.rs",
        "mod base; mod upper; pub use upper::Upper; pub mod open { pub use crate::upper::Upper as Up; }",
    );

    /// Returns the findings for a crate whose upper module uses its lower one, with this text for
    /// the lower one.
    fn with(below: &str) -> Vec<String> {
        found(&[
            ROOT,
            ("base.rs", below),
            ("upper/mod.rs", "mod part; pub struct Upper; pub fn upper() {}"),
            ("upper/part.rs", "use crate::base::Base; use super::Upper;"),
            ("upper/tests.rs", ""),
        ])
    }

    #[test]
    fn directories_that_refer_to_each_other_are_found_for_every_kind_of_path() {
        let part = "crates/one/src/upper/part.rs:1: uses base::Base, which leads back to upper";
        for (below, named) in [
            ("use crate::upper::Upper; pub struct Base(Upper);", "upper::Upper"),
            ("use super::upper::Upper as _;", "upper::Upper"),
            ("use crate::{upper::{self}, other};", "upper::self"),
            ("use crate::upper::*;", "upper"),
            ("use crate::Upper;", "Upper"),
            ("use crate::open::Up;", "open::Up"),
            ("fn f() { crate::upper::upper() }", "upper::upper"),
            ("mod inner { fn f() { super::super::upper::upper() } }", "upper::upper"),
            ("impl From<crate::Upper> for Base {}", "Upper"),
        ] {
            let base = format!("crates/one/src/base.rs:1: uses {named}, which leads back to base");
            assert_eq!(with(below), [base, part.to_owned()], "{below}");
        }
    }

    #[test]
    fn modules_above_between_and_below_cycles_are_not_part_of_them() {
        let found = found(&[
            ("lib.rs", "mod above; mod a; mod b; mod between; mod c; mod d; mod below;"),
            ("above.rs", "use crate::a::A;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::A; use crate::between::Between;"),
            ("between.rs", "use crate::c::C;"),
            ("c.rs", "use crate::d::D;"),
            ("d.rs", "use crate::c::C; use crate::below::Below;"),
            ("below.rs", "pub struct Below;"),
        ]);
        let cycles = [("a", "b::B"), ("b", "a::A"), ("c", "d::D"), ("d", "c::C")];
        let expected = cycles.map(|(own, named)| {
            format!("crates/one/src/{own}.rs:1: uses {named}, which leads back to {own}")
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn layers_test_only_paths_and_other_crates_are_not_cycles() {
        for below in [
            "pub struct Base; use self::inner::A; mod inner { pub struct A; }",
            "#[cfg(test)] use crate::upper::Upper; #[cfg(test)] mod tests { use crate::upper::Upper; }",
            "use upper::Upper; fn f() { std::mem::take(upper::Upper) }",
        ] {
            assert_eq!(with(below), [""; 0], "{below}");
        }
        let tests = ("base/tests.rs", "use crate::upper::Upper;");
        let upper = ("upper.rs", "use crate::base::Base; pub struct Upper;");
        assert_eq!(
            found(&[ROOT, ("base/mod.rs", "#[cfg(test)] mod tests;"), tests, upper]),
            [""; 0]
        );
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_an_error_with_its_path() {
        let error = find(&Tree::of(&[("crates/one/src/lib.rs", "fn f( {")])).err().unwrap();
        assert!(format!("{error:#}").starts_with("crates/one/src/lib.rs: "), "{error:#}");
    }
}
