//! The file system of a directory.

use std::path::Path;

use anyhow::{Result, ensure};
use rustix::fs::{statfs, statvfs};

use crate::usage_error::UsageError;

/// Names of file systems by their magic numbers (`linux/magic.h`).
const FILE_SYSTEMS: [(u32, &str); 8] = [
    (0xef53, "ext4"),
    (0x0102_1994, "tmpfs"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x794c_7630, "overlayfs"),
    (0x6969, "nfs"),
    (0x6573_5546, "fuse"),
    (0x2fc1_2fc1, "zfs"),
];

/// Returns the name of the file system, or its magic number if the name is unknown.
///
/// # Errors
/// If the directory cannot be examined.
pub(crate) fn name(dir: &Path) -> Result<String> {
    let refused =
        |why| UsageError(format!("TMPDIR {}: {why}; set it to another directory", dir.display()));
    let number = statfs(dir).map_err(refused)?.f_type as u32;
    let known = FILE_SYSTEMS.iter().find(|(magic, _)| *magic == number);
    Ok(known.map_or_else(|| format!("{number:#x}"), |(_, name)| (*name).to_owned()))
}

/// Fails if files of this many bytes do not fit into the directory's file system.
///
/// # Errors
/// If they do not fit, or the directory cannot be examined.
pub(crate) fn check_space(dir: &Path, needed: u64) -> Result<()> {
    let dir_name = dir.display();
    let space = statvfs(dir).map_err(|why| UsageError(format!("{dir_name}: {why}")))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    ensure!(
        needed <= free,
        UsageError(format!(
            "the files of [site] have {needed} bytes, and {dir_name} has {free} bytes free: write \
             smaller sizes, or set TMPDIR to a larger directory"
        ))
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_must_fit() {
        let dir = std::env::temp_dir();
        check_space(&dir, 1).expect("the disk is full");
        let text = check_space(&dir, u64::MAX).expect_err("no disk is that large").to_string();
        for part in ["18446744073709551615 bytes", " bytes free", "TMPDIR"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn file_systems_have_names() {
        assert_eq!(name(Path::new("/proc")).expect("the file system is unknown"), "0x9fa0");
    }
}
