//! The memory that this process may use: the limits of its control groups, or the machine's memory.

use annulus_kernel::machine_memory;
use std::fs;
use std::path::{Path, PathBuf};

/// The memory assumed if nothing can be read: 1 GiB.
const ASSUMED_MEMORY_BYTES: usize = 1 << 30;

/// Returns the lowest of all limits and describes which one it is.
pub(crate) fn memory() -> (usize, String) {
    least(Path::new("/proc"))
}

fn least(proc: &Path) -> (usize, String) {
    let machine = total(proc).map(|bytes| (bytes, format!("this machine's {}", size(bytes))));
    let groups = groups(proc)
        .into_iter()
        .map(|(bytes, path)| (bytes, format!("the {} of control group {path}", size(bytes))));
    let known = machine.into_iter().chain(groups).min_by_key(|(bytes, _)| *bytes);
    known.unwrap_or_else(|| {
        (
            ASSUMED_MEMORY_BYTES,
            format!("{}, assumed because no limit could be read", size(ASSUMED_MEMORY_BYTES)),
        )
    })
}

/// Formats a number of bytes with a unit, rounded down.
fn size(bytes: usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes >= 10 << shift);
    let (shift, name) = unit.unwrap_or((0, "bytes"));
    format!("{} {name}", bytes >> shift)
}

/// Returns the machine's memory. `/proc` comes first because it may show less in a container. It may
/// be missing, and a process without a free descriptor cannot read it.
fn total(proc: &Path) -> Option<usize> {
    meminfo(proc).or_else(|| machine_memory()?.try_into().ok())
}

