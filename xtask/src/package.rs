//! What would be published: every crate must package, and build from its package alone.

use crate::step::{Outcome, Step};

/// Packages every library and the command, and builds each from what was packaged.
pub(crate) fn check() -> Outcome {
    // Uncommitted changes are packaged as they are: what counts is what the packages contain.
    Step::new("cargo", "package --quiet --workspace --exclude xtask --allow-dirty").run()?;
    let compat =
        Step::new("cargo", "package --quiet --allow-dirty --manifest-path compat/Cargo.toml");
    // It is a workspace of its own, whose packages depend on published ones.
    let patch = |name: &str, path: &str| format!("patch.crates-io.{name}.path=\"crates/{path}\"");
    let compat = compat.argument("--config").argument(patch("annulus", "annulus"));
    let compat = compat.argument("--config").argument(patch("annulus-tokio", "tokio"));
    compat.argument("--target-dir").argument(crate::step::target().join("compat")).run()?;
    Ok(Vec::new())
}

/// What a package needs beside its code.
#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use crate::step::root;

    fn packages() -> Vec<PathBuf> {
        let crates =
            fs::read_dir(root().join("crates")).unwrap().flatten().map(|entry| entry.path());
        crates.chain([root().join("compat")]).collect()
    }

    #[test]
    fn every_package_has_a_readme_both_licences_and_metadata() {
        for package in packages() {
            let read = |name: &str| fs::read_to_string(package.join(name)).unwrap_or_default();
            let manifest = read("Cargo.toml");
            let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).unwrap();
            let heading = format!("# {}\n", name.trim_matches('"'));
            assert!(read("README.md").starts_with(&heading), "{}", package.display());
            for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
                assert_eq!(
                    read(licence),
                    fs::read_to_string(root().join(licence)).unwrap(),
                    "{licence}"
                );
            }
            for key in ["description", "keywords", "categories", "rust-version", "license"] {
                assert!(manifest.contains(&format!("\n{key}")), "{key} of {name}");
            }
        }
    }
}
