//! What would be published: every crate must package, and build from its package alone.

use crate::step::{Failure, Outcome, Step};

/// Packages everything.
pub(crate) fn all() -> Outcome {
    compat()?;
    workspace()
}

/// Packages every library and the command, and builds each from what was packaged.
pub(crate) fn workspace() -> Outcome {
    fetch("Cargo.toml")?;
    // Uncommitted changes are packaged as they are: what counts is what the packages contain.
    let line = "package --quiet --offline --workspace --exclude xtask --allow-dirty";
    Step::new("cargo", line).run()?;
    Ok(Vec::new())
}

/// Packages what adapts other libraries, which is a workspace of its own whose package depends on published ones.
pub(crate) fn compat() -> Outcome {
    fetch("compat/Cargo.toml")?;
    let line = "package --quiet --offline --allow-dirty --manifest-path compat/Cargo.toml";
    let patch = |name: &str, path: &str| format!("patch.crates-io.{name}.path=\"crates/{path}\"");
    let step = Step::new("cargo", line);
    let step = step.argument("--config").argument(patch("annulus", "annulus"));
    let step = step.argument("--config").argument(patch("annulus-tokio", "tokio"));
    step.argument("--target-dir").argument(crate::step::target().join("compat")).run()?;
    Ok(Vec::new())
}

/// Fetches all dependencies at once, and repeats what fails. Cargo asks the registry anew for each package that it builds, unless it is
/// offline, and one answer that is late would fail the check.
fn fetch(manifest: &str) -> Result<(), Failure> {
    Step::new("cargo", "fetch --quiet --locked --manifest-path").argument(manifest).run()
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
