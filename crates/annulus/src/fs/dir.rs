//! Directories: creating them, and the calls on paths that start from them.

use super::call::CallSite;
use super::file::File;
use super::metadata::{Metadata, Stat};
use super::open::OpenOptions;
use super::open_file::OpenFile;
use super::path::{
    CWD, Change, ChangeTwo, PathChange, ReadLink, TwoPathChange, about, about_two, c_path,
    with_c_path,
};
use super::read_dir::ReadDir;
use crate::bytes::thread_bound::stays;
use crate::errors::raw_os_error;
use crate::file_policy::{CallKind, Class};
use crate::runtime::core::Core;
use crate::runtime::current;
use crate::tasks::consume_budget;
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::{fmt, io};

/// Maximum number of times that an entry may change from a directory to something else while it is
/// being removed.
const MAX_REPLACEMENTS: u32 = 16;
/// Maximum number of further passes over the entries of a directory that is not empty after a pass
/// that has removed entries.
const MAX_PASSES: u32 = 16;
/// Maximum length of a path in bytes, including the terminating zero.
const PATH_MAX: usize = 4096;

/// An open directory. Relative paths start from it, even after it has been moved; absolute paths
/// ignore it.
///
/// Most functions of [`fs`](super) call a method of this type on the working directory. If the
/// future of a method is dropped, its call may or may not take place.
///
/// ```
/// use annulus::fs::{self, Dir, OpenOptions};
///
/// # annulus::run(async {
/// # let root = std::env::temp_dir().join(format!("annulus-dir-{}", std::process::id()));
/// fs::create_dir(&root).await?;
/// let dir = Dir::open(&root).await?;
/// dir.create_dir_all("a/b").await?;
/// let file = dir.open_file("a/b/new", &OpenOptions::new().write(true).create(true)).await?;
/// file.write_all_at("content", 0).await.0?;
/// dir.rename("a/b/new", "current").await?; // In one step: others see the old file or the new one.
/// assert_eq!(dir.metadata("current").await?.len(), 7);
/// fs::remove_dir_all(&root).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Dir {
    core: Rc<Core>,
    /// `None` means the working directory.
    pub(super) open: Option<Rc<OpenFile>>,
}

stays!(Send Dir Sync Dir);

impl Dir {
    /// Returns a handle for the working directory, which each call looks up again.
    ///
    /// # Errors
    /// Outside a runtime.
    pub fn working() -> io::Result<Self> {
        Ok(Self { core: current::get()?, open: None })
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PermissionDenied`, or another error of the system. Also fails
    /// outside a runtime.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::working()?.open_dir(path).await
    }

    /// Opens a directory by a path that starts from this directory.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub async fn open_dir(&self, path: impl AsRef<Path>) -> io::Result<Self> {
        self.open_with(path.as_ref(), OFlags::empty()).await
    }

    /// Opens a file in this directory with these options.
    ///
    /// # Errors
    /// The errors of [`OpenOptions::open`].
    pub async fn open_file(
        &self,
        path: impl AsRef<Path>,
        options: &OpenOptions,
    ) -> io::Result<File> {
        options.open_in(self, path.as_ref()).await
    }

    /// Returns the metadata of a path. For a symbolic link, this is the metadata of its target.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, ….
    pub async fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.stat(path.as_ref(), AtFlags::empty()).await
    }

    /// Returns the metadata of a path. For a symbolic link, this is the metadata of the link
    /// itself. If the path ends with a slash, the system follows the link.
    ///
    /// # Errors
    /// The errors of [`metadata`](Self::metadata).
    pub async fn symlink_metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.stat(path.as_ref(), AtFlags::SYMLINK_NOFOLLOW).await
    }

    /// Returns true if something exists at a path. Symbolic links are followed.
    ///
    /// # Errors
    /// `PermissionDenied`, …, if this cannot be determined.
    pub async fn try_exists(&self, path: impl AsRef<Path>) -> io::Result<bool> {
        match self.metadata(path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            known => known.map(|_| true),
        }
    }

    /// Removes a file or a symbolic link.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, ….
    pub async fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        self.change("removing", path, path, PathChange::Remove { directory: false }).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `DirectoryNotEmpty`, ….
    pub async fn remove_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        self.change("removing", path, path, PathChange::Remove { directory: true }).await
    }

    /// Removes a directory with everything in it. Symbolic links, including the path itself, are
    /// removed and not followed, even if other processes change them in the meantime. Entries that
    /// others remove at the same time count as removed, and entries that they add are removed too,
    /// unless they keep adding some. The removal holds a descriptor per level, so it fails for trees
    /// deeper than the process's descriptor limit.
    ///
    /// Slashes and `/.` at the end of the path are ignored, because with them the system would
    /// follow a link: `link/` removes the link.
    ///
    /// # Errors
    /// `NotFound` if nothing existed at the path; otherwise the first error, with the path of the
    /// entry. Part of the tree may then have been removed already.
    pub async fn remove_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        // Components have neither slashes nor `.` at the end.
        let path = path.as_ref().components().as_path();
        match self.open_with(path, OFlags::NOFOLLOW).await {
            Ok(root) => self.remove_tree(path, root).await,
            Err(error) => {
                let known = self.symlink_metadata(path).await;
                let is_link = known.is_ok_and(|known| known.is_symlink());
                if is_link { gone(self.remove_file(path).await) } else { Err(error) }
            }
        }
    }

    /// Creates a directory with permissions 0o777 before the process's umask is applied.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` if its parent is missing, ….
    pub async fn create_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.make_dir(path.as_ref(), 0o777).await
    }

