//! The public API of the libraries, as listed in `docs/api`. A commit that changes the API also
//! changes the list.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use fs_err as fs;
use public_api::Builder;
use regex_lite::Regex;

use crate::step::{Outcome, Step, root, target};

/// The libraries that programs use directly. The other crates are parts of annulus.
const LIBRARIES: [&str; 4] = ["annulus", "annulus-ring", "annulus-tokio", "annulus-load"];
/// The maximum number of differing lines shown per library.
const MAX_DIFFERENCES: usize = 20;

/// Compares the API of every library with its list, or writes the lists.
pub(crate) fn run(write: bool) -> Outcome {
    let rustdoc = rustdoc()?;
    let mut changed = Vec::new();
    for library in LIBRARIES {
        let (list, items) = (list_path(library), items(library, &rustdoc)?);
        match write {
            true => {
                fs::write(&list, items.iter().map(|item| format!("{item}\n")).collect::<String>())?
            }
            false => changed.extend(difference(library, &fs::read_to_string(&list)?, &items)),
        }
    }
    let hint = "the public API differs from its list: if that is intended, run `cargo xtask api --write` and mention it in CHANGELOG.md";
    ensure!(changed.is_empty(), "{hint}\n{}", changed.join("\n"));
    Ok(Vec::new())
}

/// Returns the path of a library's list.
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

/// Returns every public item of a library with all features. Derived items and blanket
/// implementations are left out, and types of the standard library are written without their
/// modules.
fn items(library: &str, rustdoc: &Path) -> Result<BTreeSet<String>> {
    let line = format!("rustdoc --quiet -p {library} --lib --all-features -- -Zunstable-options");
    let step = Step::new("cargo", &line).argument("--output-format=json");
    step.argument("--cap-lints=allow").env("RUSTDOC", &rustdoc.display().to_string()).run()?;
    let path = target().join("doc").join(format!("{}.json", library.replace('-', "_")));
    let builder = Builder::from_rustdoc_json(path).omit_blanket_impls(true);
    let api = builder.omit_auto_trait_impls(true).omit_auto_derived_impls(true).build()?;
    Ok(api.items().map(|item| without_std(&item.to_string())).collect())
}

/// Removes the modules from types of the standard library, because modules change between
/// toolchains. Also replaces `!` with `Infallible`, because newer toolchains define the latter as
/// an alias of the former.
fn without_std(line: &str) -> String {
    let path = Regex::new(r"(^|[^\w:])(?:core|alloc|std)::(?:[a-z_]\w*::)*([A-Z])");
    let line = path.expect("invalid pattern").replace_all(line, "$1$2");
    line.replace("<never>", "<Infallible>")
}

/// Returns the missing and the new lines of a library, at most [`MAX_DIFFERENCES`] of them.
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
    fn every_library_has_a_list() {
        for library in LIBRARIES {
            let list = fs::read_to_string(list_path(library)).unwrap();
            assert!(list.contains("\npub fn "), "{library}");
        }
    }
}
