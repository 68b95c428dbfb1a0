//! Peers: programs to compare with, each in its own directory and built by its own script.
//!
//! `tools/peers/NAME/build OUT` builds into the directory OUT and prints the program's path as its
//! last line. If a tool is missing, it exits with 3 and prints one line on its standard error. The
//! program takes a port (0 picks one), prints `listening on ADDRESS:PORT` on its standard error,
//! and runs until SIGTERM. Files in a peer's directory list the other transports and the modes that
//! it supports; `tools/peers/README.md` has the whole contract.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::interrupt;
use crate::output::OutputReader;
use crate::process::{Process, Spec};

/// The directory of the peers within the repository.
const PEERS_DIRECTORY: &str = "tools/peers";

/// The exit status of a build script that lacks a tool.
const TOOL_MISSING_STATUS: i32 = 3;

/// The script that runs a build script in the first directory and passes the second to it.
const BUILD_COMMAND: &str = "cd \"$0\" && exec /bin/sh build \"$1\"";

/// How many bytes at the end of each output of a build script are kept.
const MAX_BUILD_OUTPUT_BYTES: usize = 64 << 10;

/// How often to check whether a signal ends a build.
const SIGNAL_CHECK_PERIOD: Duration = Duration::from_millis(50);

/// How long to wait for the end of the outputs of a build script that has ended.
const OUTPUT_END_TIMEOUT: Duration = Duration::from_secs(2);

/// The file that lists further transports and the kinds of a peer.
const SERVES_FILE: &str = "serves";

/// The file that lists a peer's modes.
const MODES_FILE: &str = "modes";

/// Entries of [`SERVES_FILE`] for programs that are not echo servers but contenders of `bench nop`,
/// of `bench file`, of comparisons of programs or of storage, or counterparts of the examples. Each
/// kind has a check script of its name beside the peers.
const OTHER_KINDS: [&str; 7] =
    ["nop", "file", "programs", "examples", "writes", "storage", "arena"];

/// The outcome of building a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildOutcome {
    /// The path of the program.
    Program(PathBuf),
    /// A line that says which tool is missing and how to install it.
    Missing(String),
    /// The build failed.
    Failed {
        /// The exit status, or the fault in the output.
        status: String,
        /// The output of the script on standard error.
        printed: String,
    },
}

/// The directories of the peers and of their builds.
#[derive(Clone, Debug)]
pub struct Peers {
    directory: PathBuf,
    output: PathBuf,
    announce: fn(&str),
}

impl Peers {
    /// Looks for a directory `tools/peers` in this directory and its ancestors.
    pub fn find(from: &Path) -> Option<Peers> {
        let root = from.ancestors().find(|above| above.join(PEERS_DIRECTORY).is_dir())?;
        let (directory, output) = (root.join(PEERS_DIRECTORY), root.join("target").join("peers"));
        Some(Peers { directory, output, announce: |_| () })
    }

    /// Sets a function to call with a peer's name before building it, which may take minutes.
    pub fn announcing(self, announce: fn(&str)) -> Peers {
        Peers { announce, ..self }
    }

    /// Builds a peer, and returns its program or why it is missing. Without a directory of peers,
    /// every peer is missing.
    ///
    /// # Errors
    /// If the peer does not build.
    pub fn prepare(peers: Option<&Peers>, name: &str) -> Result<Result<PathBuf, String>> {
        let built = match peers {
            Some(peers) => {
                (peers.announce)(name);
                let built = peers.build(name).and_then(BuildOutcome::program);
                built.with_context(|| format!("peer {name} did not build"))?
            }
            None => Err("its sources are in the repository: run this inside the repository".into()),
        };
        Ok(built.map_err(|why| format!("peer {name} is left out: {why}")))
    }

    /// Returns the text of a file beside the peers, such as the configuration of an installed
    /// program.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        let path = self.directory.join(path);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Returns the sorted names of all peers.
    pub fn all(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.directory) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .filter(|entry| entry.path().join("build").is_file())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Returns the sorted names of the peers that are echo servers.
    pub fn names(&self) -> Vec<String> {
        let is_server =
            |name: &String| !OTHER_KINDS.iter().any(|contest| self.serves(name, contest));
        self.all().into_iter().filter(is_server).collect()
    }

    /// Returns true if the `serves` file of a peer lists this kind, such as `udp` or `unix`.
    pub fn serves(&self, name: &str, kind: &str) -> bool {
        self.words(name, SERVES_FILE).iter().any(|word| word == kind)
    }

    /// Returns the modes of a peer. One of them may be passed to the peer after its address.
    pub fn modes(&self, name: &str) -> Vec<String> {
        self.words(name, MODES_FILE)
    }

    /// Builds a peer, which may take minutes.
    ///
    /// # Errors
    /// If the build script cannot be run, or a signal ends it.
    pub fn build(&self, name: &str) -> Result<BuildOutcome> {
        let (directory, output) = (self.directory.join(name), self.output.join(name));
        fs::create_dir_all(&output)?;
        let arguments =
            vec!["-c".into(), BUILD_COMMAND.into(), directory.clone().into(), output.into()];
        let spec = Spec { arguments, ..Spec::of(name, "/bin/sh") };
        interrupt::check()?;
        let (mut build, stdout) = Process::start_separate(&spec, MAX_BUILD_OUTPUT_BYTES)?;
        let status = loop {
            if let Some(status) = build.ended(SIGNAL_CHECK_PERIOD) {
                break status;
            }
            interrupt::check()?;
        };
        let outputs = [&stdout, &build.output];
        outputs.iter().for_each(|output| _ = output.read_to_end(OUTPUT_END_TIMEOUT));
        let [stdout, stderr] = outputs.map(OutputReader::text);
        Ok(match (status.code(), last_line(&stdout)) {
            (Some(0), Some(path)) => BuildOutcome::Program(directory.join(path)),
            (Some(0), None) => {
                BuildOutcome::Failed { status: "it printed no path".into(), printed: stderr }
            }
            (Some(TOOL_MISSING_STATUS), _) => BuildOutcome::Missing(
                last_line(&stderr).unwrap_or_else(|| "a tool is missing".into()),
            ),
            _ => BuildOutcome::Failed { status: status.to_string(), printed: stderr },
        })
    }