    pub(super) async fn make_dir(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.change("creating the directory", path, path, PathChange::MakeDir { mode }).await
    }

    /// Creates a directory and its missing parents. An existing directory is not an error.
    ///
    /// # Errors
    /// `AlreadyExists` if a file is in the way, ….
    pub async fn create_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.make_dirs(path.as_ref(), 0o777).await
    }

    pub(super) async fn make_dirs(&self, path: &Path, mode: u32) -> io::Result<()> {
        consume_budget().await;
        let mut missing = Vec::new();
        for dir in path.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
            match self.ensure_dir(dir, mode).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(dir),
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        for dir in missing.into_iter().rev() {
            self.ensure_dir(dir, mode).await?;
        }
        Ok(())
    }

    /// Creates a directory unless it exists.
    async fn ensure_dir(&self, dir: &Path, mode: u32) -> io::Result<()> {
        match self.make_dir(dir, mode).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let known = self.metadata(dir).await;
                if known.is_ok_and(|known| known.is_dir()) { Ok(()) } else { Err(error) }
            }
            outcome => outcome,
        }
    }

    /// Renames an entry of this directory. An existing entry with the new name is replaced.
    ///
    /// # Errors
    /// `NotFound`, `CrossesDevices`, `IsADirectory`, ….
    pub async fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        self.rename_to(from, self, to).await
    }

    /// Moves an entry to another directory on the same device.
    ///
    /// # Errors
    /// The errors of [`rename`](Self::rename).
    pub async fn rename_to(
        &self,
        from: impl AsRef<Path>,
        dir: &Dir,
        to: impl AsRef<Path>,
    ) -> io::Result<()> {
        self.change_two(from.as_ref(), dir, to.as_ref(), TwoPathChange::Rename).await
    }

    /// Creates a hard link to a file.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `CrossesDevices`, ….
    pub async fn hard_link(
        &self,
        file: impl AsRef<Path>,
        link: impl AsRef<Path>,
    ) -> io::Result<()> {
        self.change_two(file.as_ref(), self, link.as_ref(), TwoPathChange::Link).await
    }

    /// Creates a symbolic link to `target`, which need not exist.
    ///
    /// # Errors
    /// `AlreadyExists`, ….
    pub async fn symlink(
        &self,
        target: impl AsRef<Path>,
        link: impl AsRef<Path>,
    ) -> io::Result<()> {
        self.change_two(target.as_ref(), self, link.as_ref(), TwoPathChange::Symlink).await
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// `InvalidInput` if the path is not a symbolic link, `NotFound`, …. With a slash at its end, a
    /// path refers to the target of the link, so it is never a symbolic link.
    pub async fn read_link(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = path.as_ref();
        consume_budget().await;
        let args = ReadLink { path: c_path(path)?, target: vec![0; PATH_MAX] };
        let (answer, args) = self.site_at(Class::Query, path).await.make(args).await;
        let len = answer.map_err(|error| about("reading the link", path, error))?;
        let mut target = args.target;
        target.truncate(len as usize);
        Ok(OsString::from_vec(target).into())
    }

    /// Changes permissions. Symbolic links are followed.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, ….
    pub async fn set_permissions(
        &self,
        path: impl AsRef<Path>,
        permissions: Permissions,
    ) -> io::Result<()> {
        let (path, mode) = (path.as_ref(), permissions.mode() & 0o7777);
        self.change("setting permissions of", path, path, PathChange::SetMode { mode }).await
    }

    /// Returns the entries of a directory, in no particular order.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PermissionDenied`, ….
    pub async fn read_dir(&self, path: impl AsRef<Path>) -> io::Result<ReadDir> {
        let path = path.as_ref();
        let dir = self.open_with(path, OFlags::empty()).await?;
        Ok(ReadDir::new(dir, path.to_owned()))
    }

    /// Removes the directory at a path, which is open, with everything in it. Not recursive, so
    /// that deep trees do not overflow the stack. Other processes may add, remove or replace
    /// entries at any time.
    async fn remove_tree(&self, path: &Path, root: Self) -> io::Result<()> {
        let mut stack = vec![Level::new(root, path.to_owned(), path.to_owned())];
        while let Some(level) = stack.last_mut() {
            if let Some(entry) = level.entries.next_entry().await? {
                level.has_removed = true;
                let (name, shown) = (PathBuf::from(entry.file_name()), entry.path());
                if let Some(dir) = level.entries.dir().remove_or_open(&name, &shown).await? {
                    stack.push(Level::new(dir, name, shown));
                }
                continue;
            }
            let Level { entries, name, has_removed, passes } =
                stack.pop().expect("the stack of directories is empty");
            let (parent, shown) =
                (stack.last().map_or(self, |parent| parent.entries.dir()), entries.into_path());
            let what = PathChange::Remove { directory: true };
            match gone(parent.change("removing", &name, &shown, what).await) {
                // Entries have been added since, or the file system has left some out: those with
                // numbered entries do, because the removal of one renumbers the others.
                Err(error) if is_not_empty(&error) && has_removed && passes < MAX_PASSES => {
                    if let Some(dir) = parent.remove_or_open(&name, &shown).await? {
                        let passes = passes + 1;
                        stack.push(Level { passes, ..Level::new(dir, name, shown) });
                    }
                }
                removed => removed?,
            }
        }
        Ok(())
    }

    /// Removes an entry, or opens it if it is a directory. Errors show the path `shown`.
    async fn remove_or_open(&self, name: &Path, shown: &Path) -> io::Result<Option<Self>> {
        let mut tries = MAX_REPLACEMENTS;
        loop {
            let what = PathChange::Remove { directory: false };
            match gone(self.change("removing", name, shown, what).await) {
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
                removed => return removed.map(|()| None),
            }
            match self.open_shown(name, shown, OFlags::NOFOLLOW).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                // A file or a symbolic link has replaced the directory.
                Err(error) if is_no_directory(&error) && tries > 0 => tries -= 1,
                opened => return opened.map(Some),
            }
        }
    }

    pub(super) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    fn fd(&self) -> RawFd {
        self.open.as_ref().map_or(CWD, |open| open.fd())
    }

    /// Returns the call site of a call on the directory or on paths that start from it.
    pub(super) fn site(&self, kind: Option<CallKind>) -> CallSite<'_> {
        let (core, open) = (&self.core, self.open.as_ref());
        let policy = core.inline_policy.default;
        let group = open.and_then(|open| open.group);
        CallSite { core, open, policy, kind, predictable: None, at_cursor: false, group }
    }

    /// Returns the call site of a call on a path. Finds out whether the call may hang.
    async fn site_at(&self, class: Class, path: &Path) -> CallSite<'_> {
        let place = self.locate(path).await;
        let kind = CallKind { device: place.device(), class, bytes: 0 };
        CallSite { group: place.group(), ..self.site(Some(kind)) }
    }

    async fn open_with(&self, path: &Path, flags: OFlags) -> io::Result<Self> {
        self.open_shown(path, path, flags).await
    }

    /// Opens a directory. Errors show the path `shown`.
    async fn open_shown(&self, path: &Path, shown: &Path, flags: OFlags) -> io::Result<Self> {
        let flags = flags | OFlags::DIRECTORY;
        let options = OpenOptions::new().read(true).custom_flags(flags.bits() as i32);
        let opened = options.try_open_in(self, path).await;
        let open = opened.map_err(|error| options.wrong(shown, error))?.open;
        Ok(Self { core: self.core.clone(), open: Some(open) })
    }

    async fn stat(&self, path: &Path, flags: AtFlags) -> io::Result<Metadata> {
        let wrong = |error| about("reading the metadata of", path, error);
        let mut site = self.site_at(Class::Query, path).await;
        site.wait_for_budget().await;
        // The first attempt does not follow a symbolic link, because it may lead to a file system
        // that hangs. A call with a group may follow it, because such a call never runs on the loop
        // or the ring.
        let is_apart = site.group.is_some() || !self.is_real();
        let first = if is_apart { flags } else { flags | AtFlags::SYMLINK_NOFOLLOW };
        match stat(site, path, first).await {
            Ok(known) if first != flags && known.is_symlink() => {
                site.group = self.locate_behind(path).group();
                stat(site, path, flags).await
            }
            known => known,
        }
        .map_err(wrong)
    }

    /// Changes the entry at a path. Errors show the path `shown`.
    async fn change(
        &self,
        doing: &str,
        path: &Path,
        shown: &Path,
        what: PathChange,
    ) -> io::Result<()> {
        consume_budget().await;
        let args = Change { path: c_path(path)?, what };
        let mut site = self.site_at(Class::Modify, path).await;
        // Only `SetMode` follows links, and a link may lead to a file system that hangs.
        if matches!(what, PathChange::SetMode { .. }) && site.group.is_none() && self.is_real() {
            site.group = self.locate_behind(path).group();
        }
        let (answer, _) = site.make(args).await;
        answer.map(drop).map_err(|error| about(doing, shown, error))
    }

    async fn change_two(
        &self,
        from: &Path,
        dir: &Dir,
        to: &Path,
        what: TwoPathChange,
    ) -> io::Result<()> {
        consume_budget().await;
        let args = ChangeTwo { from: c_path(from)?, dir: dir.open.clone(), to: c_path(to)?, what };
        // The target of a symbolic link is only text.
        let other = match what {
            TwoPathChange::Symlink => None,
            TwoPathChange::Rename | TwoPathChange::Link => self.locate(from).await.group(),
        };
        let place = dir.locate(to).await;
        let kind = CallKind { device: place.device(), class: Class::Modify, bytes: 0 };
        let site = CallSite { group: place.group().or(other), ..self.site(Some(kind)) };
        let (answer, _) = site.make(args).await;
        answer.map(drop).map_err(|error| about_two(what.words(), from, to, error))
    }
}

