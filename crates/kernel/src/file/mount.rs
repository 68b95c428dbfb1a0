//! Mounts, and which of them may keep a call waiting forever. The answers come from `/proc` and
//! from the kernel's memory, because a call to the file system itself, even `fstat` or `statfs`,
//! hangs if the file system does.
use crate::fd::Fd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Result;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::str::from_utf8;

/// Types of file systems that wait only for this machine's devices and memory. All other types may
/// wait for a server: another machine, as NFS does, or a process on this one, as FUSE does.
const LOCAL_FILE_SYSTEMS: &[&str] = &[
    "bcachefs",
    "binfmt_misc",
    "bpf",
    "btrfs",
    "cgroup",
    "cgroup2",
    "configfs",
    "cpuset",
    "cramfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "erofs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "fusectl",
    "hfs",
    "hfsplus",
    "hugetlbfs",
    "iso9660",
    "jffs2",
    "jfs",
    "minix",
    "mqueue",
    "msdos",
    "nilfs2",
    "nsfs",
    "ntfs",
    "ntfs3",
    "overlay",
    "proc",
    "pstore",
    "ramfs",
    "reiserfs",
    "resctrl",
    "romfs",
    "rootfs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "tracefs",
    "ubifs",
    "udf",
    "ufs",
    "vfat",
    "xfs",
    "xiafs",
    "zfs",
    "zonefs",
];

/// Maximum number of nested mounts followed along a path or up to the root.
const MAX_MOUNT_DEPTH: usize = 64;

/// A mount in this process's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The mount's ID in the namespace.
    pub id: u64,
    /// The device, with its major number in the upper half.
    pub device: u64,
    /// Whether calls on its files may wait for a server, because of its file system, a layer of an
    /// overlay, or a mount above it.
    pub may_hang: bool,
    /// Whether it is a proc file system, in which links of processes refer to files, not to paths.
    pub is_proc: bool,
    parent: u64,
    /// The absolute path of the directory or file that it covers, without symbolic links.
    pub point: Vec<u8>,
    /// The directories that an overlay consists of.
    layers: Vec<Vec<u8>>,
}

/// The mounts in this process's namespace, as `/proc/self/mountinfo` lists them.
#[derive(Debug)]
pub struct Mounts {
    list: File,
    mounts: Vec<Mount>,
}

impl Mounts {
    /// Reads the list.
    ///
    /// # Errors
    /// The system's error: `/proc` is missing, or the process is out of descriptors.
    pub fn read() -> io::Result<Self> {
        let mut mounts = Self { list: File::open("/proc/self/mountinfo")?, mounts: Vec::new() };
        mounts.read_again()?;
        Ok(mounts)
    }

    /// Reads the list again if mounts have changed since it was read. Returns true if so.
    ///
    /// # Errors
    /// The system's error.
    pub fn refresh(&mut self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.list, PollFlags::PRI)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        let changed = polled[0].revents().intersects(PollFlags::PRI | PollFlags::ERR);
        if changed {
            self.read_again()?;
        }
        Ok(changed)
    }

    fn read_again(&mut self) -> io::Result<()> {
        let mut text = Vec::with_capacity(16 * 1024);
        self.list.rewind()?;
        self.list.read_to_end(&mut text)?;
        self.mounts = parse(&text);
        Ok(())
    }

    /// Returns the mount with this ID.
    pub fn by_id(&self, id: u64) -> Option<&Mount> {
        by_id(&self.mounts, id)
    }

    /// Returns the mount of an absolute path that contains no symbolic links, `.` or `..`.
    pub fn at(&self, path: &[u8]) -> Option<&Mount> {
        at(&self.mounts, path)
    }

    /// Returns true if a mount that may hang covers an entry of this directory.
    pub fn may_hang_in(&self, dir: &[u8]) -> bool {
        let dir = dir.strip_suffix(b"/").unwrap_or(dir);
        self.mounts.iter().filter(|mount| mount.may_hang).any(|mount| {
            mount
                .point
                .strip_prefix(dir)
                .and_then(|name| name.strip_prefix(b"/"))
                .is_some_and(|name| !name.is_empty() && !name.contains(&b'/'))
        })
    }
}

fn by_id(mounts: &[Mount], id: u64) -> Option<&Mount> {
    mounts.iter().find(|mount| mount.id == id)
}

