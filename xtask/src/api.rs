//! The public API of the libraries, as listed in `docs/api`. A commit that changes the API also
//! changes the list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use fs_err as fs;
use public_api::Builder;
use regex_lite::{Captures, Regex};

use crate::step::{Outcome, Step, root, target};

/// The libraries whose API is listed.
const LIBRARIES: [&str; 4] = ["annulus", "annulus-ring", "annulus-tokio", "annulus-load"];
/// The maximum number of differing lines shown per library.
const MAX_DIFFERENCES: usize = 20;

/// Compares the API of every library with its list, or writes the lists.
pub(crate) fn run(write: bool) -> Outcome {
    let rustdoc = rustdoc()?;
    let mut changed = Vec::new();
    let mut leaks = Vec::new();
    let mut repeated = Vec::new();
    for library in LIBRARIES {
        let list = list_path(library);
        let Interface { items, reexports, repeated: several } = interface(library, &rustdoc)?;
        let (items, internal) = with_own_paths(library, &items, &reexports);
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
    /// Types of our other crates that the library re-exports.
    reexports: Reexports,
    /// Items that can be reached by several paths, each with all of them.
    repeated: Vec<String>,
}

/// Returns the interface of a library with all features.
fn interface(library: &str, rustdoc: &Path) -> Result<Interface> {
    let line = format!("rustdoc --quiet -p {library} --lib --all-features -- -Zunstable-options");
    let step = Step::new("cargo", &line).argument("--output-format=json");
    step.argument("--cap-lints=allow").env("RUSTDOC", &rustdoc.display().to_string()).run()?;
    let path = target().join("doc").join(format!("{}.json", library.replace('-', "_")));
    let json = serde_json::from_slice(&fs::read(&path)?)?;
    let builder = Builder::from_rustdoc_json(path).omit_blanket_impls(true);
    let api = builder.omit_auto_trait_impls(true).omit_auto_derived_impls(true).build()?;
    let (mut items, mut paths) = (BTreeSet::new(), BTreeMap::<u32, BTreeSet<String>>::new());
    for item in api.items() {
        let line = without_std(&item.to_string());
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
    Ok(Interface { items, reexports: reexports(&json), repeated })
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

/// Replaces the paths of re-exported types with the paths that users import. Returns the items, and
/// those that name a type of another of our crates that is not re-exported.
fn with_own_paths(
    library: &str,
    items: &BTreeSet<String>,
    reexports: &Reexports,
) -> (BTreeSet<String>, Vec<String>) {
    let own = library.replace('-', "_");
    let type_path = Regex::new(r"\b(annulus_\w+)::(?:[a-z_]\w*::)*([A-Z]\w*)");
    let type_path = type_path.expect("invalid pattern");
    let public_path = |name: &str| {
        let end = format!("::{name}");
        items
            .iter()
            .find_map(|item| item.strip_prefix("pub use ").filter(|path| path.ends_with(&end)))
    };
    let mut leaks = Vec::new();
    let rewritten = items.iter().map(|item| {
        let line = type_path.replace_all(item, |found: &Captures<'_>| {
            let (whole, krate, name) = (&found[0], &found[1], &found[2]);
            if krate == own {
                return whole.to_owned();
            }
            let is_reexported = reexports.contains(&(krate.to_owned(), name.to_owned()));
            match public_path(name).filter(|_| is_reexported) {
                Some(path) => path.to_owned(),
                None => {
                    leaks.push(format!("{library}: {whole} in {item}"));
                    whole.to_owned()
                }
            }
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
    fn types_of_other_crates_are_listed_as_reexported_or_reported() {
        let lines = [
            "pub fn a::f(&annulus_b::x::Kind) -> annulus_b::y::Other",
            "pub fn annulus_a::g(annulus_a::Own)",
            "pub use annulus_a::m::Kind",
        ];
        let items = lines.map(str::to_owned).into();
        let rustdoc = serde_json::json!({
            "index": { "1": { "inner": { "use": { "source": "annulus_b::Kind" } } }, "2": {} }
        });
        let (items, leaks) = with_own_paths("annulus-a", &items, &reexports(&rustdoc));
        let listed = "pub fn a::f(&annulus_a::m::Kind) -> annulus_b::y::Other";
        assert!(items.contains(listed) && items.contains(lines[1]), "{items:?}");
        assert_eq!(leaks, [format!("annulus-a: annulus_b::y::Other in {}", lines[0])]);
    }

    #[test]
    fn every_library_has_a_list() {
        for library in LIBRARIES {
            let list = fs::read_to_string(list_path(library)).unwrap();
            assert!(list.contains("\npub fn "), "{library}");
        }
    }
}
