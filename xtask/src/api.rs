//! The public API of the libraries, as listed in `docs/api`. A commit that changes the API also
//! changes the list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Result, ensure};
use fs_err as fs;
use public_api::Builder;
use regex_lite::{Captures, Regex};

use crate::step::{Outcome, Step, root, target};

/// The libraries whose API is listed, and the manifests of their workspaces.
const LIBRARIES: [(&str, &str); 5] = [
    ("annulus", "Cargo.toml"),
    ("annulus-ring", "Cargo.toml"),
    ("annulus-tokio", "Cargo.toml"),
    ("annulus-load", "Cargo.toml"),
    ("annulus-compat", "crates/compat/Cargo.toml"),
];
/// The maximum number of differing lines shown per library.
const MAX_DIFFERENCES: usize = 20;

/// Compares the API of every library with its list, or writes the lists.
pub(crate) fn run(write: bool) -> Outcome {
    let rustdoc = rustdoc()?;
    let mut changed = Vec::new();
    let mut leaks = Vec::new();
    let mut repeated = Vec::new();
    // The libraries are in the order of their dependencies.
    let mut known = KnownPaths::new();
    for (library, manifest) in LIBRARIES {
        let list = list_path(library);
        let Interface { items, paths, repeated: several } = interface(library, manifest, &rustdoc)?;
        known.extend(paths);
        let (items, internal) = with_public_paths(library, &items, &known);
        leaks.extend(internal);
        repeated.extend(several.into_iter().map(|lines| format!("{library}: {lines}")));
        match write {
            true => {
                fs::write(&list, items.iter().map(|item| format!("{item}\n")).collect::<String>())?
            }
            false => changed.extend(difference(library, &fs::read_to_string(&list)?, &items)),
        }
    }
    let hint = "the public API differs from its list: if that is intended, run `cargo xtask api --write` and mention it in CHANGELOG.md";
    ensure!(changed.is_empty(), "{hint}\n{}", changed.join("\n"));
    let hint = "these public items name types of another of our crates, which users cannot import: re-export the types with `pub use`";
    ensure!(leaks.is_empty(), "{hint}\n{}", leaks.join("\n"));
    let hint = "these items can be reached by more than one public path: export each of them once";
    ensure!(repeated.is_empty(), "{hint}\n{}", repeated.join("\n"));
    Ok(Vec::new())
}

fn list_path(library: &str) -> PathBuf {
    root().join("docs").join("api").join(format!("{library}.txt"))
}

/// Creates a wrapper of `rustdoc` that allows unstable options, and returns its path. Other
/// programs and build scripts still see a stable toolchain, so that cargo can reuse what other
/// parts have built.
fn rustdoc() -> Result<PathBuf> {
    let path = target().join("unstable-rustdoc");
    fs::write(&path, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")?;
    fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(path)
}

/// What a library offers to its users.
struct Interface {
    /// The public items. Implementations that are derived, blanket or of auto traits are left out,
    /// and so are methods of traits that a type implements. Types of the standard library are
    /// written without their modules.
    items: BTreeSet<String>,
    /// The public paths of its types, and of the types that it re-exports.
    paths: KnownPaths,
    /// Items that can be reached by several paths, each with all of them.
    repeated: Vec<String>,
}

/// The paths by which users import types. The keys are the paths of their definitions, or the
/// crates and names of re-exported types.
type KnownPaths = BTreeMap<String, String>;

/// Returns the interface of a library with all features.
fn interface(library: &str, manifest: &str, rustdoc: &Path) -> Result<Interface> {
    let package = format!("--manifest-path {manifest} -p {library} --lib --all-features");
    let step = Step::new("cargo", &format!("rustdoc --quiet {package} -- -Zunstable-options"));
    let step = step.argument("--output-format=json").argument("--cap-lints=allow");
    let step = step.env("CARGO_TARGET_DIR", &target().display().to_string());
    step.env("RUSTDOC", &rustdoc.display().to_string()).run()?;
    let path = target().join("doc").join(format!("{}.json", library.replace('-', "_")));
    let json = serde_json::from_slice(&fs::read(&path)?)?;
    let builder = Builder::from_rustdoc_json(path).omit_blanket_impls(true);
    let api = builder.omit_auto_trait_impls(true).omit_auto_derived_impls(true).build()?;
    let (mut items, mut paths) = (BTreeSet::new(), BTreeMap::<u32, BTreeSet<String>>::new());
    let mut known = KnownPaths::new();
    for item in api.items() {
        let line = without_std(&item.to_string());
        if let (Some(path), Some(defined)) = (type_path(&line), defined_path(&json, item.id().0)) {
            known.insert(defined, path);
        }
        match item.parent_id().and_then(|parent| kind(&json, parent.0)) {
            // `impl TRAIT for TYPE` says it all, and the trait lists its methods.
            Some(Kind::TraitImpl) if is_function(&line) => continue,
            Some(Kind::Module) if !line.starts_with("impl") => {
                paths.entry(item.id().0).or_default().insert(line.clone());
            }
            _ => {}
        }
        items.insert(line);
    }
    let several = paths.into_values().filter(|lines| lines.len() > 1);
    let repeated = several.map(|lines| lines.into_iter().collect::<Vec<_>>().join(", ")).collect();
    for (krate, name) in reexports(&json) {
        let end = format!("::{name}");
        let mut used = items.iter().filter_map(|item| item.strip_prefix("pub use "));
        if let Some(path) = used.find(|path| path.ends_with(&end)) {
            known.insert(format!("{krate}::{name}"), path.to_owned());
        }
    }
    Ok(Interface { items, paths: known, repeated })
}

/// Returns the path in the line of a type or trait.
fn type_path(line: &str) -> Option<String> {
    static TYPE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\bpub (?:unsafe )?(?:struct|enum|union|trait|type) ([\w:]+)")
            .expect("invalid pattern")
    });
    Some(TYPE.captures(line)?[1].to_owned())
}

