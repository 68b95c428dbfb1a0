//! The modules of a crate, and which file names something in which: read from its source, without tests.
//!
//! A name counts for the file that defines it: `use crate::net::Stream` leads to `net/stream.rs` if `net/mod.rs` only
//! re-exports it. Paths inside macros are not seen.

use std::collections::{BTreeMap, HashMap};

use syn::visit::{self, Visit};

use super::tree::Tree;

/// The path of a module in its crate. That of the root is empty.
type Place = Vec<String>;

/// How many re-exports a name may pass through: more than any does, and a limit for cycles.
const HOPS: usize = 16;

/// All modules of a crate.
pub(super) struct Modules {
    files: Vec<String>,
    modules: HashMap<Place, Module>,
}

/// One module, in its file or inline.
struct Module {
    file: usize,
    /// The names that `use` brings into scope, each with its path.
    imports: HashMap<String, Vec<String>>,
    /// Every path that its code names, without those of `use`.
    named: Vec<Vec<String>>,
}

impl Modules {
    /// Reads the modules of the crate whose root is at `root`, such as `crates/annulus/src/lib.rs`.
    pub(super) fn read(tree: &Tree, root: &str) -> Result<Modules, String> {
        let mut all = Modules { files: Vec::new(), modules: HashMap::new() };
        let (directory, _) = root.rsplit_once('/').unwrap_or_default();
        all.read_file(tree, root, directory, Vec::new())?;
        Ok(all)
    }

    /// The files, as the graph numbers them.
    pub(super) fn files(&self) -> &[String] {
        &self.files
    }

    /// For each file, the other files of the crate that it names something in.
    pub(super) fn graph(&self) -> Vec<Vec<usize>> {
        let mut edges: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (place, module) in &self.modules {
            let paths = module.imports.values().chain(&module.named);
            let targets = paths.filter_map(|path| self.file_of(place, path, HOPS));
            edges.entry(module.file).or_default().extend(targets.filter(|&to| to != module.file));
        }
        (0..self.files.len())
            .map(|file| {
                let mut targets = edges.remove(&file).unwrap_or_default();
                targets.sort_unstable();
                targets.dedup();
                targets
            })
            .collect()
    }

    /// Reads a file as the module at `place`; the files of its children lie in `directory`.
    fn read_file(
        &mut self,
        tree: &Tree,
        path: &str,
        directory: &str,
        place: Place,
    ) -> Result<(), String> {
        let source = tree.file(path).ok_or_else(|| format!("{path} is missing"))?;
        let parsed = syn::parse_file(&source.text).map_err(|error| format!("{path}: {error}"))?;
        self.files.push(path.to_owned());
        self.read_items(tree, self.files.len() - 1, directory, place, &parsed.items)
    }

    fn read_items(
        &mut self,
        tree: &Tree,
        file: usize,
        directory: &str,
        place: Place,
        items: &[syn::Item],
    ) -> Result<(), String> {
        let mut module = Module { file, imports: HashMap::new(), named: Vec::new() };
        for item in items.iter().filter(|item| !is_test(item)) {
            match item {
                syn::Item::Mod(child) => self.read_child(tree, file, directory, &place, child)?,
                syn::Item::Use(import) => module.import(&import.tree, &mut Vec::new()),
                other => Named(&mut module.named).visit_item(other),
            }
        }
        self.modules.insert(place, module);
        Ok(())
    }

    fn read_child(
        &mut self,
        tree: &Tree,
        file: usize,
        directory: &str,
        parent: &Place,
        child: &syn::ItemMod,
    ) -> Result<(), String> {
        let name = child.ident.to_string();
        let place = [parent.as_slice(), std::slice::from_ref(&name)].concat();
        let directory = format!("{directory}/{name}");
        match &child.content {
            Some((_, items)) => self.read_items(tree, file, &directory, place, items),
            None => {
                let candidates = [format!("{directory}.rs"), format!("{directory}/mod.rs")];
                let found = candidates.iter().find(|path| tree.file(path).is_some());
                let path = found.ok_or_else(|| format!("module {name}: no {directory}.rs"))?;
                self.read_file(tree, path, &directory, place)
            }
        }
    }

    /// The file that defines what `path` names in the module at `place`; none if it is outside the crate, or a module
    /// itself.
    fn file_of(&self, place: &[String], path: &[String], hops: usize) -> Option<usize> {
        let (mut at, mut rest) = self.start(place, path, hops)?;
        loop {
            let (name, after) = rest.split_first()?;
            let below = [at.as_slice(), std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&below) {
                (at, rest) = (below, after);
                continue;
            }
            let module = self.modules.get(&at)?;
            return match module.imports.get(name) {
                Some(import) if hops > 0 => {
                    let path = [import.as_slice(), after].concat();
                    self.file_of(&at, &path, hops - 1)
                }
                _ => Some(module.file),
            };
        }
    }

