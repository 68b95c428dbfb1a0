//! A file system on a loop device that a control group throttles.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of bytes per second that the device reads or writes.
const RATE: u64 = 2 * 1024 * 1024;
const SIZE: u64 = 128 * 1024 * 1024;

/// Allows one disk at a time, since tests run in parallel.
static ONE: Mutex<()> = Mutex::new(());

/// A mounted and throttled disk, unmounted on drop.
pub(crate) struct Disk {
    directory: PathBuf,
    device: String,
    limits: Limits,
    _alone: MutexGuard<'static, ()>,
}

/// How this system limits a block device.
enum Limits {
    /// `io.max` of a separate group, which this process joins.
    Unified(PathBuf),
    /// `blkio.throttle.*` of the root group.
    Legacy(PathBuf),
}

impl Disk {
    pub(crate) fn new() -> Result<Self, String> {
        let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = Limits::find()?;
        let directory = std::env::temp_dir().join(format!("annulus-slow-{}", std::process::id()));
        fs::create_dir_all(directory.join("mounted")).map_err(|e| e.to_string())?;
        let image = directory.join("image");
        File::create(&image).and_then(|file| file.set_len(SIZE)).map_err(|e| e.to_string())?;
        let device = run("losetup", &["--find", "--show", text(&image)]).inspect_err(|_| {
            _ = fs::remove_dir_all(&directory);
        })?;
        let disk = Self { directory, device, limits, _alone: alone };
        run("mkfs.ext4", &["-q", &disk.device])?;
        run("mount", &[&disk.device, text(&disk.path())])?;
        disk.limits.set(&disk.number()?, Some(RATE))?;
        Ok(disk)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("mounted")
    }

    /// Drops a file's pages from memory.
    pub(crate) fn forget(&self, path: &Path) {
        let file = File::open(path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    /// Returns the device number as the kernel writes it: `major:minor`.
    fn number(&self) -> Result<String, String> {
        run("lsblk", &["--noheadings", "--output", "MAJ:MIN", &self.device])
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Removes the limit, so that the last writes do not take forever.
        if let Ok(number) = self.number() {
            _ = self.limits.set(&number, None);
        }
        _ = run("umount", &[text(&self.path())]);
        _ = run("losetup", &["--detach", &self.device]);
        self.limits.leave();
        _ = fs::remove_dir_all(&self.directory);
    }
}

impl Limits {
    fn find() -> Result<Self, String> {
        let legacy = Path::new("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device");
        if legacy.exists() {
            return Ok(Self::Legacy(legacy.parent().expect("no directory above the file").into()));
        }
        let root = Path::new("/sys/fs/cgroup");
        let group = root.join(format!("annulus-slow-{}", std::process::id()));
        let made = fs::write(root.join("cgroup.subtree_control"), "+io")
            .and_then(|()| fs::create_dir(&group))
            .and_then(|()| fs::write(group.join("cgroup.procs"), std::process::id().to_string()));
        match made {
            Ok(()) => Ok(Self::Unified(group)),
            Err(error) => Err(format!("no control group that limits block devices: {error}")),
        }
    }

    fn set(&self, number: &str, rate: Option<u64>) -> Result<(), String> {
        let write = |file: PathBuf, line: String| {
            let opened = File::options().write(true).open(&file);
            let done = opened.and_then(|mut file| file.write_all(line.as_bytes()));
            done.map_err(|error| format!("{}: {error}", file.display()))
        };
        match self {
            Self::Legacy(directory) => ["read", "write"].into_iter().try_for_each(|way| {
                let file = directory.join(format!("blkio.throttle.{way}_bps_device"));
                write(file, format!("{number} {}", rate.unwrap_or(0)))
            }),
            Self::Unified(group) => {
                let rate = rate.map_or("max".into(), |rate| rate.to_string());
                write(group.join("io.max"), format!("{number} rbps={rate} wbps={rate}"))
            }
        }
    }

    fn leave(&self) {
        if let Self::Unified(group) = self {
            _ = fs::write("/sys/fs/cgroup/cgroup.procs", std::process::id().to_string());
            _ = fs::remove_dir(group);
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is not UTF-8")
}

/// Runs a command and returns its trimmed output. An error names the command.
fn run(command: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(command).args(arguments).output();
    let output = output.map_err(|error| format!("{command}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().into());
    }
    Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