/// A directory whose content is being removed.
struct Level {
    entries: ReadDir,
    /// The name in the parent directory, or the path of the root.
    name: PathBuf,
    /// Whether this pass over the entries has found any.
    has_removed: bool,
    /// Number of earlier passes.
    passes: u32,
}

impl Level {
    fn new(dir: Dir, name: PathBuf, shown: PathBuf) -> Self {
        Self { entries: ReadDir::new(dir, shown), name, has_removed: false, passes: 0 }
    }
}

fn is_not_empty(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::DirectoryNotEmpty
}

/// Treats `NotFound` as success, because another process may have removed the entry.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Returns true if an open failed because the path was not a directory. For a symbolic link, some
/// kernels return `ELOOP`.
fn is_no_directory(error: &io::Error) -> bool {
    let codes = [Errno::NOTDIR, Errno::LOOP].map(Errno::raw_os_error);
    raw_os_error(error).is_some_and(|code| codes.contains(&code))
}

async fn stat(site: CallSite<'_>, path: &Path, flags: AtFlags) -> io::Result<Metadata> {
    let flags = flags.bits();
    let tried = with_c_path(path, |path| {
        let mut args = Stat { path: path.into(), flags, stat: Box::default() };
        site.try_inline(&mut args).map(|answer| answer.map(|_| Metadata::new(*args.stat)))
    })?;
    if let Some(answer) = tried {
        return answer;
    }
    let args = Stat { path: c_path(path)?.into(), flags, stat: Box::default() };
    let (answer, Stat { stat, .. }) = site.offload(args).await;
    answer.map(|_| Metadata::new(*stat))
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dir").field("fd", &self.fd()).finish()
    }
}

