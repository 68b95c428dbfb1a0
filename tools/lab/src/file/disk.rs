//! Limits of memory and disk, and the name of the file system.

use std::fs;
use std::path::Path;

use anyhow::Result;
use rustix::fs::{StatFs, statfs};

use crate::usage::UsageError;

/// Names of file systems by their magic numbers: `linux/magic.h`.
const NAMES: [(u32, &str); 8] = [
    (0xef53, "ext4"),
    (0x0102_1994, "tmpfs"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x794c_7630, "overlayfs"),
    (0x6969, "nfs"),
    (0x6573_5546, "fuse"),
    (0x2fc1_2fc1, "zfs"),
];

/// Fails if memory or disk are too small; `requested` describes the request. A size out of range is `None`.
pub(super) fn check(
    requested: &str,
    memory: Option<u64>,
    files: Option<u64>,
    dir: &Path,
) -> Result<()> {
    let stat = stat(dir)?;
    // A file system without storage has no size; it will refuse a directory.
    let disk = (stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_bsize as u64));
    let needed = [memory, files].map(|bytes| bytes.unwrap_or(u64::MAX));
    let limits = [(needed[0], available(), "of memory left"), (needed[1], disk, "left in TMPDIR")];
    refusal(requested, limits).map_or(Ok(()), |text| Err(UsageError(text).into()))
}

/// The error for the first limit that is exceeded: needed, available if known, and its name.
fn refusal(requested: &str, limits: [(u64, Option<u64>, &str); 2]) -> Option<String> {
    limits.into_iter().find_map(|(needed, left, place)| {
        let left = roughly(left.filter(|left| needed > *left)?);
        let needed = roughly(needed);
        Some(format!(
            "{requested}: {needed} do not fit the {left} {place}; ask for fewer or smaller"
        ))
    })
}

/// The name of the file system, or its magic number if that is unknown.
pub(super) fn file_system(dir: &Path) -> Result<String> {
    let number = stat(dir)?.f_type as u32;
    let known = NAMES.iter().find(|(magic, _)| *magic == number);
    Ok(known.map_or_else(|| format!("{number:#x}"), |(_, name)| (*name).to_owned()))
}

fn stat(dir: &Path) -> Result<StatFs> {
    let refused = |why| UsageError(format!("TMPDIR {}: {why}; set it elsewhere", dir.display()));
    Ok(statfs(dir).map_err(refused)?)
}

/// Memory available without swapping; `None` if the system does not report it.
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

fn roughly(bytes: u64) -> String {
    match bytes >> 30 {
        0 => format!("{}M", bytes >> 20),
        gigabytes => format!("{gigabytes}G"),
    }
}

/// A size in the largest unit that divides it.
pub(super) fn shown(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let fits = |shift: u32| bytes > 0 && bytes.is_multiple_of(1 << shift);
    let unit = units.into_iter().find(|&(shift, _)| fits(shift));
    unit.map_or_else(|| bytes.to_string(), |(shift, name)| format!("{}{name}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_above_memory_or_disk_is_refused_with_the_limit() {
        let found = |needed: [u64; 2], room: [Option<u64>; 2]| {
            let room = [(needed[0], room[0], "of memory left"), (needed[1], room[1], "on disk")];
            refusal("2 × 1G", room).unwrap_or_default()
        };
        let both = Some(2 << 30);
        assert_eq!(found([2 << 30, 2 << 30], [both, both]), "");
        assert_eq!(found([u64::MAX; 2], [None, None]), "", "unknown limits");
        let text = "2 × 1G: 4G do not fit the 2G of memory left; ask for fewer or smaller";
        assert_eq!(found([4 << 30, 2 << 30], [both, both]), text);
        let text = "2 × 1G: 3G do not fit the 5M on disk; ask for fewer or smaller";
        assert_eq!(found([2 << 30, 3 << 30], [both, Some(5 << 20)]), text);
    }

    #[test]
    fn file_systems_have_names() {
        assert_eq!(file_system(Path::new("/proc")).expect("a file system"), "0x9fa0");
        assert!(available().is_some_and(|bytes| bytes > 0));
    }
}
