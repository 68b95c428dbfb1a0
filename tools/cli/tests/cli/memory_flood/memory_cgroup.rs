//! A memory control group for one server, removed after it has ended. Requires root and a writable
//! hierarchy.

use annulus_load::clock;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long to retry removing a group whose processes are still ending.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The names of a control group's files, which depend on the version of the hierarchy.
struct Files {
    limit: &'static str,
    usage: &'static str,
    peak: &'static str,
    events: &'static str,
}

const V1_FILES: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    peak: "memory.max_usage_in_bytes",
    events: "memory.oom_control",
};

const V2_FILES: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
    peak: "memory.peak",
    events: "memory.events",
};

pub(crate) struct MemoryCgroup {
    path: PathBuf,
    files: &'static Files,
}

impl MemoryCgroup {
    /// Creates a group below the one that this process is in (in version 2, beside it).
    ///
    /// # Errors
    /// If the group cannot be created: usually this is not root, or the hierarchy is read-only.
    pub(crate) fn new(name: &str, limit: u64) -> Result<MemoryCgroup, String> {
        let (parent, files) = parent().ok_or("no hierarchy of memory control groups is mounted")?;
        let path = parent.join(format!("annulus-{name}-{}", std::process::id()));
        let with_path = |error: io::Error| format!("{}: {error}", path.display());
        fs::create_dir(&path).map_err(with_path)?;
        let group = MemoryCgroup { path: path.clone(), files };
        fs::write(path.join(files.limit), limit.to_string()).map_err(with_path)?;
        Ok(group)
    }

    /// Returns a command that joins the group before it executes the program.
    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let script = format!(
            "echo $$ > '{}' && exec \"$0\" \"$@\"",
            self.path.join("cgroup.procs").display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, program]).args(args);
        command
    }

    /// Returns the number of bytes that currently count against the limit.
    pub(crate) fn usage(&self) -> u64 {
        self.number(self.files.usage)
    }

    /// Returns the peak usage in bytes, or 0 if the kernel does not report it.
    pub(crate) fn peak(&self) -> u64 {
        self.number(self.files.peak)
    }

    /// Returns the number of processes killed for lack of memory.
    pub(crate) fn kills(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(self.files.events)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    fn number(&self, file: &str) -> u64 {
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // A group can be removed only after its last process has been reaped.
        let deadline = clock::now() + REMOVE_TIMEOUT;
        while fs::remove_dir(&self.path).is_err() && clock::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns the directory in which to create a group, in the hierarchy with the memory controller.
fn parent() -> Option<(PathBuf, &'static Files)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = |name: &str| {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers
                .split(',')
                .any(|one| one == name)
                .then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let first = Path::new("/sys/fs/cgroup/memory");
    if let Some(path) = own("memory").map(|path| first.join(path)).filter(|path| path.is_dir()) {
        return Some((path, &V1_FILES));
    }
    let path = Path::new("/sys/fs/cgroup").join(own("")?);
    // In version 2, a group with processes cannot have child groups with limits, but its parent
    // can.
    let path = path
        .parent()
        .filter(|above| above.starts_with("/sys/fs/cgroup"))
        .unwrap_or(&path)
        .to_owned();
    path.join("memory.stat").is_file().then_some((path, &V2_FILES))
}
