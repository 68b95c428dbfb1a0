//! The plan of checks to run on each kernel: tests, which are built once, and the program itself.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::step::{Step, root};

/// The tests to run: the directory of a package below `crates` and the name of its test, or `None`
/// for the unit tests of its library.
const CHOSEN_TESTS: [(&str, Option<&str>); 8] = [
    ("kernel", None),
    ("ring", None),
    ("ring", Some("linux")),
    ("driver", None),
    ("driver", Some("epoll")),
    ("driver", Some("operations")),
    ("driver", Some("zero_copy_receive")),
    ("annulus", Some(SUITE)),
];

/// The test suite of `annulus`. [`Scope::options`] selects its modules.
const SUITE: &str = "suite";

/// Tests that take long without optimisation, because they try many random cases or mostly run
/// simulations.
const SLOW_TESTS: [(&str, Option<&str>); 1] = [("driver", None)];

/// The time limit of a test program, for an emulated processor on a busy machine.
const MAX_TEST_SECONDS: u32 = 600;
/// The time limit of a check with a server and a load, and of `doctor`.
const MAX_ECHO_SECONDS: u32 = 120;

/// The extent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The extent for `weekly`: [`CHOSEN_TESTS`] without [`SLOW_TESTS`], as `cargo test` builds
    /// them, with the drivers in their default modes, and two echo servers.
    Quick,
    /// [`CHOSEN_TESTS`] in every mode, and an echo server with `auto` and with each driver.
    Usual,
}

impl Scope {
    fn has(self, test: (&str, Option<&str>)) -> bool {
        CHOSEN_TESTS.contains(&test) && !(self == Self::Quick && SLOW_TESTS.contains(&test))
    }

    /// Returns the check for the test in a message of cargo, if the plan includes it.
    fn test_of(self, message: &Value, annulus: &Path) -> Option<Check> {
        let executable =
            message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
        let target = &message["target"];
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        let package = directory.file_name()?.to_str()?.to_owned();
        let is_library = target["kind"].as_array()?.iter().any(|kind| kind == "lib");
        let name = target["name"].as_str()?;
        let test = (!is_library).then_some(name);
        if !self.has((&package, test)) {
            return None;
        }
        let mut command = quoted(Path::new(executable)) + self.options(test);
        // Only these tests have nothing to run without io_uring.
        if package == "ring" && test.is_some() {
            command =
                format!("{} doctor --require uring >&2 || exit 77; {command}", quoted(annulus));
        }
        let name = test.map_or(package.clone(), |test| format!("{package}-{test}"));
        Some(Check { name, seconds: MAX_TEST_SECONDS, directory, command })
    }