/// Options for creating directories.
///
/// ```
/// use annulus::fs::{self, DirBuilder};
///
/// # annulus::run(async {
/// # let root = std::env::temp_dir().join(format!("annulus-builder-{}", std::process::id()));
/// DirBuilder::new().recursive(true).mode(0o700).create(root.join("a/b")).await?;
/// assert!(fs::try_exists(root.join("a/b")).await?);
/// # fs::remove_dir_all(&root).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct DirBuilder {
    mode: u32,
    recursive: bool,
}

impl Default for DirBuilder {
    fn default() -> Self {
        Self { mode: 0o777, recursive: false }
    }
}

impl DirBuilder {
    /// Returns options for a single directory with permissions 0o777.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also creates missing parents, and accepts an existing directory. Off by default.
    pub fn recursive(mut self, on: bool) -> Self {
        self.recursive = on;
        self
    }

    /// Sets the permissions of created directories, before the process's umask is applied.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Creates the directory. A relative path starts from the working directory.
    ///
    /// # Errors
    /// The errors of [`Dir::create_dir`] and [`Dir::create_dir_all`]. Also fails outside a runtime.
    pub async fn create(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let (dir, path) = (Dir::working()?, path.as_ref());
        if self.recursive {
            dir.make_dirs(path, self.mode).await
        } else {
            dir.make_dir(path, self.mode).await
        }
    }
}
