//! Whether what is asked for fits memory and disk, and which file system that is.

use crate::bench::size::shown;
use crate::usage::Misuse;
use annulus_lab::file::Cycles;
use anyhow::Result;
use rustix::fs::{StatFs, statfs};
use std::fs;
use std::path::Path;

/// Names of file systems by the number that they tell: `linux/magic.h`.
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

const WAY_OUT: &str = "take fewer workers or a smaller size";

/// Refuses what does not fit.
pub(crate) fn check(cell: Cycles, dir: &Path) -> Result<()> {
    let stat = stat(dir)?;
    // What stores nothing has no size; it will refuse a folder.
    let disk = (stat.f_blocks > 0).then(|| stat.f_bavail.saturating_mul(stat.f_bsize as u64));
    refusal(cell, available(), disk).map_or(Ok(()), |text| Err(Misuse(text).into()))
}

/// Each worker writes from memory of its own, and reads into as much.
fn refusal(cell: Cycles, memory: Option<u64>, disk: Option<u64>) -> Option<String> {
    let files = cell.files().unwrap_or(u64::MAX);
    let asked = format!("{} workers × {}", cell.workers, shown(cell.bytes));
    let short = |room: Option<u64>, needed: u64| room.filter(|room| needed > *room);
    if let Some(memory) = short(memory, files.saturating_mul(2)) {
        let memory = roughly(memory);
        return Some(format!("{asked}, twice, do not fit the {memory} of memory left: {WAY_OUT}"));
    }
    let disk = roughly(short(disk, files)?);
    Some(format!("{asked} do not fit the {disk} left in --dir: {WAY_OUT}, or another folder"))
}

/// The name of the file system, or its number where that is not a known one.
pub(crate) fn file_system(dir: &Path) -> Result<String> {
    let number = stat(dir)?.f_type as u32;
    let known = NAMES.iter().find(|(magic, _)| *magic == number);
    Ok(known.map_or_else(|| format!("{number:#x}"), |(_, name)| (*name).to_owned()))
}

fn stat(dir: &Path) -> Result<StatFs> {
    let refused = |why| Misuse(format!("--dir {}: {why}; choose a folder", dir.display()));
    Ok(statfs(dir).map_err(refused)?)
}

/// Memory that can be had without swapping; `None` where the system does not tell.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_let_through_and_what_does_not_is_told_with_the_limit() {
        let cell = Cycles { workers: 2, cycles: 1, bytes: 1 << 30 };
        let told = |memory, disk| refusal(cell, Some(memory), Some(disk)).unwrap_or_default();
        assert_eq!(told(4 << 30, 2 << 30), "");
        let text = "2 workers × 1G, twice, do not fit the 3G of memory left: take fewer";
        assert!(told(3 << 30, 2 << 30).starts_with(text), "{}", told(3 << 30, 2 << 30));
        let text = "2 workers × 1G do not fit the 5M left in --dir: take fewer";
        assert!(told(4 << 30, 5 << 20).starts_with(text), "{}", told(4 << 30, 5 << 20));
        assert_eq!(refusal(cell, None, None), None, "nobody knows");
    }

    #[test]
    fn file_systems_have_names() {
        assert_eq!(file_system(Path::new("/proc")).unwrap(), "0x9fa0");
        assert!(available().is_some_and(|bytes| bytes > 0));
    }
}