    /// Runs cargo and returns its messages. Outside of quick runs, tests are optimised: they take
    /// longer to build, and are faster on an emulated processor.
    fn cargo(self, verb: &str, what: &str) -> Result<Vec<Value>> {
        let profile = if self == Self::Quick { "dev" } else { "kernels" };
        let options = format!("--profile {profile} --message-format=json-render-diagnostics");
        let step = Step::new("cargo", &format!("{verb} {options} {what}"));
        let (status, messages) = step.capture()?;
        ensure!(status.success(), "`cargo {verb} {what}` failed");
        Ok(messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Returns the options for a test's harness. It shows the output of passed tests, which may say
    /// that they were skipped.
    fn options(self, test: Option<&str>) -> &'static str {
        match (self, test) {
            // Simulated kernels are the same everywhere; the names of the ring's other modes begin
            // with `uring_`.
            (Self::Quick, Some(SUITE)) => {
                " --show-output conformance:: files:: --skip ::simulated --skip ::uring_"
            }
            (Self::Usual, Some(SUITE)) => " --show-output conformance:: files:: zero_copy::",
            _ => " --show-output",
        }
    }
}

/// A command that passes or fails.
pub(super) struct Check {
    pub(super) name: String,
    /// The time limit of the check.
    seconds: u32,
    directory: PathBuf,
    command: String,
}

/// All checks, in order.
pub(super) struct Plan {
    pub(super) checks: Vec<Check>,
}

impl Plan {
    /// Builds what the checks need.
    pub(super) fn build(scope: Scope) -> Result<Self> {
        // In a quick run, builds what `cargo test` builds, so that nothing is built again.
        let tests = if scope == Scope::Quick { "--workspace".into() } else { chosen() };
        let mut built = scope.cargo("test --no-run", &tests)?;
        if !built.iter().any(|message| program_of(message).is_some()) {
            built.extend(scope.cargo("build", "-p annulus-cli --bin annulus")?);
        }
        let annulus = built.iter().find_map(program_of);
        let annulus = annulus.context("cargo built no `annulus`")?;
        let tests = built.iter().filter_map(|message| scope.test_of(message, &annulus));
        let mut tests: Vec<_> = tests.collect();
        // Cargo reports tests in the order in which they are built.
        tests.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let mut checks = vec![doctor(&annulus)];
        checks.extend(built.iter().find_map(zero_copy_receive));
        checks.extend(tests);
        checks.extend(echoes(&annulus, scope));
        let names: BTreeSet<&str> = checks.iter().map(|check| check.name.as_str()).collect();
        // The outcomes of checks with the same name could not be distinguished.
        ensure!(names.len() == checks.len(), "two checks have the same name");
        Ok(Self { checks })
    }

    /// Formats the plan as `run.sh` reads it.
    pub(super) fn text(&self) -> String {
        let line = |check: &Check| {
            let Check { name, seconds, directory, command } = check;
            format!("{name}\t{seconds}\t{}\t{command}\n", directory.display())
        };
        self.checks.iter().map(line).collect()
    }

    /// Returns the sum of all time limits.
    pub(super) fn seconds(&self) -> u64 {
        self.checks.iter().map(|check| u64::from(check.seconds)).sum()
    }
}

#[cfg(test)]
impl Plan {
    /// Creates a plan of checks that do nothing.
    pub(super) fn of_names(names: &[&str]) -> Self {
        let check = |name: &&str| Check {
            name: (*name).to_owned(),
            seconds: 1,
            directory: PathBuf::new(),
            command: "true".into(),
        };
        Self { checks: names.iter().map(check).collect() }
    }
}

/// Returns cargo's arguments for the chosen tests. Cargo builds more than those, because a test's
/// name applies to all packages.
fn chosen() -> String {
    let tests =
        CHOSEN_TESTS.iter().filter_map(|(_, test)| *test).map(|test| format!(" --test {test}"));
    let libraries = CHOSEN_TESTS.iter().filter(|(_, test)| test.is_none());
    let packages = libraries.map(|(package, _)| format!(" -p annulus-{package}"));
    format!("-p annulus --lib{}{}", packages.collect::<String>(), tests.collect::<String>())
}

/// The check that records the features of the machine, for the log and for the page.
fn doctor(annulus: &Path) -> Check {
    let command = format!("{} doctor --json \"$results/doctor.json\"", quoted(annulus));
    Check { name: "doctor".into(), seconds: MAX_ECHO_SECONDS, directory: root(), command }
}

/// The check of the conformance suite with zero-copy receives, if a message of cargo reports the
/// suite.
fn zero_copy_receive(message: &Value) -> Option<Check> {
    let executable = message["executable"].as_str()?;
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let is_suite = message["profile"]["test"] == true
        && message["target"]["name"].as_str() == Some(SUITE)
        && directory.ends_with("annulus");
    if !is_suite {
        return None;
    }
    // Without a device, they need Linux 7.1.
    let command = format!(
        "case $(uname -r) in [0-6].*|7.0.*) exit 77;; esac; ANNULUS_TEST_ZERO_COPY_RECEIVE=1 {} --show-output ::uring ::guest_on_uring zero_copy_receive:: --skip without_newer_flags",
        quoted(Path::new(executable))
    );
    let name = "annulus-zero_copy_receive".into();
    Some(Check { name, seconds: MAX_TEST_SECONDS, directory, command })
}

/// The checks of echo servers: one with `auto` and one for each driver. A quick run has the first
/// two.
fn echoes(annulus: &Path, scope: Scope) -> Vec<Check> {
    let drivers = ["auto", "uring", "epoll", "threads"];
    let drivers = drivers.into_iter().take(if scope == Scope::Quick { 2 } else { usize::MAX });
    let script = quoted(&root().join("xtask/src/kernels/echo.sh"));
    let check = |driver| Check {
        name: format!("echo-{driver}"),
        seconds: MAX_ECHO_SECONDS,
        directory: root(),
        command: format!("sh {script} {} {driver}", quoted(annulus)),
    };
    drivers.map(check).collect()
}

/// Returns the path of `annulus` if a message of cargo reports it as built.
fn program_of(message: &Value) -> Option<PathBuf> {
    let is_it = message["target"]["name"] == "annulus" && message["profile"]["test"] == false;
    message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
}

/// Quotes a path for the shell.
pub(super) fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that matches nothing would be silently left out.
    #[test]
    fn chosen_tests_exist() {
        for (package, test) in CHOSEN_TESTS {
            let package = root().join("crates").join(package);
            let places = match test {
                None => vec![package.join("src/lib.rs")],
                Some(name) => ["tests/NAME.rs", "tests/NAME/main.rs"]
                    .map(|place| package.join(place.replace("NAME", name)))
                    .into(),
            };
            assert!(places.iter().any(|place| place.is_file()), "none of {places:?} exists");
        }
        assert!(SLOW_TESTS.iter().all(|test| CHOSEN_TESTS.contains(test)));
    }

