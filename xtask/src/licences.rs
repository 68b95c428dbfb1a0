//! What may be linked according to `deny.toml`: licences, sources, banned packages. It reads `cargo metadata`, so that
//! nothing must be installed; `cargo deny` reads the same file, and checks security advisories besides.

use std::fs;

use serde_json::Value;

use crate::features::{list, metadata};
use crate::spdx;
use crate::step::{Failure, Outcome, Step, root};

/// Checks every package that is linked on the targets of `deny.toml`.
pub(crate) fn check() -> Outcome {
    check_of("Cargo.toml")
}

/// The same for the workspace of this manifest.
pub(crate) fn check_of(manifest: &str) -> Outcome {
    let text = fs::read_to_string(root().join("deny.toml"));
    let rules = text.map_err(|error| error.to_string()).and_then(|text| Rules::parse(&text));
    let rules = rules.map_err(|why| Failure::Failed(format!("deny.toml: {why}")))?;
    let targets = rules.targets.iter().map(|target| format!("--filter-platform {target}"));
    let targets = targets.collect::<Vec<_>>().join(" ");
    let metadata = metadata(&format!("--manifest-path {manifest} --all-features {targets}"))?;
    let (count, wrong) = rules.judge(&metadata);
    wrong.iter().for_each(|wrong| eprintln!("licences: {wrong}"));
    eprintln!("licences: {count} packages, {} of them not allowed", wrong.len());
    match wrong.first() {
        Some(first) => Err(Failure::Failed(first.clone())),
        None => Ok(Vec::new()),
    }
}

/// Security advisories, and the other checks of `cargo deny`; skipped if it is not installed, or if its database, a
/// separate repository, cannot be fetched.
pub(crate) fn advisories() -> Outcome {
    let deny = |arguments: &str| Step::new("cargo", &format!("deny {arguments}"));
    if deny("--version").probe().is_none() {
        return Ok(vec!["advisories (no cargo-deny: `cargo install cargo-deny`)".into()]);
    }
    deny("--all-features check bans licenses sources").run()?;
    if deny("fetch db").probe().is_none() {
        return Ok(vec!["advisories (their database cannot be fetched)".into()]);
    }
    deny("--all-features check --disable-fetch advisories").run()?;
    Ok(Vec::new())
}

/// The parts of `deny.toml` that are checked here.
struct Rules {
    targets: Vec<String>,
    licences: Vec<String>,
    registries: Vec<String>,
    repositories: Vec<String>,
    /// A package, and why it is banned.
    banned: Vec<(String, String)>,
}

impl Rules {
    fn parse(text: &str) -> Result<Rules, String> {
        let file: toml::Table = text.parse().map_err(|error| format!("{error}"))?;
        let value = |section: &str, name: &str| file.get(section).and_then(|table| table.get(name));
        let texts = |section, name| {
            let values = value(section, name).and_then(toml::Value::as_array);
            let values = values.ok_or_else(|| format!("no list {section}.{name}"))?;
            let text = |value: &toml::Value| value.as_str().map(str::to_owned);
            values
                .iter()
                .map(text)
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| format!("{section}.{name} has other than text"))
        };
        let banned = value("bans", "deny").and_then(toml::Value::as_array);
        let banned = banned.into_iter().flatten().map(|entry| {
            let text = |name| entry.get(name).and_then(toml::Value::as_str).map(str::to_owned);
            text("crate").zip(text("reason")).ok_or("an entry of bans.deny without crate or reason")
        });
        Ok(Rules {
            targets: texts("graph", "targets")?,
            licences: texts("licenses", "allow")?,
            registries: texts("sources", "allow-registry")?,
            repositories: texts("sources", "allow-git")?,
            banned: banned.collect::<Result<_, _>>()?,
        })
    }

    /// How many packages there are, and what is wrong with them.
    fn judge(&self, metadata: &Value) -> (usize, Vec<String>) {
        let linked: Vec<&str> =
            list(&metadata["resolve"], "nodes").filter_map(|node| node["id"].as_str()).collect();
        let is_linked =
            |package: &&Value| package["id"].as_str().is_some_and(|id| linked.contains(&id));
        let packages: Vec<&Value> = list(metadata, "packages").filter(is_linked).collect();
        let wrong = packages.iter().flat_map(|package| {
            let name = format!("{} {}", text(package, "name"), text(package, "version"));
            let parts =
                [self.licence(package), self.source(package), self.ban(package), wildcard(package)];
            parts.into_iter().flatten().map(move |why| format!("{name}: {why}"))
        });
        (packages.len(), wrong.collect())
    }

    fn licence(&self, package: &Value) -> Option<String> {
        let is_allowed = |licence: &str| self.licences.iter().any(|allowed| allowed == licence);
        let expression = package["license"].as_str().unwrap_or_default();
        match spdx::satisfies(expression, &is_allowed) {
            Ok(true) => None,
            Ok(false) => Some(format!("licence {expression} is not allowed")),
            Err(why) => Some(format!("its licence cannot be read: {why}")),
        }
    }

    fn source(&self, package: &Value) -> Option<String> {
        let source = package["source"].as_str()?;
        let is_known = match source.split_once('+') {
            Some(("registry" | "sparse", address)) => {
                self.registries.iter().any(|known| known == address)
            }
            Some(("git", address)) => {
                self.repositories.iter().any(|known| address.starts_with(known))
            }
            _ => false,
        };
        (!is_known).then(|| format!("source {source} is not allowed"))
    }

    fn ban(&self, package: &Value) -> Option<String> {
        let banned = self.banned.iter().find(|(name, _)| *name == text(package, "name"));
        banned.map(|(_, reason)| format!("it is banned: {reason}"))
    }
}

