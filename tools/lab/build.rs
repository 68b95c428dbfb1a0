//! Passes the commit and the profile that the lab is built from to the compiler, so that results can
//! record them.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Cargo gives the profile's name only in the path TARGET/PROFILE/build/PACKAGE/out.
    let out = std::env::var_os("OUT_DIR").unwrap_or_default();
    let profile = Path::new(&out).ancestors().nth(3).and_then(|path| path.file_name()?.to_str());
    if let Some(profile) = profile {
        println!("cargo::rustc-env=ANNULUS_PROFILE={profile}");
    }
    // The log of HEAD grows with every commit and checkout. Outside a repository there is no log,
    // and results record no commit.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=ANNULUS_COMMIT={commit}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