/// Returns the path at which an item is defined, from the output of rustdoc.
fn defined_path(rustdoc: &serde_json::Value, id: u32) -> Option<String> {
    let path = rustdoc["paths"][id.to_string()]["path"].as_array()?;
    let parts: Vec<_> = path.iter().filter_map(serde_json::Value::as_str).collect();
    Some(parts.join("::"))
}

/// The kinds of items whose children are treated differently.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Module,
    TraitImpl,
}

/// Returns the kind of an item in the output of rustdoc.
fn kind(rustdoc: &serde_json::Value, id: u32) -> Option<Kind> {
    let inner = &rustdoc["index"][id.to_string()]["inner"];
    // A re-export is the parent of what it exports.
    if inner["module"].is_object() || inner["use"].is_object() {
        return Some(Kind::Module);
    }
    inner["impl"]["trait"].is_object().then_some(Kind::TraitImpl)
}

fn is_function(line: &str) -> bool {
    let before = line.split_once("fn ").map(|(before, _)| before);
    let is_modifier = |word| ["pub", "async", "const", "unsafe"].contains(&word);
    before.is_some_and(|before| before.split_whitespace().all(is_modifier))
}

/// The crates and names of re-exported types, such as `("annulus_sim", "Link")`.
type Reexports = BTreeSet<(String, String)>;

/// Returns what a library re-exports, from the output of rustdoc.
fn reexports(rustdoc: &serde_json::Value) -> Reexports {
    let items = rustdoc["index"].as_object().into_iter().flat_map(|items| items.values());
    let sources = items.filter_map(|item| item["inner"]["use"]["source"].as_str());
    let parts = sources.filter_map(|source| {
        let (krate, _) = source.split_once("::")?;
        let (_, name) = source.rsplit_once("::")?;
        Some((krate.to_owned(), name.to_owned()))
    });
    parts.collect()
}

/// Replaces the paths of types of our other crates with the paths by which users import them.
/// Returns the items, and those that name a type without such a path.
fn with_public_paths(
    library: &str,
    items: &BTreeSet<String>,
    known: &KnownPaths,
) -> (BTreeSet<String>, Vec<String>) {
    let own = library.replace('-', "_");
    let type_path = Regex::new(r"\b(annulus(?:_\w+)?)::(?:[a-z_]\w*::)*([A-Z]\w*)");
    let type_path = type_path.expect("invalid pattern");
    let mut leaks = Vec::new();
    let rewritten = items.iter().map(|item| {
        let line = type_path.replace_all(item, |found: &Captures<'_>| {
            let (whole, krate, name) = (&found[0], &found[1], &found[2]);
            if krate == own {
                return whole.to_owned();
            }
            let path = known.get(whole).or_else(|| known.get(&format!("{krate}::{name}")));
            path.cloned().unwrap_or_else(|| {
                leaks.push(format!("{library}: {whole} in {item}"));
                whole.to_owned()
            })
        });
        line.into_owned()
    });
    let rewritten = rewritten.collect();
    (rewritten, leaks)
}