/// Follows a path from the root mount. Each step goes to the mount on the current mount that has
/// the shortest mount point containing the path, as the kernel's lookup does.
fn at<'a>(mounts: &'a [Mount], path: &[u8]) -> Option<&'a Mount> {
    let is_top = |mount: &Mount| mount.parent == mount.id || by_id(mounts, mount.parent).is_none();
    let is_root = |mount: &&Mount| mount.point == b"/" && is_top(mount);
    let mut found = mounts.iter().find(is_root)?;
    for _ in 0..MAX_MOUNT_DEPTH {
        let inside = mounts.iter().filter(|mount| {
            mount.parent == found.id && mount.id != found.id && is_within(path, &mount.point)
        });
        match inside.min_by_key(|mount| mount.point.len()) {
            Some(next) => found = next,
            None => return Some(found),
        }
    }
    None
}

fn is_within(path: &[u8], dir: &[u8]) -> bool {
    let dir = dir.strip_suffix(b"/").unwrap_or(dir);
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

fn parse(text: &[u8]) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = text.split(|byte| *byte == b'\n').filter_map(parse_line).collect();
    let by_layer: Vec<bool> =
        mounts.iter().map(|mount| has_hanging_layer(&mounts, mount)).collect();
    mounts.iter_mut().zip(by_layer).for_each(|(mount, hangs)| mount.may_hang |= hangs);
    let below: Vec<bool> = mounts.iter().map(|mount| is_below_hanging(&mounts, mount)).collect();
    mounts.iter_mut().zip(below).for_each(|(mount, hangs)| mount.may_hang |= hangs);
    mounts
}

/// Parses a line with these fields: mount ID, parent ID, device, root, mount point, options,
/// optional fields up to a dash, type, source, file system options.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let number = |field: &[u8]| from_utf8(field).ok()?.parse::<u64>().ok();
    let (id, parent) = (number(fields.next()?)?, number(fields.next()?)?);
    let (major, minor) = from_utf8(fields.next()?).ok()?.split_once(':')?;
    let device = major.parse::<u64>().ok()? << 32 | minor.parse::<u64>().ok()?;
    let point = unescaped(fields.nth(1)?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = fields.next()?;
    let may_hang = !LOCAL_FILE_SYSTEMS.iter().any(|local| local.as_bytes() == kind);
    let is_proc = kind == b"proc";
    let options = fields.nth(1).unwrap_or_default();
    let layers = if kind == b"overlay" { layers(&unescaped(options)) } else { Vec::new() };
    Some(Mount { id, device, may_hang, is_proc, parent, point, layers })
}

/// Returns the directories that an overlay consists of, if they are listed as absolute paths.
fn layers(options: &[u8]) -> Vec<Vec<u8>> {
    let names: [&[u8]; 4] = [b"lowerdir=", b"lowerdir+=", b"upperdir=", b"workdir="];
    let values = options
        .split(|byte| *byte == b',')
        .filter_map(|option| names.iter().find_map(|name| option.strip_prefix(*name)));
    let dirs = values.flat_map(|value| value.split(|byte| *byte == b':'));
    dirs.filter(|dir| dir.starts_with(b"/")).map(<[u8]>::to_vec).collect()
}

fn has_hanging_layer(mounts: &[Mount], overlay: &Mount) -> bool {
    overlay.layers.iter().any(|dir| at(mounts, dir).is_some_and(|mount| mount.may_hang))
}

fn is_below_hanging(mounts: &[Mount], mount: &Mount) -> bool {
    let mut above = mount;
    for _ in 0..MAX_MOUNT_DEPTH {
        match by_id(mounts, above.parent) {
            Some(parent) if parent.may_hang => return true,
            Some(parent) if parent.id != above.id => above = parent,
            _ => return false,
        }
    }
    true
}

/// Decodes the escapes of spaces and similar characters in a field: a backslash and three octal
/// digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| byte == b'\\').and_then(|code| from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(escaped) => {
                bytes.push(escaped);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    bytes
}

