//! Whether the directories of a crate are floors: its top-level modules, files and directories beside `lib.rs`, form no cycle.

use super::modules::Modules;
use super::tree::Tree;
use super::{Finding, short};

/// The files of each crate's top-level modules in cycles, each with the modules of these that it names.
pub(super) fn find(tree: &Tree) -> Result<Vec<Finding>, String> {
    let mut found = Vec::new();
    for root in tree.files.iter().map(|file| file.path.as_str()).filter(|path| is_root(path)) {
        of_crate(&Modules::read(tree, root)?, &mut found);
    }
    Ok(found)
}

fn is_root(path: &str) -> bool {
    let rest = ["crates/", "tools/"].iter().find_map(|building| path.strip_prefix(building));
    let rest = rest.and_then(|rest| rest.strip_suffix("/src/lib.rs"));
    rest.is_some_and(|name| !name.contains('/'))
}

fn of_crate(modules: &Modules, found: &mut Vec<Finding>) {
    let (files, of_files) = (modules.files(), modules.graph());
    let mut names: Vec<&str> = files.iter().filter_map(|file| floor(file)).collect();
    names.sort_unstable();
    names.dedup();
    let floors: Vec<Option<usize>> =
        files.iter().map(|file| names.binary_search(&floor(file)?).ok()).collect();
    let mut below = vec![Vec::new(); names.len()];
    for (file, targets) in of_files.iter().enumerate() {
        let Some(from) = floors[file] else { continue };
        below[from].extend(targets.iter().filter_map(|&to| floors[to]).filter(|&to| to != from));
    }
    let cycle = in_cycles(below);
    for (file, targets) in of_files.iter().enumerate() {
        let in_cycle = |floor: Option<usize>| floor.filter(|floor| cycle.contains(floor));
        let Some(from) = in_cycle(floors[file]) else { continue };
        let mut named: Vec<&str> = targets
            .iter()
            .filter(|&&to| in_cycle(floors[to]).is_some_and(|to| to != from))
            .map(|&to| short(&files[to]))
            .collect();
        named.sort_unstable();
        if !named.is_empty() {
            let text = format!("names {}, which leads back to {}", named.join(", "), names[from]);
            found.push(Finding::new(&files[file], 1, text));
        }
    }
}

/// The nodes of a graph that are left when those without an edge to others are taken away, again and again: those in cycles, and above some.
fn in_cycles(mut edges: Vec<Vec<usize>>) -> Vec<usize> {
    let mut left: Vec<usize> = (0..edges.len()).collect();
    while let Some(place) = left.iter().position(|&node| edges[node].is_empty()) {
        let gone = left.swap_remove(place);
        edges.iter_mut().for_each(|targets| targets.retain(|&to| to != gone));
    }
    left
}

/// The top-level module of a file; the root has none.
fn floor(file: &str) -> Option<&str> {
    let first = short(file).split('/').next()?;
    (first != "lib.rs").then(|| first.strip_suffix(".rs").unwrap_or(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_that_name_each_other_are_found() {
        let tree = |below: &str| {
            Tree::of(&[
                ("crates/one/src/lib.rs", "mod base; mod upper;"),
                ("crates/one/src/base.rs", below),
                ("crates/one/src/upper/mod.rs", "mod part; pub struct Upper;"),
                ("crates/one/src/upper/part.rs", "use crate::base::Base; use super::Upper;"),
            ])
        };
        let found = |below| find(&tree(below)).unwrap();
        assert!(found("pub struct Base;").is_empty());
        let cycle = found("use crate::upper::Upper; pub struct Base(Upper);");
        let files: Vec<_> = cycle.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(files, ["crates/one/src/base.rs", "crates/one/src/upper/part.rs"]);
    }
}
