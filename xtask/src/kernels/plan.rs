//! What is run on each kernel: tests, built once, and the program itself.

use std::path::{Path, PathBuf};

use crate::step::{Failure, Step, root};
use serde_json::Value;

/// The tests that are run by default: the directory of a package below `crates`, and its test, or none for the tests in its
/// library.
const CHOSEN: [(&str, Option<&str>); 9] = [
    ("kernel", None),
    ("ring", None),
    ("ring", Some("linux")),
    ("driver", None),
    ("driver", Some("epoll")),
    ("driver", Some("operations")),
    ("annulus", Some("conformance")),
    ("annulus", Some("files")),
    ("annulus", Some("zero_copy")),
];

/// What cargo builds for all of them.
const EVERYTHING: &str = "--workspace --exclude xtask --lib --bins --tests";
/// The longest time of a test, emulated on a busy machine: seconds.
const TEST: u32 = 600;
/// The same for serving and loading.
const ECHO: u32 = 120;

/// A check, which passes or fails.
pub(super) struct Check {
    pub(super) name: String,
    /// Its longest time.
    seconds: u32,
    directory: PathBuf,
    command: String,
}

/// A test that cargo has built.
struct Built {
    /// The package's directory, and its last part.
    directory: PathBuf,
    package: String,
    /// The name of the test; none for the tests in a library or program.
    test: Option<String>,
    executable: PathBuf,
}

/// All that is run, in order.
pub(super) struct Plan {
    pub(super) checks: Vec<Check>,
}

impl Plan {
    /// Builds what the checks need.
    pub(super) fn build(all: bool) -> Result<Self, Failure> {
        let program = cargo("build", "-p annulus-cli --bin annulus")?;
        let annulus = program.iter().find_map(program_of);
        let annulus = annulus.ok_or_else(|| Failure::Failed("cargo built no `annulus`".into()))?;
        let tests = cargo("test --no-run", &if all { EVERYTHING.into() } else { chosen() })?;
        let is_wanted = |test: &Built| all || is_chosen(test);
        let mut checks = vec![doctor(&annulus)];
        let tests = tests.iter().filter_map(test_of).filter(is_wanted);
        checks.extend(tests.map(Check::from));
        checks.extend(echoes(&annulus));
        Ok(Self { checks })
    }

    /// The lines that `run.sh` reads.
    pub(super) fn text(&self) -> String {
        let line = |check: &Check| {
            let Check { name, seconds, directory, command } = check;
            format!("{name}\t{seconds}\t{}\t{command}\n", directory.display())
        };
        self.checks.iter().map(line).collect()
    }

    /// The longest time of all together.
    pub(super) fn seconds(&self) -> u64 {
        self.checks.iter().map(|check| u64::from(check.seconds)).sum()
    }
}

#[cfg(test)]
impl Plan {
    /// A plan of checks that do nothing.
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

impl From<Built> for Check {
    fn from(test: Built) -> Self {
        let name = match &test.test {
            None => test.package,
            Some(name) => format!("{}-{name}", test.package),
        };
        let command = quoted(&test.executable);
        Self { name, seconds: TEST, directory: test.directory, command }
    }
}

/// The files that cargo reports as built.
fn cargo(verb: &str, what: &str) -> Result<Vec<Value>, Failure> {
    let options = "--profile kernels --message-format=json-render-diagnostics";
    let (status, messages) = Step::new("cargo", &format!("{verb} {options} {what}")).capture()?;
    if !status.success() {
        return Err(Failure::Failed(format!("`cargo {verb} {what}` failed")));
    }
    Ok(messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// The arguments of cargo for the chosen tests. It builds more than those, since a test's name applies to all packages.
fn chosen() -> String {
    let tests = CHOSEN.iter().filter_map(|(_, test)| *test).map(|test| format!(" --test {test}"));
    let packages = ["kernel", "ring", "driver"].map(|name| format!(" -p annulus-{name}"));
    format!("-p annulus --lib{}{}", packages.concat(), tests.collect::<String>())
}

fn is_chosen(built: &Built) -> bool {
    CHOSEN.contains(&(built.package.as_str(), built.test.as_deref()))
}

/// The features of the machine, for the log and for the table in the documents.
fn doctor(annulus: &Path) -> Check {
    let command = format!("{} doctor --json \"$results/doctor.json\"", quoted(annulus));
    Check { name: "doctor".into(), seconds: ECHO, directory: root(), command }
}

/// The servers: one for each driver, and for io_uring one for each choice of operations.
fn echoes(annulus: &Path) -> Vec<Check> {
    let ways = ["recv-send", "read-write", "recvmsg-sendmsg", "readv-writev"];
    let ways = ways.into_iter().flat_map(|way| [way.to_owned(), format!("poll-{way}")]);
    let ways = ways.chain(["poll-multishot".to_owned()]).map(|way| format!("uring --ops {way}"));
    let drivers = ["uring", "epoll", "threads"].map(str::to_owned);
    let script = quoted(&root().join("xtask/src/kernels/echo.sh"));
    let check = |options: String| Check {
        name: format!("echo-{}", options.replace(" --ops ", "-")),
        seconds: ECHO,
        directory: root(),
        command: format!("sh {script} {} {options}", quoted(annulus)),
    };
    drivers.into_iter().chain(ways).map(check).collect()
}

/// The test in a message of cargo, if there is one.
fn test_of(message: &Value) -> Option<Built> {
    let executable =
        message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
    let target = &message["target"];
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = directory.file_name()?.to_str()?.to_owned();
    let is_test = target["kind"].as_array()?.iter().any(|kind| kind == "test");
    let name = target["name"].as_str()?.to_owned();
    Some(Built { directory, package, test: is_test.then_some(name), executable: executable.into() })
}

/// The program in a message of cargo, if there is one.
fn program_of(message: &Value) -> Option<PathBuf> {
    let is_it = message["target"]["name"] == "annulus" && message["profile"]["test"] == false;
    message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
}

/// A path, quoted for the shell.
pub(super) fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}