/// Returns the ID of the mount that an open file is on. Files on the kernel's own mounts, such as
/// pipes and sockets, have IDs that [`Mounts`] does not list.
///
/// # Errors
/// The system's error: `/proc` is missing, or the process is out of descriptors.
pub fn id_of(fd: impl AsFd) -> io::Result<u64> {
    let number = fd.as_fd().as_raw_fd();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    id.and_then(|id| id.trim().parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the path of an open file, without symbolic links. For a file without a path, such as a
/// pipe, returns text that does not start with a slash.
///
/// # Errors
/// Like [`id_of`].
pub fn path_of(fd: impl AsFd) -> io::Result<Vec<u8>> {
    let number = fd.as_fd().as_raw_fd();
    let path = std::fs::read_link(format!("/proc/self/fd/{number}"))?;
    Ok(path.into_os_string().into_vec())
}

/// Returns the path of the working directory.
///
/// # Errors
/// `NOENT` if it has been removed.
pub fn working_dir() -> Result<Vec<u8>> {
    rustix::process::getcwd(Vec::new()).map(CString::into_bytes)
}

/// Returns the target of a symbolic link.
///
/// # Errors
/// `INVAL` if the path is not a symbolic link; `NOENT`, `ACCES`, …
pub fn read_link(path: &[u8]) -> Result<Vec<u8>> {
    rustix::fs::readlink(path, Vec::new()).map(CString::into_bytes)
}

/// Looks up a directory in the kernel's memory only, without a call to a file system and without
/// following symbolic links. The path starts from an open directory, or from the working directory.
///
/// # Errors
/// `AGAIN` if it is not in memory; `LOOP` if the path contains a symbolic link; `NOENT`, `NOTDIR`,
/// …; `NOSYS`, `PERM`, `ACCES` and other errors where `openat2` is refused.
pub fn look_up(start: Option<Fd>, path: &CStr) -> Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::CACHED | ResolveFlags::NO_SYMLINKS;
    let start = start.map_or(CWD, Fd::borrow);
    rustix::fs::openat2(start, path, flags, Mode::empty(), resolve).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNT_LIST: &[u8] = b"\
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
22 21 0:21 / /proc rw - proc proc rw
23 21 0:30 / /mnt/share\\040one rw shared:5 master:1 - nfs4 host:/export rw,addr=10.0.0.1
24 23 0:31 / /mnt/share\\040one/tmp rw - tmpfs tmpfs rw
25 21 0:32 / /merged rw - overlay overlay rw,lowerdir=/mnt/share\\040one/a:/usr,upperdir=/u,workdir=/w
26 21 0:33 / /plain rw - overlay overlay rw,lowerdir=/usr:l/ABC,upperdir=/u,workdir=/w
27 21 0:34 / /hidden/below rw - fuse.sshfs host: rw
28 21 0:35 / /hidden rw - tmpfs tmpfs rw
29 22 0:36 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw
30 28 0:37 / /hidden rw - xfs /dev/vdb rw
31 22 0:38 /cpuinfo /proc/cpuinfo rw - fuse.lxcfs lxcfs rw
";

    fn mounts() -> Mounts {
        Mounts { list: File::open("/dev/null").unwrap(), mounts: parse(MOUNT_LIST) }
    }

    #[test]
    fn a_path_is_on_the_mount_where_its_lookup_ends() {
        let mounts = mounts();
        for (path, id) in [
            ("/", 21),
            ("/procs", 21),
            ("/proc/self", 22),
            ("/mnt/share", 21),
            ("/mnt/share one", 23),
            ("/mnt/share one/dir", 23),
            ("/mnt/share one/tmp/dir", 24),
            ("/hidden/below/dir", 30),
        ] {
            assert_eq!(mounts.at(path.as_bytes()).map(|mount| mount.id), Some(id), "{path}");
        }
        assert_eq!(mounts.by_id(23).map(|mount| mount.device), Some(30));
    }

    #[test]
    fn server_mounts_and_mounts_on_or_below_them_may_hang() {
        let mounts = mounts();
        let hanging = mounts.mounts.iter().filter(|mount| mount.may_hang).map(|mount| mount.id);
        assert_eq!(hanging.collect::<Vec<_>>(), [23, 24, 25, 27, 29, 31]);
        for (dir, hangs) in
            [("/mnt", true), ("/mnt/", true), ("/", true), ("/proc", true), ("/proc/sys", false)]
        {
            assert_eq!(mounts.may_hang_in(dir.as_bytes()), hangs, "{dir}");
        }
    }

    #[test]
    fn open_files_are_found_on_the_mounts_of_this_process() {
        let mut mounts = Mounts::read().unwrap();
        assert!(!mounts.refresh().unwrap(), "the list changed although nothing was mounted");
        let file = File::open("/proc/self/stat").unwrap();
        let fd = &file;
        let mount = mounts.by_id(id_of(fd).unwrap()).expect("the mount of /proc is not listed");
        assert!(!mount.may_hang && mount.point == b"/proc", "{mount:?}");
        assert_eq!(mounts.at(&path_of(fd).unwrap()), Some(mount));
        let (pipe, _writer) = io::pipe().unwrap();
        let fd = &pipe;
        assert_eq!(mounts.by_id(id_of(fd).unwrap()), None);
        assert!(path_of(fd).unwrap().starts_with(b"pipe:"));
    }
}