/// Removes the modules from types of the standard library, because modules change between
/// toolchains. Also replaces the type argument `never` with `Infallible`, because newer toolchains
/// define `Infallible` as an alias of the never type.
fn without_std(line: &str) -> String {
    let path = Regex::new(r"(^|[^\w:])(?:core|alloc|std)::(?:[a-z_]\w*::)*([A-Z])");
    let line = path.expect("invalid pattern").replace_all(line, "$1$2");
    line.replace("<never>", "<Infallible>")
}

/// Returns the missing and the new lines of a library: at most [`MAX_DIFFERENCES`], and then the
/// number of further lines.
fn difference(library: &str, listed: &str, items: &BTreeSet<String>) -> Vec<String> {
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    let mut lines: Vec<String> = listed
        .symmetric_difference(items)
        .map(|line| format!("{library}: {} {line}", if items.contains(line) { '+' } else { '-' }))
        .collect();
    let surplus = lines.len().saturating_sub(MAX_DIFFERENCES);
    if surplus > 0 {
        lines.truncate(MAX_DIFFERENCES);
        lines.push(format!("{library}: ({surplus} more lines)"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_shows_new_and_missing_items() {
        let items = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert!(difference("a", "x\ny\n", &items(&["y", "x"])).is_empty());
        assert_eq!(difference("a", "x\ny\n", &items(&["y", "z"])), ["a: - x", "a: + z"]);
        let many = (0..30).map(|line| line.to_string()).collect();
        assert_eq!(difference("a", "", &many).last().unwrap(), "a: (10 more lines)");
    }

    #[test]
    fn methods_of_implemented_traits_are_told_from_others() {
        let rustdoc = serde_json::json!({ "index": {
            "1": { "inner": { "module": {} } },
            "2": { "inner": { "impl": { "trait": { "path": "Future" } } } },
            "3": { "inner": { "impl": { "trait": null } } },
        } });
        let kinds = [1, 2, 3, 4].map(|id| kind(&rustdoc, id));
        assert_eq!(kinds, [Some(Kind::Module), Some(Kind::TraitImpl), None, None]);
        assert!(is_function("pub unsafe fn a::B::c(&self)") && is_function("pub fn a::b(fn ())"));
        assert!(!is_function("pub type a::B::Output = fn ()"));
    }

    #[test]
    fn std_types_are_listed_without_modules() {
        for (line, listed) in [
            (
                "pub fn a::b(core::option::Option<u32>) -> std::io::error::Result<()>",
                "pub fn a::b(Option<u32>) -> Result<()>",
            ),
            ("core::iter::Iterator::Item, a::core::B", "Iterator::Item, a::core::B"),
            ("use core::mem: alloc::rcs::rc::Rc<dyn a::K>", "use core::mem: Rc<dyn a::K>"),
        ] {
            assert_eq!(without_std(line), listed);
        }
    }

    #[test]
    fn types_of_other_crates_are_listed_by_their_public_paths_or_reported() {
        let lines = [
            "pub fn annulus_a::f(&annulus_b::x::Kind, annulus::y::z::Stream) -> annulus_b::y::Other",
            "pub fn annulus_a::g(annulus_a::Own)",
        ];
        let known = [
            ("annulus_b::Kind", "annulus_a::m::Kind"),
            ("annulus::y::z::Stream", "annulus::y::Stream"),
        ];
        let known = known.map(|(defined, public)| (defined.to_owned(), public.to_owned())).into();
        let items = lines.map(str::to_owned).into();
        let (items, leaks) = with_public_paths("annulus-a", &items, &known);
        let listed =
            "pub fn annulus_a::f(&annulus_a::m::Kind, annulus::y::Stream) -> annulus_b::y::Other";
        assert!(items.contains(listed) && items.contains(lines[1]), "{items:?}");
        assert_eq!(leaks, [format!("annulus-a: annulus_b::y::Other in {}", lines[0])]);
    }

    #[test]
    fn types_have_the_paths_of_their_definitions() {
        let line = "#[non_exhaustive] pub enum annulus::io::Kind<T>";
        assert_eq!(type_path(line).unwrap(), "annulus::io::Kind");
        assert_eq!(type_path("pub fn annulus::io::f(annulus::io::Kind<T>)"), None);
        let rustdoc = serde_json::json!({ "paths": { "7": { "path": ["annulus", "a", "Kind"] } } });
        assert_eq!(defined_path(&rustdoc, 7).unwrap(), "annulus::a::Kind");
    }

    #[test]
    fn every_library_has_a_list() {
        for (library, _) in LIBRARIES {
            let list = fs::read_to_string(list_path(library)).unwrap();
            assert!(list.contains("\npub fn "), "{library}");
        }
    }
}
