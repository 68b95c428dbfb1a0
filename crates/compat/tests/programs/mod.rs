//! The examples, run as processes.

use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

/// Time between two checks whether an example has exited.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// Number of checks after which a hanging test fails, far more than an example needs to exit.
const MAX_CHECKS: usize = 12_000;

/// Returns the directory of the examples after building them: cargo builds them with all tests, but
/// not for a single test.
pub(crate) fn examples() -> &'static PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let test = std::env::current_exe().expect("cannot find the test program");
        let profile =
            test.ancestors().nth(2).expect("the test is not in the deps directory of its profile");
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let mut build = Command::new(std::env::var("CARGO").expect("CARGO is not set"));
        build.args(["build", "--quiet", "--locked", "--all-features", "--examples"]);
        build.args(["--manifest-path", manifest, "--target-dir"]);
        build.arg(profile.parent().expect("the profile is not in the target directory"));
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(
            build.status().expect("cannot run cargo").success(),
            "building the examples failed"
        );
        profile.join("examples")
    })
}

/// A server program, which is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    pub(crate) fn start(program: &mut Command) -> Self {
        let mut child = program.stdout(Stdio::piped()).spawn().expect("cannot start the program");
        let lines = BufReader::new(child.stdout.take().expect("the output is not piped")).lines();
        Self { child, lines }
    }

    /// Returns the address in the program's next line, without the prefix.
    pub(crate) fn listens(&mut self, prefix: &str) -> String {
        let line = self.lines.next().expect("the program printed no address").unwrap();
        let rest = line.strip_prefix("listening on ").and_then(|rest| rest.strip_prefix(prefix));
        rest.unwrap_or_else(|| panic!("{line}")).to_owned()
    }

    /// Sends the program a signal, named as for `kill`.
    pub(crate) fn signal(&self, signal: &str) {
        let command = format!("kill -{signal} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
    }

    /// Sends the program a signal, and waits for its exit.
    pub(crate) fn ends_by(self, signal: &str) {
        self.signal(signal);
        self.ends();
    }

    /// Waits for the program to exit, which must succeed.
    pub(crate) fn ends(mut self) {
        let status = (0..MAX_CHECKS).find_map(|_| {
            let status = self.child.try_wait().unwrap();
            if status.is_none() {
                thread::sleep(CHECK_INTERVAL);
            }
            status
        });
        let status = status.expect("the program did not exit");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
