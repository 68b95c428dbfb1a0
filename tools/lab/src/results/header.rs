//! The header of a results file: what is measured, and where.

use std::env;
use std::ffi::OsString;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::bench::{Bench, Prepared};
use crate::environment::Environment;
use crate::suite;

/// The name of the format, in the first line.
pub const FORMAT: &str = "annulus-lab";

/// The version of the format.
pub const VERSION: u64 = 1;

/// The placeholder for a port, which differs from one run to the next.
const PORT_PLACEHOLDER: &str = "{port}";

/// The text before a port in an argument.
const LOOPBACK_PREFIX: &str = "127.0.0.1:";

/// The header, which is the first line.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Header {
    format: String,
    version: u64,
    pub(super) bench: Bench,
    /// The machine, the command line, and the time of the start.
    pub(super) environment: Environment,
    /// The published tables, if this is a suite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) suite: Option<suite::SuiteRun>,
}

impl Header {
    /// Creates the header of a run that starts now.
    pub(super) fn new(
        prepared: &Prepared,
        suite: Option<suite::SuiteRun>,
        places: &DirectoryPlaceholders,
    ) -> Header {
        let mut bench = prepared.bench.clone();
        for word in bench.contenders.all_mut().flat_map(|spec| &mut spec.arguments) {
            *word = OsString::from(without_port(&word.to_string_lossy()));
        }
        let environment = Environment::read();
        let header = Header { format: FORMAT.into(), version: VERSION, bench, environment, suite };
        let text = serde_json::to_string(&header).expect("serialization failed");
        serde_json::from_str(&places.shortened(&text))
            .expect("placeholders have changed more than strings")
    }

    /// Returns the first difference from another header's definition or machine: its place and both
    /// values.
    pub(super) fn difference(&self, other: &Header) -> Option<String> {
        difference("", &self.definition(), &other.definition())
    }

    /// Returns what must not differ when a run is resumed: everything except when and how it was
    /// started.
    fn definition(&self) -> Json {
        let mut json = serde_json::to_value(self).expect("serialization failed");
        if let Some(Json::Object(environment)) = json.get_mut("environment") {
            for key in ["time", "load_average", "command_line"] {
                environment.remove(key);
            }
        }
        json
    }
}

/// Placeholders for directories of this machine in a results file: the directory of the run, which
/// differs between runs; and the current directory, its parent and the home directory, which are
/// private.
#[derive(Debug)]
pub(super) struct DirectoryPlaceholders(Vec<(String, &'static str)>);

impl DirectoryPlaceholders {
    /// Creates the placeholders of a run with this directory.
    pub(super) fn new(scratch: Option<&Path>) -> DirectoryPlaceholders {
        let scratch = scratch.map(|path| (path.to_owned(), "{dir}"));
        let here = env::current_dir().ok().map(|path| (path, "."));
        let above = here.as_ref().and_then(|(path, _)| Some((path.parent()?.to_owned(), "..")));
        let home = env::home_dir().map(|path| (path, "~"));
        let all = [scratch, here, home, above].into_iter().flatten();
        let all = all.filter(|(path, _)| path.is_absolute() && path.parent().is_some());
        DirectoryPlaceholders(
            all.map(|(path, name)| (path.to_string_lossy().into_owned(), name)).collect(),
        )
    }

    /// Replaces the paths of the directories in a text by placeholders.
    pub(super) fn shortened(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (path, name)| {
            let mut parts = text.split(&**path);
            let mut shortened = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                // A path that is only a part of a longer name is left as it is, such as `/srv` in
                // `/srv-2`.
                let goes_on = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
                let is_longer = part.starts_with(goes_on) || shortened.ends_with(goes_on);
                shortened += if is_longer { path } else { name };
                shortened += part;
            }
            shortened
        })
    }
}