    #[test]
    fn chosen_test_becomes_a_check() {
        let test_of = |scope: Scope, package: &str, kind: &str, name: &str| {
            let message = serde_json::json!({
                "executable": "/built/it", "profile": { "test": true },
                "target": { "kind": [kind], "name": name },
                "manifest_path": format!("/crates/{package}/Cargo.toml"),
            });
            let check = scope.test_of(&message, Path::new("/annulus"))?;
            Some((check.name, check.directory.display().to_string(), check.command))
        };
        let check = |name: &str, directory: &str, command: &str| {
            Some((name.to_owned(), directory.to_owned(), command.to_owned()))
        };
        assert_eq!(
            test_of(Scope::Usual, "ring", "test", "linux"),
            check(
                "ring-linux",
                "/crates/ring",
                "'/annulus' doctor --require uring >&2 || exit 77; '/built/it' --show-output"
            )
        );
        let driver = check("driver", "/crates/driver", "'/built/it' --show-output");
        assert_eq!(test_of(Scope::Usual, "driver", "lib", "annulus_driver"), driver);
        assert_eq!(
            test_of(Scope::Quick, "driver", "lib", "annulus_driver"),
            None,
            "a quick run has a slow test"
        );
        assert_eq!(
            test_of(Scope::Usual, "driver", "test", "other"),
            None,
            "a test that is not chosen has a check"
        );
    }

    #[test]
    fn quick_scope_is_a_subset_of_the_usual_one() {
        let count = |scope| echoes(Path::new("annulus"), scope).len();
        assert_eq!((count(Scope::Quick), count(Scope::Usual)), (2, 4));
        let quick = Scope::Quick.options(Some(SUITE));
        assert!(quick.contains("--skip ::simulated"), "{quick}");
    }

    /// A module that no longer exists would be silently left out.
    #[test]
    fn selected_suite_modules_exist() {
        for scope in [Scope::Quick, Scope::Usual] {
            let modules =
                scope.options(Some(SUITE)).split(' ').filter_map(|word| word.strip_suffix("::"));
            for module in modules {
                let suite = root().join("crates/annulus/tests").join(SUITE);
                let places = [suite.join(format!("{module}.rs")), suite.join(module)];
                assert!(places.iter().any(|place| place.exists()), "none of {places:?} exists");
            }
        }
    }
}
