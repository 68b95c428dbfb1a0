//! The examples, run as processes.

use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

/// How long to wait between looks whether an example has ended.
const INTERVAL: Duration = Duration::from_millis(5);
/// How often to look: far longer than an example takes to end, with all that it waits for. It turns a hang into a failure.
const LOOKS: usize = 12_000;

/// The directory of the examples, with all of them in it: cargo builds them with all tests, but not with one alone.
pub(crate) fn examples() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let test = std::env::current_exe().expect("its path");
        let profile = test.ancestors().nth(2).expect("deps lies in the directory of the profile");
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let mut build = Command::new(std::env::var("CARGO").expect("of Cargo"));
        build.args(["build", "--quiet", "--locked", "--all-features", "--examples"]);
        build.args(["--manifest-path", manifest, "--target-dir"]);
        build.arg(profile.parent().expect("target"));
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo runs").success(), "the examples are not built");
        profile.join("examples")
    })
}

/// A program that serves, killed if it is dropped.
pub(crate) struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    pub(crate) fn start(program: &mut Command) -> Self {
        let mut child = program.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    /// The rest of its next line, which says where it listens.
    pub(crate) fn listens(&mut self, prefix: &str) -> String {
        let line = self.lines.next().expect("it says where it listens").unwrap();
        let rest = line.strip_prefix("listening on ").and_then(|rest| rest.strip_prefix(prefix));
        rest.unwrap_or_else(|| panic!("{line}")).to_owned()
    }

    /// Sends it a signal, named as for `kill`.
    pub(crate) fn signal(&self, signal: &str) {
        let command = format!("kill -{signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
    }

    /// Sends it a signal, and waits for its end.
    pub(crate) fn ends_by(self, signal: &str) {
        self.signal(signal);
        self.ends();
    }

    /// Waits for its end, which must be orderly.
    pub(crate) fn ends(mut self) {
        let status = (0..LOOKS).find_map(|_| {
            let status = self.child.try_wait().unwrap();
            if status.is_none() {
                thread::sleep(INTERVAL);
            }
            status
        });
        let status = status.expect("it ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
