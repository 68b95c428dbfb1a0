//! The public API of the libraries, listed in `docs/api`: a change to it changes a list, in the same commit.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use public_api::Builder;

use crate::step::{Failure, Outcome, Step, root, target};

/// The libraries that programs use. The others are parts of annulus.
const LIBRARIES: [&str; 4] = ["annulus", "annulus-ring", "annulus-tokio", "annulus-load"];
/// How many differing lines are shown.
const SHOWN: usize = 20;

/// Compares the API of every library with its list.
pub(crate) fn check() -> Outcome {
    run(&[])
}

/// Compares the API of every library with its list, or writes the lists anew.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let write = match arguments {
        [] => false,
        [option] if option == "--write" => true,
        [other, ..] => {
            return Err(Failure::Usage(format!(
                "unknown argument '{other}': api takes --write or nothing"
            )));
        }
    };
    let rustdoc = rustdoc()?;
    let mut changed = Vec::new();
    for library in LIBRARIES {
        let (listed, is) = (list_of(library), items(library, &rustdoc)?);
        match write {
            true => fs::write(&listed, is).map_err(|error| failed(&listed, &error))?,
            false => changed.extend(difference(
                library,
                &fs::read_to_string(&listed).unwrap_or_default(),
                &is,
            )),
        }
    }
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    let hint = "the public API is not as listed: if that is meant, `cargo xtask api --write`, and say so in CHANGELOG.md";
    Err(Failure::Failed(format!("{hint}\n{}", changed.join("\n"))))
}

/// The file that lists a library's API.
fn list_of(library: &str) -> PathBuf {
    root().join("docs").join("api").join(format!("{library}.txt"))
}

/// A program that is `rustdoc` with its unstable options. For other programs, and for the scripts of crates, the toolchain stays as stable as it
/// is, so that what other parts have checked is not checked anew.
fn rustdoc() -> Result<PathBuf, Failure> {
    let path = target().join("unstable-rustdoc");
    let made = fs::write(&path, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")
        .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o755)));
    made.map_err(|error| failed(&path, &error))?;
    Ok(path)
}

/// Every public item of a library with all its features, a line each, sorted. Items derived or implemented for all types are left out, and
/// types of the standard library stand without their modules.
fn items(library: &str, rustdoc: &Path) -> Result<String, Failure> {
    let line = format!("rustdoc --quiet -p {library} --lib --all-features -- -Zunstable-options");
    let step = Step::new("cargo", &line).argument("--output-format=json");
    step.argument("--cap-lints=allow").env("RUSTDOC", &rustdoc.display().to_string()).run()?;
    let path = target().join("doc").join(format!("{}.json", library.replace('-', "_")));
    let builder =
        Builder::from_rustdoc_json(&path).omit_blanket_impls(true).omit_auto_trait_impls(true);
    let api =
        builder.omit_auto_derived_impls(true).build().map_err(|error| failed(&path, &error))?;
    let mut lines: Vec<String> =
        api.items().map(|item| without_std(&item.to_string()) + "\n").collect();
    lines.sort();
    lines.dedup();
    Ok(lines.concat())
}

/// A line with the types of the standard library without their modules, which move from one toolchain to the next, and with `Infallible` by its
/// older name: it has become another one of `!`.
fn without_std(line: &str) -> String {
    let is_path = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
    let mut text = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(is_path) {
        let length = rest[start..].find(|c| !is_path(c)).unwrap_or(rest.len() - start);
        let (before, path) = (&rest[..start], &rest[start..start + length]);
        text += before;
        text += own_name(path);
        rest = &rest[start + length..];
    }
    (text + rest).replace("<never>", "<Infallible>")
}

/// The part of a path below `core`, `alloc` or `std` that begins with the name of a type; any other path as it is.
fn own_name(path: &str) -> &str {
    if !["core::", "alloc::", "std::"].iter().any(|library| path.starts_with(library)) {
        return path;
    }
    let mut from = 0;
    for segment in path.split("::") {
        if segment.starts_with(char::is_uppercase) {
            return &path[from..];
        }
        from += segment.len() + 2;
    }
    path
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(format!("{}: {error}", path.display()))
}

/// The lines that a library lacks and those that are new, some of each.
fn difference(library: &str, listed: &str, is: &str) -> Vec<String> {
    let not_in = |of: &str, other: &str, sign: char| -> Vec<String> {
        let other: std::collections::HashSet<&str> = other.lines().collect();
        of.lines()
            .filter(|line| !other.contains(line))
            .map(|line| format!("{sign} {line}"))
            .collect()
    };
    let mut lines = [not_in(listed, is, '-'), not_in(is, listed, '+')].concat();
    let count = lines.len();
    if count > SHOWN {
        lines.truncate(SHOWN);
        lines.push(format!("({} more lines)", count - SHOWN));
    }
    if count > 0 {
        lines.insert(0, format!("{library}:"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_and_what_is_missing_is_shown() {
        assert!(difference("a", "x\ny\n", "y\nx\n").is_empty());
        assert_eq!(difference("a", "x\ny\n", "y\nz\n"), ["a:", "- x", "+ z"]);
        let many: String = (0..30).map(|line| format!("{line}\n")).collect();
        assert_eq!(difference("a", "", &many).last().unwrap(), "(10 more lines)");
    }

    #[test]
    fn types_of_the_standard_library_stand_without_modules() {
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
            let list = fs::read_to_string(list_of(library)).unwrap();
            assert!(list.contains("\npub fn "), "{library}");
        }
    }
}
