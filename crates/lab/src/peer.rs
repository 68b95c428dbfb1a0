//! Peers: programs of others to compare with, one folder each, built by their own script.
//!
//! `peers/NAME/build OUT` builds into the folder OUT and prints the program's path as its last line.
//! It exits with 3 and one line on its standard error when a tool is missing. The program takes a
//! port (0 picks one), says `listening on ADDRESS:PORT` on its standard error, and runs until
//! SIGTERM. What else a peer serves and in which modes stands in files of its folder;
//! `peers/README.md` has the whole contract.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::child;

use crate::server::Spec;

/// What a build script exits with when a tool is missing.
const TOOL_MISSING: i32 = 3;

/// The file that lists what a peer serves beside TCP.
const SERVES: &str = "serves";

/// The file that lists a peer's modes.
const MODES: &str = "modes";

/// What stands in [`SERVES`] where the program is no echo server, but a contender of `bench nop`, `bench file` or `bench bulk`.
const CONTESTS: [&str; 3] = ["nop", "file", "bulk"];

/// The folder of all peers, and where they are built.
#[derive(Clone, Debug)]
pub struct Peers {
    folder: PathBuf,
    output: PathBuf,
    announce: fn(&str),
}

impl Peers {
    /// Looks for a folder `peers` here and in every folder above.
    pub fn find(from: &Path) -> Option<Peers> {
        let folder = from.ancestors().map(|above| above.join("peers")).find(|f| f.is_dir())?;
        let output = folder.parent()?.join("target").join("peers");
        Some(Peers { folder, output, announce: |_| () })
    }

    /// Has a peer's name announced before it is built, which may take minutes.
    pub fn announcing(self, announce: fn(&str)) -> Peers {
        Peers { announce, ..self }
    }

    /// How to run a peer as a contender, or what is missing to have it. `spec` makes of a peer's
    /// program what runs it; without a folder of peers there is none.
    ///
    /// # Errors
    /// If the peer does not build.
    pub fn prepare(
        peers: Option<&Peers>,
        name: &str,
        spec: impl FnOnce(PathBuf) -> Spec,
    ) -> anyhow::Result<Result<Spec, String>> {
        let Some(peers) = peers else {
            let why = format!("peer {name} is left out: it is built from within the repository");
            return Ok(Err(why));
        };
        match peers.build(name) {
            Ok(program) => Ok(Ok(spec(program))),
            Err(missing @ PeerError::ToolMissing { .. }) => Ok(Err(missing.to_string())),
            Err(failed) => Err(failed.into()),
        }
    }

    /// The names of all peers that echo, sorted.
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .flatten()
            .filter(|entry| entry.path().join("build").is_file())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| !CONTESTS.iter().any(|contest| self.serves(name, contest)))
            .collect();
        names.sort();
        names
    }

    /// Whether a peer says that it serves this beside TCP: `udp` or `unix`.
    pub fn serves(&self, name: &str, kind: &str) -> bool {
        self.words(name, SERVES).iter().any(|word| word == kind)
    }

    /// The words of which a peer takes one behind its address.
    pub fn modes(&self, name: &str) -> Vec<String> {
        self.words(name, MODES)
    }

    /// Builds a peer and gives its program.
    pub fn build(&self, name: &str) -> Result<PathBuf, PeerError> {
        (self.announce)(name);
        let output = self.output.join(name);
        fs::create_dir_all(&output).map_err(|error| PeerError::new(name, error))?;
        let folder = self.folder.join(name);
        let mut build = Command::new("/bin/sh");
        build.arg("build").arg(&output).current_dir(&folder);
        let built = child::output(build).map_err(|error| PeerError::new(name, error))?;
        program(name, &built).map(|program| folder.join(program))
    }

    /// The lines of a file in a peer's folder; none without the file.
    fn words(&self, name: &str, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join(name).join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// The program's path, from what the build script printed.
fn program(name: &str, built: &Output) -> Result<PathBuf, PeerError> {
    let last = |text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
    };
    let name = name.to_owned();
    match built.status.code() {
        Some(0) => match last(&built.stdout) {
            Some(path) => Ok(path.into()),
            None => Err(PeerError::Failed { name, why: "it printed no path".into() }),
        },
        Some(TOOL_MISSING) => {
            let why = last(&built.stderr).unwrap_or_else(|| "a tool is missing".into());
            Err(PeerError::ToolMissing { name, why })
        }
        _ => {
            let said = last(&built.stderr).unwrap_or_default();
            Err(PeerError::Failed { name, why: format!("{}: {said}", built.status) })
        }
    }
}