    /// Returns the lines of a file in a peer's directory, or none if there is no such file.
    fn words(&self, name: &str, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.directory.join(name).join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl BuildOutcome {
    /// Returns the program, or which tool is missing.
    fn program(self) -> Result<Result<PathBuf, String>> {
        match self {
            BuildOutcome::Program(path) => Ok(Ok(path)),
            BuildOutcome::Missing(why) => Ok(Err(why)),
            BuildOutcome::Failed { status, printed } => match last_line(&printed) {
                Some(line) => bail!("{status}: {line}"),
                None => bail!(status),
            },
        }
    }
}

/// Returns the last non-empty line.
fn last_line(text: &str) -> Option<String> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use crate::scratch::tests::directory;

    /// A temporary repository with build scripts of peers.
    struct PeersFixture(Scratch);

    impl PeersFixture {
        fn new(scripts: &[(&str, &str)]) -> PeersFixture {
            let directory = PeersFixture(directory());
            scripts.iter().for_each(|(peer, script)| directory.file(peer, "build", script));
            directory
        }

        fn file(&self, peer: &str, name: &str, text: &str) {
            let peer = self.0.path().join(PEERS_DIRECTORY).join(peer);
            fs::create_dir_all(&peer).expect("cannot create a directory");
            fs::write(peer.join(name), text).expect("cannot write a file");
        }

        fn peers(&self) -> Peers {
            let below = self.0.path().join("some").join("where");
            fs::create_dir_all(&below).expect("cannot create a directory");
            Peers::find(&below).expect("the peers were not found")
        }
    }

    #[test]
    fn a_peer_is_found_above_and_built_in_the_target_directory() {
        let directory = PeersFixture::new(&[("c", "touch $1/c\necho building\necho $1/c\n")]);
        let program = directory.0.path().join("target/peers/c/c");
        assert_eq!(
            directory.peers().build("c").expect("the build script did not run"),
            BuildOutcome::Program(program.clone())
        );
        assert!(program.is_file());
    }

    #[test]
    fn a_missing_tool_is_not_a_failed_build() {
        let missing = "echo 'no go: apt install golang' >&2; exit 3";
        let directory = PeersFixture::new(&[
            ("go", missing),
            ("broken", "echo 'x.c:1: error' >&2; exit 1"),
            ("mute", "true"),
        ]);
        let peers = directory.peers();
        let prepare = |name| Peers::prepare(Some(&peers), name);
        let missing = prepare("go")
            .expect("preparing the contender failed")
            .expect_err("a peer without its tool was built");
        assert_eq!(missing, "peer go is left out: no go: apt install golang");
        let error = |name| format!("{:#}", prepare(name).expect_err("a broken peer was built"));
        assert_eq!(error("broken"), "peer broken did not build: exit status: 1: x.c:1: error");
        assert_eq!(error("mute"), "peer mute did not build: it printed no path");
    }

    #[test]
    fn the_transports_and_modes_of_a_peer_are_read_from_its_directory() {
        let directory = PeersFixture::new(&[("plain", ""), ("more", "")]);
        directory.file("more", SERVES_FILE, "udp\nunix\n");
        directory.file("more", MODES_FILE, "sqpoll\n");
        let peers = directory.peers();
        let served = |name| ["udp", "unix", "ud"].map(|kind| peers.serves(name, kind));
        assert_eq!(
            (served("more"), peers.modes("more")),
            ([true, true, false], vec!["sqpoll".into()])
        );
        assert_eq!((served("plain"), peers.modes("plain")), ([false; 3], vec![]));
    }

    #[test]
    fn every_peer_check_script_has_a_kind() {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers");
        let entries =
            fs::read_dir(peers).expect("the directory of the peers cannot be read").flatten();
        let mut checks: Vec<_> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                Some(name.strip_prefix("check_")?.strip_suffix(".py")?.to_owned())
            })
            .collect();
        checks.sort();
        let mut contests = OTHER_KINDS;
        contests.sort();
        assert_eq!(checks, contests);
    }

    #[test]
    fn a_peer_is_a_directory_with_a_build_script() {
        let directory = PeersFixture::new(&[("b", ""), ("a", "")]);
        assert_eq!(directory.peers().names(), ["a", "b"]);
        assert_eq!(directory.peers().all(), ["a", "b"]);
        fs::create_dir_all(directory.0.path().join("tools/peers/notes"))
            .expect("cannot create a directory");
        for other in OTHER_KINDS {
            directory.file("b", SERVES_FILE, &format!("{other}\n"));
            assert_eq!(directory.peers().names(), ["a"], "{other}");
            assert_eq!(directory.peers().all(), ["a", "b"], "{other}");
        }
        assert!(Peers::find(Path::new("/")).is_none() || Path::new("/peers").is_dir());
    }
}
