//! A folder that paths start from, and everything that can be done to a path.
#![allow(unsafe_code)]

use super::directories::Folder;
use super::file::{File, OpenFile};
use super::latency::{Class, Habitual};
use super::metadata::Metadata;
use super::open::OpenOptions;
use super::path::{CPath, CWD, about, with_c_path};
use super::perform::{Job, attempt, breathe, offload, perform};
use super::policy::Policy;
use super::read_dir::ReadDir;
use crate::runtime::core::Core;
use crate::runtime::current;
use annulus_kernel::file::{FileCall, FileStat, PathAt};
use rustix::fs::{AtFlags, OFlags};
use std::ffi::OsString;
use std::fmt;
use std::fs::Permissions;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The longest path there is.
const PATH_MAX: usize = 4096;

/// An open folder. Relative paths start from it, wherever it is moved to in the meantime; absolute ones ignore it.
///
/// The functions of [`fs`](super) are these methods on the working directory. Dropping a future of one may leave the thing
/// done or not done; nothing else is lost.
#[derive(Clone)]
pub struct Dir {
    core: Rc<Core>,
    /// `None` is the working directory.
    open: Option<Rc<OpenFile>>,
}

impl Dir {
    /// The working directory, as each call finds it.
    ///
    /// # Errors
    /// Outside a runtime.
    pub fn working() -> io::Result<Self> {
        Ok(Self { core: current::get()?, open: None })
    }