/// A dependency of ours on any version of a package.
fn wildcard(package: &Value) -> Option<String> {
    let is_ours = package["source"].is_null();
    let any = |dependency: &&Value| text(dependency, "req") == "*" && dependency["path"].is_null();
    let found = list(package, "dependencies").find(any).filter(|_| is_ours);
    found.map(|dependency| format!("it takes any version of {}", text(dependency, "name")))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const REGISTRY: &str = "registry+https://registry";

    fn rules() -> Rules {
        Rules::parse(
            "[graph]\ntargets = [\"t\"]\n[licenses]\nallow = [\"MIT\"]\n[sources]\n\
             allow-registry = [\"https://registry\"]\nallow-git = [\"https://git/ours\"]\n\
             [bans]\ndeny = [{ crate = \"bad\", reason = \"worse than none\" }]\n",
        )
        .unwrap()
    }

    /// What is wrong with a package that is in order but for `changes`.
    fn wrong(changes: &[(&str, Value)]) -> Vec<String> {
        let mut package = json!({
            "id": "a", "name": "a", "version": "1.0.0", "license": "MIT", "source": REGISTRY, "dependencies": [],
        });
        changes.iter().for_each(|(name, value)| package[*name] = value.clone());
        let unlinked = json!({ "id": "b", "name": "b", "license": "GPL-3.0" });
        let nodes = json!([{ "id": "a" }]);
        rules().judge(&json!({ "packages": [package, unlinked], "resolve": { "nodes": nodes } })).1
    }

    #[test]
    fn what_is_in_order_passes() {
        assert_eq!(wrong(&[]), [""; 0]);
        assert_eq!(wrong(&[("source", Value::Null)]), [""; 0]);
        assert_eq!(wrong(&[("source", json!("git+https://git/ours?rev=1#1"))]), [""; 0]);
        let any = json!([{ "name": "c", "req": "*", "path": null }]);
        assert_eq!(wrong(&[("dependencies", any)]), [""; 0], "a dependency of another's");
    }

    #[test]
    fn whatever_is_not_is_told_with_its_reason() {
        let any = json!([{ "name": "c", "req": "*", "path": null }]);
        for (changes, part) in [
            (vec![("license", json!("GPL-3.0"))], "a 1.0.0: licence GPL-3.0 is not allowed"),
            (vec![("license", Value::Null)], "its licence cannot be read: a licence is missing"),
            (vec![("source", json!("registry+https://other"))], "source registry+https://other"),
            (vec![("source", json!("git+https://git/theirs#1"))], "source git+https://git/theirs"),
            (vec![("name", json!("bad"))], "bad 1.0.0: it is banned: worse than none"),
            (vec![("source", Value::Null), ("dependencies", any)], "it takes any version of c"),
        ] {
            let found = wrong(&changes);
            assert!(matches!(&found[..], [one] if one.contains(part)), "{part}: {found:?}");
        }
    }

    #[test]
    fn the_file_of_this_repository_is_read() {
        let rules = Rules::parse(include_str!("../../deny.toml")).unwrap();
        assert!(rules.licences.iter().any(|licence| licence == "MIT"));
        assert!(!rules.targets.is_empty() && !rules.banned.is_empty());
    }
}