    /// Where a path begins, and what is left of it there.
    fn start<'a>(
        &self,
        place: &[String],
        path: &'a [String],
        hops: usize,
    ) -> Option<(Place, &'a [String])> {
        let (first, mut rest) = path.split_first()?;
        let mut at = place.to_vec();
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop()?;
                while let Some((next, after)) =
                    rest.split_first().filter(|(next, _)| *next == "super")
                {
                    debug_assert_eq!(next, "super");
                    at.pop()?;
                    rest = after;
                }
            }
            _ if self.modules.contains_key(&[place, &path[..1]].concat()) => rest = path,
            _ => {
                // A module that was imported: `use crate::net;`, then `net::Stream`.
                let import = self.modules.get(place)?.imports.get(first).filter(|_| hops > 0)?;
                at = self.module_of(place, import, hops - 1)?;
            }
        }
        Some((at, rest))
    }

    /// The module that a path names, if it is one of this crate.
    fn module_of(&self, place: &[String], path: &[String], hops: usize) -> Option<Place> {
        let (mut at, rest) = self.start(place, path, hops)?;
        for name in rest {
            let below = [at.as_slice(), std::slice::from_ref(name)].concat();
            if !self.modules.contains_key(&below) {
                let import = self.modules.get(&at)?.imports.get(name).filter(|_| hops > 0)?;
                at = self.module_of(&at, import, hops - 1)?;
                continue;
            }
            at = below;
        }
        Some(at)
    }
}

impl Module {
    /// Adds what a `use` brings, each name with its path. A glob counts as a name in its module.
    fn import(&mut self, tree: &syn::UseTree, path: &mut Vec<String>) {
        match tree {
            syn::UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                self.import(&inner.tree, path);
                path.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.import(item, path));
            }
            syn::UseTree::Name(name) => self.bring(name.ident.to_string(), None, path),
            syn::UseTree::Rename(name) => {
                self.bring(name.ident.to_string(), Some(name.rename.to_string()), path);
            }
            syn::UseTree::Glob(_) => self.named.push([path.as_slice(), &["*".into()]].concat()),
        }
    }

    fn bring(&mut self, name: String, rename: Option<String>, path: &[String]) {
        // `use a::b::{self}` brings `b`.
        let is_self = name == "self";
        let whole =
            if is_self { path.to_vec() } else { [path, std::slice::from_ref(&name)].concat() };
        let shown = rename.or_else(|| whole.last().cloned());
        match shown {
            // `use X as _` brings a trait without a name; the path counts all the same.
            Some(shown) if shown == "_" => self.named.push(whole),
            Some(shown) => _ = self.imports.insert(shown, whole),
            None => {}
        }
    }
}

/// Collects the paths of two names or more.
struct Named<'a>(&'a mut Vec<Vec<String>>);

impl<'ast> Visit<'ast> for Named<'_> {
    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }
}

/// Whether an item is compiled for tests only.
fn is_test(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        let condition =
            attribute.path().is_ident("cfg").then(|| attribute.parse_args::<syn::Path>());
        condition.is_some_and(|path| path.is_ok_and(|path| path.is_ident("test")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The edges of a crate with these files, as `from to`.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let modules = Modules::read(&Tree::of(files), files[0].0).unwrap();
        let graph = modules.graph();
        let names = modules.files();
        let mut edges: Vec<String> = graph
            .iter()
            .enumerate()
            .flat_map(|(from, to)| {
                to.iter().map(move |&to| format!("{} {}", names[from], names[to]))
            })
            .collect();
        edges.sort();
        edges
    }

    #[test]
    fn names_lead_to_the_file_that_defines_them() {
        let files = [
            ("src/lib.rs", "mod a; mod net; pub use net::Stream;"),
            (
                "src/a.rs",
                "use crate::net::Stream; use crate::Stream as Again; fn f() { super::net::open(); }",
            ),
            ("src/net/mod.rs", "mod stream; pub use self::stream::Stream; pub fn open() {}"),
            ("src/net/stream.rs", "pub struct Stream;"),
        ];
        assert_eq!(
            edges(&files),
            [
                "src/a.rs src/net/mod.rs",
                "src/a.rs src/net/stream.rs",
                "src/lib.rs src/net/stream.rs",
                "src/net/mod.rs src/net/stream.rs",
            ]
        );
    }

    #[test]
    fn modules_that_are_imported_lead_to_what_is_named_in_them() {
        let files = [
            ("src/lib.rs", "mod a; mod b; mod c;"),
            (
                "src/a.rs",
                "use crate::{b, c::{self, inner}}; use std::io; fn f(e: io::Error) { b::g(); inner::h() }",
            ),
            ("src/b.rs", "pub fn g() {}"),
            ("src/c.rs", "pub mod inner { pub fn h() {} }"),
        ];
        assert_eq!(edges(&files), ["src/a.rs src/b.rs", "src/a.rs src/c.rs"]);
    }

    #[test]
    fn what_only_tests_name_is_left_out() {
        let files = [
            ("src/lib.rs", "mod a; mod b;"),
            (
                "src/a.rs",
                "#[cfg(test)] use crate::b::B; #[cfg(test)] mod tests { use crate::b::B; }",
            ),
            ("src/b.rs", "pub struct B;"),
        ];
        assert_eq!(edges(&files), [""; 0]);
    }

    #[test]
    fn globs_anonymous_imports_and_circles_of_re_exports_are_borne() {
        let files = [
            ("src/lib.rs", "mod a; mod b; mod c;"),
            ("src/a.rs", "use crate::b::*; use crate::c::T as _; pub use crate::c::Circle;"),
            ("src/b.rs", ""),
            ("src/c.rs", "pub trait T {} pub use crate::a::Circle;"),
        ];
        let expected = ["src/a.rs src/b.rs", "src/a.rs src/c.rs"];
        let edges = edges(&files);
        assert!(expected.iter().all(|edge| edges.iter().any(|found| found == edge)), "{edges:?}");
    }

    #[test]
    fn a_module_without_a_file_is_an_error() {
        let error = Modules::read(&Tree::of(&[("src/lib.rs", "mod gone;")]), "src/lib.rs").err();
        assert!(error.unwrap().contains("module gone"));
    }
}
