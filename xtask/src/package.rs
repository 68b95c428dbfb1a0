//! The packages that would be published: every crate can be packaged, and builds from its package
//! alone.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Result;
use fs_err as fs;

use crate::features::{list, metadata};
use crate::files::{entries, name};
use crate::step::{Outcome, Step};

/// Packages every crate and builds it from its package.
pub(crate) fn all() -> Outcome {
    compat()?;
    fetch("Cargo.toml")?;
    remove_built_packages()?;
    packaged("")
}

/// Packages every crate of the workspace that is published, without building it.
pub(crate) fn unbuilt() -> Outcome {
    fetch("Cargo.toml")?;
    packaged("--no-verify")
}

fn packaged(option: &str) -> Outcome {
    // --allow-dirty: uncommitted changes are packaged as well.
    let line = "package --quiet --offline --workspace --exclude xtask --exclude annulus-instructions --allow-dirty";
    Step::new("cargo", &format!("{line} {option}")).run()
}

/// Removes what cargo has built and unpacked of our packages in an earlier run. Cargo treats the
/// other packages of the workspace as published ones, which never change under one version, so it
/// would use the old sources and builds.
fn remove_built_packages() -> Result<()> {
    let metadata = metadata("--no-deps --offline")?;
    let packages = list(&metadata, "packages").filter_map(|package| package["name"].as_str());
    let ours = packages.filter(|name| *name != "xtask");
    ours.fold(Step::new("cargo", "clean --quiet"), |step, name| step.argument("-p").argument(name))
        .run()?;
    remove_unpacked(&cargo_home().join("registry/src"))
}

/// Removes our packages from the directories of packages that cargo has unpacked from local
/// registries, such as the one of `cargo package`. Their names begin with `-`, because a local
/// registry has no host.
fn remove_unpacked(registries: &Path) -> Result<()> {
    let registries = entries(registries).unwrap_or_default();
    for registry in registries.iter().filter(|path| name(path).starts_with('-')) {
        let is_ours = |path: &&PathBuf| name(path).starts_with("annulus-");
        entries(registry)?.iter().filter(is_ours).try_for_each(fs::remove_dir_all)?;
    }
    Ok(())
}

/// Returns cargo's home directory.
fn cargo_home() -> PathBuf {
    let chosen = env::var_os("CARGO_HOME").map(PathBuf::from);
    chosen.or_else(|| Some(env::home_dir()?.join(".cargo"))).unwrap_or_default()
}

/// Packages `crates/compat`, a separate workspace whose package depends on our published packages.
fn compat() -> Outcome {
    fetch("crates/compat/Cargo.toml")?;
    let line = "package --quiet --offline --allow-dirty --manifest-path crates/compat/Cargo.toml";
    let patch = |name: &str, path: &str| format!("patch.crates-io.{name}.path=\"crates/{path}\"");
    let step = Step::new("cargo", line);
    let step = step.argument("--config").argument(patch("annulus", "annulus"));
    let step = step.argument("--config").argument(patch("annulus-tokio", "tokio"));
    step.argument("--target-dir").argument(crate::step::target().join("compat")).run()
}

/// Fetches all dependencies in advance. Unless it is offline, cargo asks the registry again for
/// each package that it builds, and one late answer would fail the check.
fn fetch(manifest: &str) -> Outcome {
    Step::new("cargo", "fetch --quiet --locked --manifest-path").argument(manifest).run()
}

/// Tests of what a package needs in addition to its code.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::root;

    fn packages() -> Vec<PathBuf> {
        let directories = ["crates", "tools"].map(|building| root().join(building));
        let packages = directories.iter().flat_map(|building| entries(building).unwrap());
        let is_published = |package: &PathBuf| {
            let manifest = fs::read_to_string(package.join("Cargo.toml"));
            manifest.is_ok_and(|text| !text.contains("\npublish = false\n"))
        };
        packages.filter(is_published).collect()
    }

    #[test]
    fn only_our_unpacked_packages_are_removed() {
        let home = env::temp_dir().join(format!("annulus-xtask-package-{}", std::process::id()));
        let [ours, other, published] = [
            "-00b7/annulus-ring-0.1.0",
            "-00b7/other-0.1.0",
            "index.crates.io-1949/annulus-ring-0.1.0",
        ]
        .map(|path| home.join(path));
        for path in [&ours, &other, &published] {
            fs::create_dir_all(path).unwrap();
        }
        // The second time, nothing is left to remove.
        for _ in 0..2 {
            assert!(remove_unpacked(&home).is_ok());
        }
        let left = [&ours, &other, &published].map(|path| path.exists());
        fs::remove_dir_all(&home).unwrap();
        assert_eq!(left, [false, true, true]);
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
            let keys = [
                "description",
                "documentation",
                "keywords",
                "categories",
                "rust-version",
                "license",
            ];
            for key in keys {
                assert!(manifest.contains(&format!("\n{key}")), "{key} of {name}");
            }
        }
    }
}