/// Replaces ports other than 0 after `127.0.0.1:` by [`PORT_PLACEHOLDER`].
pub(super) fn without_port(text: &str) -> String {
    let Some((before, after)) = text.split_once(LOOPBACK_PREFIX) else { return text.to_owned() };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    let port = &after[..after.len() - rest.len()];
    let port = if port.is_empty() || port == "0" { port } else { PORT_PLACEHOLDER };
    format!("{before}{LOOPBACK_PREFIX}{port}{}", without_port(rest))
}

/// Returns the first difference between two values: its place and both values.
pub(super) fn difference(place: &str, one: &Json, other: &Json) -> Option<String> {
    match (one, other) {
        (Json::Object(one), Json::Object(other)) => {
            let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
            let nothing = Json::Null;
            keys.map(|key| {
                let [one, other] = [one, other].map(|map| map.get(key).unwrap_or(&nothing));
                let dot = if place.is_empty() { "" } else { "." };
                difference(&format!("{place}{dot}{key}"), one, other)
            })
            .find_map(|found| found)
        }
        (Json::Array(one), Json::Array(other)) if one.len() == other.len() => {
            let pairs = one.iter().zip(other).enumerate();
            pairs
                .map(|(index, (one, other))| difference(&format!("{place}[{index}]"), one, other))
                .find_map(|found| found)
        }
        _ if one == other => None,
        _ => Some(format!("{place} is {} in the file and {} now", short(one), short(other))),
    }
}

/// Returns a value as JSON, truncated if it is long.
fn short(value: &Json) -> String {
    const MAX_SHOWN_CHARS: usize = 200;
    let text = value.to_string();
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_are_replaced_unless_they_are_0() {
        for (text, without) in [
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("127.0.0.1:8080", "127.0.0.1:{port}"),
            ("a 127.0.0.1:1 127.0.0.1:2/", "a 127.0.0.1:{port} 127.0.0.1:{port}/"),
            ("127.0.0.1:", "127.0.0.1:"),
            ("none", "none"),
        ] {
            assert_eq!(without_port(text), without);
        }
    }

    #[test]
    fn local_directories_are_replaced_by_placeholders() {
        let all = [("/tmp/run-1", "{dir}"), ("/srv/code", "."), ("/home/a", "~"), ("/srv", "..")];
        let places = DirectoryPlaceholders(all.map(|(path, name)| (path.to_owned(), name)).into());
        for (text, shortened) in [
            ("--dir=/tmp/run-1/x /tmp/run-10", "--dir={dir}/x /tmp/run-10"),
            ("/srv/code/peers/a: /srv/code", "./peers/a: ."),
            ("/srv/sources/a /srv-2", "../sources/a /srv-2"),
            ("/home/a/b /home/ab /x/home/a", "~/b /home/ab /x/home/a"),
            ("none", "none"),
        ] {
            assert_eq!(places.shortened(text), shortened);
        }
        let own = DirectoryPlaceholders::new(Some(Path::new("/tmp/x"))).shortened("/tmp/x/y / z");
        assert_eq!(own, "{dir}/y / z");
    }

    #[test]
    fn the_first_difference_is_named_with_its_place_and_both_values() {
        let of = |one: Json, other: Json| difference("", &one, &other);
        assert_eq!(of(json!({ "a": [1, 2] }), json!({ "a": [1, 2] })), None);
        let found = of(json!({ "a": { "b": [1, 2] } }), json!({ "a": { "b": [1, 3] } }));
        assert_eq!(found.as_deref(), Some("a.b[1] is 2 in the file and 3 now"));
        let found = of(json!({ "a": [1] }), json!({ "a": [1, 2] }));
        assert_eq!(found.as_deref(), Some("a is [1] in the file and [1,2] now"));
        let found = of(json!({}), json!({ "c": "x" }));
        assert_eq!(found.as_deref(), Some(r#"c is null in the file and "x" now"#));
        let long = of(json!("é".repeat(300)), json!(1)).expect("no difference was found");
        assert!(long.ends_with("é… in the file and 1 now"), "{long}");
    }
}