    /// Opens a folder.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PermissionDenied`, …; or outside a runtime.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::working()?.open_dir(path).await
    }

    /// Opens a folder in this one.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_dir(&self, path: impl AsRef<Path>) -> io::Result<Self> {
        self.open_folder(path.as_ref(), OFlags::empty()).await
    }

    /// Opens a file in this folder, as the options say.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub async fn open_file(
        &self,
        path: impl AsRef<Path>,
        options: &OpenOptions,
    ) -> io::Result<File> {
        options.open_in(self, path.as_ref()).await
    }

    /// What is known about a path; of what a symbolic link points to.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, ….
    pub async fn metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.stat(path.as_ref(), AtFlags::empty()).await
    }

    /// What is known about a path; of a symbolic link itself.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata).
    pub async fn symlink_metadata(&self, path: impl AsRef<Path>) -> io::Result<Metadata> {
        self.stat(path.as_ref(), AtFlags::SYMLINK_NOFOLLOW).await
    }

    /// Removes a file, or a symbolic link.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, ….
    pub async fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let remove = |at| FileCall::Remove { at, directory: false };
        self.change("removing", path.as_ref(), remove).await
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `DirectoryNotEmpty`, ….
    pub async fn remove_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let remove = |at| FileCall::Remove { at, directory: true };
        self.change("removing", path.as_ref(), remove).await
    }

    /// Removes a folder with everything in it. Symbolic links, the path's own too, are removed, not followed, whoever
    /// changes them meanwhile.
    ///
    /// # Errors
    /// The first that comes; part may be removed by then.
    pub async fn remove_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        match self.open_folder(path, OFlags::NOFOLLOW).await {
            Ok(root) => root.remove_content().await?,
            Err(error) => {
                let known = self.symlink_metadata(path).await;
                let is_link = known.is_ok_and(|known| known.is_symlink());
                return if is_link { self.remove_file(path).await } else { Err(error) };
            }
        }
        self.remove_dir(path).await
    }

    /// Makes a folder, with permissions 0o777 before the process's umask.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` where the folder it is to be in is missing, ….
    pub async fn create_dir(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.change("making the folder", path.as_ref(), |at| FileCall::MakeDir { at, mode: 0o777 })
            .await
    }

    /// Makes a folder, and those it is to be in. One that exists already is none of its errors.
    ///
    /// # Errors
    /// `AlreadyExists` where a file is in the way, ….
    pub async fn create_dir_all(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let mut missing = Vec::new();
        for folder in path.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
            match self.ensure_dir(folder).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(folder),
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        for folder in missing.into_iter().rev() {
            self.ensure_dir(folder).await?;
        }
        Ok(())
    }

    /// Makes a folder, unless it is there.
    async fn ensure_dir(&self, folder: &Path) -> io::Result<()> {
        match self.create_dir(folder).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let known = self.metadata(folder).await;
                if known.is_ok_and(|known| known.is_dir()) { Ok(()) } else { Err(error) }
            }
            outcome => outcome,
        }
    }

    /// Gives something another name in this folder; what had that name is replaced.
    ///
    /// # Errors
    /// `NotFound`, `CrossesDevices`, `IsADirectory`, ….
    pub async fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        self.rename_to(from, self, to).await
    }

    /// Moves something to another folder of the same device.
    ///
    /// # Errors
    /// As [`rename`](Self::rename).
    pub async fn rename_to(
        &self,
        from: impl AsRef<Path>,
        dir: &Dir,
        to: impl AsRef<Path>,
    ) -> io::Result<()> {
        let rename = |from, to| FileCall::Rename { from, to, flags: 0 };
        self.change_two("renaming", from.as_ref(), dir, to.as_ref(), rename).await
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `CrossesDevices`, ….
    pub async fn hard_link(
        &self,
        file: impl AsRef<Path>,
        link: impl AsRef<Path>,
    ) -> io::Result<()> {
        let linked = |from, to| FileCall::Link { from, to, flags: 0 };
        self.change_two("linking", file.as_ref(), self, link.as_ref(), linked).await
    }

    /// Makes a symbolic link that says `target`, whether or not there is such a thing.
    ///
    /// # Errors
    /// `AlreadyExists`, ….
    pub async fn symlink(
        &self,
        target: impl AsRef<Path>,
        link: impl AsRef<Path>,
    ) -> io::Result<()> {
        let linked = |target: PathAt, at| FileCall::Symlink { target: target.path, at };
        self.change_two("linking to", target.as_ref(), self, link.as_ref(), linked).await
    }

    /// What a symbolic link says.
    ///
    /// # Errors
    /// `InvalidInput` for what is no symbolic link, `NotFound`, ….
    pub async fn read_link(&self, path: impl AsRef<Path>) -> io::Result<PathBuf> {
        let path = path.as_ref();
        let room = vec![0u8; PATH_MAX];
        let read = |at, room: &mut Vec<u8>| FileCall::ReadLink {
            at,
            buffer: room.as_mut_ptr(),
            len: PATH_MAX as u32,
        };
        // SAFETY: the call writes to the vector's own memory.
        let (len, mut room) = unsafe { self.look("reading the link", path, room, read).await }?;
        room.truncate(len as usize);
        Ok(OsString::from_vec(room).into())
    }

    /// Changes permissions; of what a symbolic link points to.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, ….
    pub async fn set_permissions(
        &self,
        path: impl AsRef<Path>,
        permissions: Permissions,
    ) -> io::Result<()> {
        let mode = permissions.mode() & 0o7777;
        self.change("setting permissions of", path.as_ref(), |at| FileCall::SetMode { at, mode })
            .await
    }

    /// What is in a folder, entry by entry, in no order.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `PermissionDenied`, ….
    pub async fn read_dir(&self, path: impl AsRef<Path>) -> io::Result<ReadDir> {
        let path = path.as_ref();
        let dir = self.open_folder(path, OFlags::empty()).await?;
        Ok(ReadDir::new(dir, path.to_owned()))
    }

    /// Everything in an open folder goes. Deep trees take memory, not stack.
    async fn remove_content(self) -> io::Result<()> {
        let mut stack = vec![(ReadDir::new(self, PathBuf::new()), PathBuf::new())];
        while let Some((entries, _)) = stack.last_mut() {
            let Some(entry) = entries.next_entry().await? else {
                let (_, name) = stack.pop().expect("looked at just now");
                if let Some((parent, _)) = stack.last() {
                    parent.dir().remove_dir(&name).await?;
                }
                continue;
            };
            let name = PathBuf::from(entry.file_name());
            match entries.dir().remove_file(&name).await {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() != io::ErrorKind::IsADirectory => return Err(error),
                Err(_) => {
                    let folder = entries.dir().open_folder(&name, OFlags::NOFOLLOW).await?;
                    stack.push((ReadDir::new(folder, PathBuf::new()), name));
                }
            }
        }
        Ok(())
    }

    pub(super) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    pub(super) fn fd(&self) -> RawFd {
        self.open.as_ref().map_or(CWD, |open| open.fd())
    }

    pub(super) fn keep(&self) -> Option<Rc<OpenFile>> {
        self.open.clone()
    }

    async fn open_folder(&self, path: &Path, flags: OFlags) -> io::Result<Self> {
        let flags = flags | OFlags::DIRECTORY;
        let options = OpenOptions::new().read(true).custom_flags(flags.bits() as i32);
        let open = options.open_in(self, path).await?.open;
        Ok(Self { core: self.core.clone(), open: Some(open) })
    }

    async fn stat(&self, path: &Path, flags: AtFlags) -> io::Result<Metadata> {
        let look = |at, stat: &mut Box<FileStat>| FileCall::Stat {
            at,
            flags: flags.bits(),
            stat: &mut **stat,
        };
        // SAFETY: the call writes to the box's own memory.
        let looked = unsafe { self.look("looking at", path, Box::default(), look).await };
        looked.map(|(_, stat)| Metadata::new(*stat))
    }

    /// A call that only looks, and writes what it finds to memory of `kept`.
    ///
    /// # Safety
    /// Besides the path, the call must name memory of `kept`'s own only, which does not move with it.
    async unsafe fn look<K: Unpin + 'static>(
        &self,
        doing: &str,
        path: &Path,
        mut kept: K,
        call: impl Fn(PathAt, &mut K) -> FileCall,
    ) -> io::Result<(u32, K)> {
        let job = |call| self.job(Class::Look, path, call);
        breathe(&self.core, self.core.files.policy).await;
        let tried = with_c_path(path, |path| {
            let call = call(PathAt { dir: self.fd(), path }, &mut kept);
            // SAFETY: path and memory outlive the call.
            unsafe { attempt(&self.core, &job(call)) }
        })?;
        if let Some(answer) = tried {
            return answer.map(|found| (found, kept)).map_err(|e| about(doing, path, e));
        }
        let owned = CPath::new(path)?;
        let call = call(PathAt { dir: self.fd(), path: owned.as_ptr() }, &mut kept);
        let held = (kept, owned, self.keep());
        // SAFETY: the path is `held`'s own; for the rest the caller vouches.
        let (answer, (kept, _, _)) = unsafe { offload(&self.core, job(call), held).await };
        answer.map(|found| (found, kept)).map_err(|e| about(doing, path, e))
    }

    /// A call that changes something at a path.
    async fn change(
        &self,
        doing: &str,
        path: &Path,
        call: impl Fn(PathAt) -> FileCall,
    ) -> io::Result<()> {
        let owned = CPath::new(path)?;
        let call = call(PathAt { dir: self.fd(), path: owned.as_ptr() });
        let job = self.job(Class::Change, path, call);
        // SAFETY: the path is in memory of its own, which is kept.
        let (answer, _) = unsafe { perform(&self.core, job, (owned, self.keep())).await };
        answer.map(drop).map_err(|error| about(doing, path, error))
    }

    /// A call that changes something between two paths.
    async fn change_two(
        &self,
        doing: &str,
        from: &Path,
        dir: &Dir,
        to: &Path,
        call: impl Fn(PathAt, PathAt) -> FileCall,
    ) -> io::Result<()> {
        let (here, there) = (CPath::new(from)?, CPath::new(to)?);
        let first = PathAt { dir: self.fd(), path: here.as_ptr() };
        let second = PathAt { dir: dir.fd(), path: there.as_ptr() };
        let job = self.job(Class::Change, to, call(first, second));
        let held = (here, there, self.keep(), dir.keep());
        // SAFETY: the paths are in memory of their own, which is kept.
        let (answer, _) = unsafe { perform(&self.core, job, held).await };
        answer.map(drop).map_err(|error| about(doing, from, about("to", to, error)))
    }

    fn job(&self, class: Class, path: &Path, call: FileCall) -> Job {
        let device = Folder::of(self.fd(), path).device(&self.core).unwrap_or_default();
        let habit = Some(Habitual { device, class, bytes: 0 });
        Job { call, policy: self.policy(), habit }
    }

    fn policy(&self) -> Policy {
        self.core.files.policy
    }
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dir").field("fd", &self.fd()).finish()
    }
}