fn meminfo(proc: &Path) -> Option<usize> {
    let text = fs::read_to_string(proc.join("meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

/// Returns the memory limits of the process's control groups, from its own to the topmost visible
/// one.
fn groups(proc: &Path) -> Vec<(usize, String)> {
    let read = |name| fs::read_to_string(proc.join("self").join(name)).unwrap_or_default();
    let (groups, mounts) = (read("cgroup"), read("mountinfo"));
    let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    groups.lines().filter_map(Membership::parse).flat_map(|own| own.limits(&mounts)).collect()
}

/// A mounted hierarchy of control groups.
struct Mount {
    /// The group that is mounted at `point`.
    root: PathBuf,
    point: PathBuf,
    version: CgroupVersion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupVersion {
    One,
    Two,
}

impl CgroupVersion {
    /// Returns the names of the files that contain limits.
    fn files(self) -> &'static [&'static str] {
        match self {
            Self::One => &["memory.limit_in_bytes"],
            Self::Two => &["memory.max", "memory.high"],
        }
    }
}

impl Mount {
    /// Parses a line of `mountinfo`. Returns `None` unless it is a mount of memory control groups.
    fn parse(line: &str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let version = match kind.next()? {
            "cgroup2" => CgroupVersion::Two,
            "cgroup" if kind.nth(1)?.split(',').any(|option| option == "memory") => {
                CgroupVersion::One
            }
            _ => return None,
        };
        Some(Self { root: root.into(), point: point.into(), version })
    }
}

/// A control group that the process is in.
struct Membership {
    version: CgroupVersion,
    path: PathBuf,
}

impl Membership {
    /// Parses a line of `cgroup`. Returns `None` for hierarchies that do not control memory.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let version = match controllers {
            "" if number == "0" => CgroupVersion::Two,
            _ if controllers.split(',').any(|one| one == "memory") => CgroupVersion::One,
            _ => return None,
        };
        Some(Self { version, path: path.into() })
    }

    /// Returns the limits of the group and its ancestors.
    fn limits(&self, mounts: &[Mount]) -> Vec<(usize, String)> {
        let Some(mount) = mounts.iter().find(|mount| mount.version == self.version) else {
            return Vec::new();
        };
        // A container's mount may begin further down than the paths in its `cgroup` file.
        let inside = self.path.strip_prefix(&mount.root).or(self.path.strip_prefix("/"));
        let inside = inside.unwrap_or(Path::new(""));
        let above = inside.ancestors().map(|group| (mount.point.join(group), group));
        let limits = above.filter_map(|(directory, group)| {
            let limits =
                self.version.files().iter().filter_map(|file| limit(&directory.join(file)));
            Some((limits.min()?, format!("/{}", group.display())))
        });
        limits.collect()
    }
}

/// Reads a limit from a file. Returns `None` if the file has no limit.
fn limit(file: &Path) -> Option<usize> {
    // Version 1 of control groups represents "no limit" by a number that exceeds the memory of any
    // machine.
    let none = |bytes: &usize| *bytes < usize::MAX / 4;
    fs::read_to_string(file).ok()?.trim().parse().ok().filter(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fake `/proc` and the hierarchies that it refers to, in a temporary directory.
    struct FakeMachine(PathBuf);

    impl FakeMachine {
        fn new(name: &str) -> Self {
            let directory =
                std::env::temp_dir().join(format!("annulus-{name}-{}", std::process::id()));
            let machine = Self(directory);
            machine.write("proc/meminfo", "MemTotal:       1048576 kB\nMemFree: 1 kB\n");
            machine
        }

        fn write(&self, file: &str, text: &str) {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn least(&self) -> (usize, String) {
            least(&self.0.join("proc"))
        }

        /// Creates the machine of a process in these groups, with these mounts.
        fn of(name: &str, groups: &str, mount: &str) -> Self {
            let machine = Self::new(name);
            machine.write("proc/self/cgroup", groups);
            let root = machine.0.display().to_string();
            let proc = "24 1 0:22 / /proc rw - proc proc rw\n";
            let mount = format!("{proc}{}\n", mount.replace("ROOT", &root));
            machine.write("proc/self/mountinfo", &mount);
            machine
        }
    }

    impl Drop for FakeMachine {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn without_control_groups_the_machine_is_the_limit() {
        let machine = FakeMachine::new("no-groups");
        assert_eq!(machine.least(), (1 << 30, "this machine's 1024 MiB".into()));
    }

    #[test]
    fn without_proc_the_machine_is_the_limit() {
        let (bytes, source) = least(Path::new("/nowhere"));
        assert_eq!(Some(bytes), machine_memory().map(|bytes| bytes as usize));
        assert!(source.starts_with("this machine's "), "{source}");
        assert!(bytes > 1 << 24, "the machine has {bytes} bytes");
    }

    #[test]
    fn the_lowest_limit_of_a_group_and_its_ancestors_counts() {
        let mount = "30 1 0:26 / ROOT/cg rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        let machine = FakeMachine::of("second", "0::/a/b/c\n", mount);
        machine.write("cg/a/memory.max", "max\n");
        assert_eq!(machine.least().1, "this machine's 1024 MiB");
        machine.write("cg/a/b/c/memory.max", "734003200\n");
        assert_eq!(machine.least(), (734_003_200, "the 700 MiB of control group /a/b/c".into()));
        machine.write("cg/a/memory.max", "268435456\n");
        assert_eq!(machine.least(), (256 << 20, "the 256 MiB of control group /a".into()));
        machine.write("cg/a/b/memory.high", "20971520\n");
        assert_eq!(machine.least(), (20 << 20, "the 20 MiB of control group /a/b".into()));
    }

    #[test]
    fn version_one_is_read_where_memory_is_mounted() {
        let mount = "31 1 0:27 / ROOT/cpu rw - cgroup cgroup rw,cpu\n\
                     32 1 0:28 / ROOT/memory rw - cgroup cgroup rw,memory";
        let groups = "5:cpu:/x\n4:memory:/x/y\n0::/\n";
        let machine = FakeMachine::of("first", groups, mount);
        machine.write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        machine.write("memory/x/memory.limit_in_bytes", "104857600\n");
        machine.write("memory/x/y/memory.limit_in_bytes", "9223372036854771712\n");
        machine.write("cpu/x/memory.limit_in_bytes", "1\n");
        assert_eq!(machine.least(), (100 << 20, "the 100 MiB of control group /x".into()));
    }

    #[test]
    fn a_container_mount_begins_at_its_own_group() {
        let mount = "32 1 0:28 /docker/abc ROOT/memory ro - cgroup cgroup rw,memory";
        let machine = FakeMachine::of("container", "4:memory:/docker/abc\n", mount);
        machine.write("memory/memory.limit_in_bytes", "67108864\n");
        assert_eq!(machine.least(), (64 << 20, "the 64 MiB of control group /".into()));
    }

    #[test]
    fn this_process_has_a_limit() {
        let (bytes, source) = memory();
        assert!(bytes > 1 << 20, "{source}");
    }
}
