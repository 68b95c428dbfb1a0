//! The name of the file system.

use std::path::Path;

use anyhow::Result;
use rustix::fs::statfs;

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

/// The name of the file system, or its magic number if that is unknown.
pub(super) fn file_system(dir: &Path) -> Result<String> {
    let refused = |why| UsageError(format!("TMPDIR {}: {why}; set it elsewhere", dir.display()));
    let number = statfs(dir).map_err(refused)?.f_type as u32;
    let known = NAMES.iter().find(|(magic, _)| *magic == number);
    Ok(known.map_or_else(|| format!("{number:#x}"), |(_, name)| (*name).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_have_names() {
        assert_eq!(file_system(Path::new("/proc")).expect("a file system"), "0x9fa0");
    }
}