/// Why a peer can't run.
#[derive(Debug, PartialEq, Eq)]
pub enum PeerError {
    /// A tool to build it is not there; the rest of the comparison can do without.
    ToolMissing {
        /// The peer.
        name: String,
        /// What its script says about how to get it.
        why: String,
    },
    /// Its build failed.
    Failed {
        /// The peer.
        name: String,
        /// Why.
        why: String,
    },
}

impl PeerError {
    fn new(name: &str, error: io::Error) -> PeerError {
        PeerError::Failed { name: name.to_owned(), why: error.to_string() }
    }
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerError::ToolMissing { name, why } => write!(f, "peer {name} is left out: {why}"),
            PeerError::Failed { name, why } => write!(f, "peer {name} did not build: {why}"),
        }
    }
}

impl std::error::Error for PeerError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with peers whose build scripts are these, removed when dropped.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str, scripts: &[(&str, &str)]) -> Folder {
            let name = format!("annulus-lab-peers-{test}-{}", std::process::id());
            let folder = Folder(std::env::temp_dir().join(name));
            for (peer, script) in scripts {
                let peer = folder.0.join("peers").join(peer);
                fs::create_dir_all(&peer).expect("folder");
                fs::write(peer.join("build"), script).expect("script");
            }
            folder
        }

        fn file(&self, peer: &str, name: &str, text: &str) {
            fs::write(self.0.join("peers").join(peer).join(name), text).expect("file");
        }

        fn peers(&self) -> Peers {
            let below = self.0.join("some").join("where");
            fs::create_dir_all(&below).expect("folder");
            Peers::find(&below).expect("peers above")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_peer_is_found_above_and_built_in_the_target_folder() {
        let folder = Folder::new("good", &[("c", "touch $1/c\necho building\necho $1/c\n")]);
        let program = folder.peers().build("c").expect("it builds");
        assert_eq!(program, folder.0.join("target/peers/c/c"));
        assert!(program.is_file());
    }

    #[test]
    fn a_missing_tool_is_told_from_a_failed_build() {
        let missing = "echo 'no go: apt install golang' >&2; exit 3";
        let folder = Folder::new(
            "bad",
            &[("go", missing), ("broken", "echo 'x.c:1: error' >&2; exit 1"), ("mute", "true")],
        );
        let error = |name| folder.peers().build(name).expect_err("it does not build").to_string();
        assert_eq!(error("go"), "peer go is left out: no go: apt install golang");
        assert_eq!(error("broken"), "peer broken did not build: exit status: 1: x.c:1: error");
        assert_eq!(error("mute"), "peer mute did not build: it printed no path");
    }

    #[test]
    fn what_a_peer_serves_and_its_modes_are_read_off_its_folder() {
        let folder = Folder::new("words", &[("plain", ""), ("more", "")]);
        folder.file("more", SERVES, "udp\nunix\n");
        folder.file("more", MODES, "sqpoll\n");
        let peers = folder.peers();
        let served = |name| ["udp", "unix", "ud"].map(|kind| peers.serves(name, kind));
        assert_eq!(
            (served("more"), peers.modes("more")),
            ([true, true, false], vec!["sqpoll".into()])
        );
        assert_eq!((served("plain"), peers.modes("plain")), ([false; 3], vec![]));
    }

    #[test]
    fn a_peer_is_a_folder_that_builds_a_server() {
        let folder = Folder::new("names", &[("b", ""), ("a", "")]);
        assert_eq!(folder.peers().names(), ["a", "b"]);
        fs::create_dir_all(folder.0.join("peers/notes")).expect("folder");
        for other in CONTESTS {
            folder.file("b", SERVES, &format!("{other}\n"));
            assert_eq!(folder.peers().names(), ["a"], "{other}");
        }
        assert!(Peers::find(Path::new("/")).is_none() || Path::new("/peers").is_dir());
    }
}
