//! Opens files, and determines where calls on a path are made, without asking a file system that
//! may hang.
#![allow(unsafe_code)]

use super::call::{CallArgs, CallSite, Plain};
use super::dir::Dir;
use super::file::File;
use super::open_file::OpenFile;
use super::path::{about, c_path, with_c_path};
use crate::errors::with_text;
use crate::file_policy::{CallKind, Class, DeviceId, PathEntry, Place, Policy, Start};
use annulus_kernel::Fd;
use annulus_kernel::file::{FileCall, OpenHow, PathAt};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::borrow::{Borrow, Cow};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// Flags that [`custom_flags`](OpenOptions::custom_flags) ignores, because other methods set them.
const NAMED_FLAGS: OFlags = OFlags::ACCMODE
    .union(OFlags::APPEND)
    .union(OFlags::TRUNC)
    .union(OFlags::CREATE)
    .union(OFlags::DIRECT);

/// Options for opening a file, like [`std::fs::OpenOptions`], with additional options such as
/// direct I/O.
///
/// ```
/// use annulus::fs::OpenOptions;
/// use std::io::ErrorKind;
///
/// # annulus::run(async {
/// # let path = std::env::temp_dir().join(format!("annulus-open-{}", std::process::id()));
/// let new = OpenOptions::new().write(true).create_new(true).mode(0o600);
/// let file = new.open(&path).await?;
/// file.write_all_at("1234", 0).await.0?;
/// assert_eq!(new.open(&path).await.unwrap_err().kind(), ErrorKind::AlreadyExists);
///
/// let mut log = OpenOptions::new().append(true).open(&path).await?;
/// log.write_all("5").await.0?; // After the existing bytes.
/// assert_eq!(log.metadata().await?.len(), 5);
/// # annulus::fs::remove_file(&path).await?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    direct: bool,
    beneath: bool,
    mode: u32,
    flags: i32,
    policy: Option<Policy>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Returns options that are all off. Turn on at least [`read`](Self::read),
    /// [`write`](Self::write) or [`append`](Self::append).
    pub fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            direct: false,
            beneath: false,
            mode: 0o666,
            flags: 0,
            policy: None,
        }
    }

    /// Opens the file for reading.
    pub fn read(mut self, on: bool) -> Self {
        self.read = on;
        self
    }

    /// Opens the file for writing.
    pub fn write(mut self, on: bool) -> Self {
        self.write = on;
        self
    }

    /// Makes each write go to the current end of the file.
    pub fn append(mut self, on: bool) -> Self {
        self.append = on;
        self
    }

    /// Truncates the file to a length of 0.
    pub fn truncate(mut self, on: bool) -> Self {
        self.truncate = on;
        self
    }

    /// Creates the file if it does not exist.
    pub fn create(mut self, on: bool) -> Self {
        self.create = on;
        self
    }

    /// Creates the file, and fails with `AlreadyExists` if it exists.
    pub fn create_new(mut self, on: bool) -> Self {
        self.create_new = on;
        self
    }

    /// Makes reads and writes bypass the page cache (`O_DIRECT`). Memory, offsets and lengths must
    /// then be aligned: see [`File::alignment`] and [`AlignedBuf`](super::AlignedBuf).
    pub fn direct(mut self, on: bool) -> Self {
        self.direct = on;
        self
    }

    /// Forbids paths that lead out of the directory that they start from (`RESOLVE_BENEATH`),
    /// whether by their text (`..`, or absolute paths) or by symbolic links, even if those change
    /// in the meantime. The open then fails with `PermissionDenied`. Use this with
    /// [`Dir::open_file`] for paths that clients send.
    ///
    /// The option needs the system call `openat2` of Linux 5.6. The open fails with `Unsupported`
    /// on an older kernel, and with `PermissionDenied` in a container whose profile forbids the
    /// call. In these cases, check the text of the path, and open it without this option.
    ///
    /// ```
    /// use annulus::fs::{self, Dir, OpenOptions};
    /// use std::io::ErrorKind;
    ///
    /// # annulus::run(async {
    /// # let root = std::env::temp_dir().join(format!("annulus-beneath-{}", std::process::id()));
    /// fs::create_dir_all(root.join("public/a")).await?;
    /// fs::write(root.join("public/a/page"), "text").await?;
    /// fs::write(root.join("secret"), "text").await?;
    /// let public = Dir::open(root.join("public")).await?;
    /// let options = OpenOptions::new().read(true).beneath(true);
    /// assert!(public.open_file("a/../a/page", &options).await.is_ok());
    /// let error = public.open_file("../secret", &options).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    /// # fs::remove_dir_all(&root).await?;
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    pub fn beneath(mut self, on: bool) -> Self {
        self.beneath = on;
        self
    }

    /// Sets the permissions of a created file before the process's umask is applied. The default is
    /// 0o666.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Sets further `O_*` flags. Flags that other methods set, such as `O_APPEND`, are ignored.
    pub fn custom_flags(mut self, flags: i32) -> Self {
        self.flags = flags;
        self
    }

    /// Sets the policy for calls on this file. The default is the runtime's policy.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Opens a file.
    ///
    /// A named pipe is opened without waiting for its other end. Opening it for writing fails if no
    /// process reads it.
    ///
    /// Cancel-safe: if the future is dropped, the file may still be created or truncated, and its
    /// descriptor is closed.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, `AlreadyExists`, …, with the path in the message;
    /// `InvalidInput` for options that contradict each other or a path with a zero byte; or outside
    /// a runtime.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_in(&Dir::working()?, path.as_ref()).await
    }

    pub(super) async fn open_in(&self, start: &Dir, path: &Path) -> io::Result<File> {
        self.try_open_in(start, path).await.map_err(|error| self.wrong(path, error))
    }

    /// Like [`open_in`](Self::open_in), but returns the system's errors without the path, which
    /// [`wrong`](Self::wrong) can add.
    pub(super) async fn try_open_in(&self, start: &Dir, path: &Path) -> io::Result<File> {
        let core = start.core();
        let how = OpenHow { flags: self.o_flags()?, ..self.how() };
        let policy = self.policy.unwrap_or(core.inline_policy.default);
        let place = start.locate(path).await;
        let kind = CallKind { device: place.device(), class: self.class(), bytes: 0 };
        let site = CallSite { policy, group: place.group(), ..start.site(Some(kind)) };
        site.wait_for_budget().await;
        // The first attempt does not follow a symbolic link, because it may lead to a file system
        // that hangs. A call with a group may follow it, because such a call never runs on the loop
        // or the ring.
        let is_apart = site.group.is_some() || !start.is_real();
        let first = if is_apart { how } else { without_link(how) };
        let (fd, place) = match open_at(site, path, first).await {
            Ok(fd) if site.group.is_some() => (fd, core.inline_policy.place_of_file(fd)),
            Err(error) if first != how && may_be_link(&error, how) => {
                let place = start.locate_behind(path);
                let site = CallSite { group: place.group(), ..site };
                let fd = open_patiently(site, start.unknown_group(path), path, how).await?;
                (fd, core.inline_policy.place_of_file(fd))
            }
            Err(error) if is_leased(&error, how) => {
                (open_patiently(site, start.unknown_group(path), path, how).await?, place)
            }
            opened => (opened?, place),
        };
        let open = OpenFile::new(core.clone(), fd, place.group());
        if how.may_wait() {
            let flags = how.flags as u32;
            let clear = move |fd| FileCall::SetFlags { fd, flags };
            CallSite { open: Some(&open), ..site }.system_call(&mut Plain(clear))?;
        }
        let device = start.learn_simulated(path, &open).unwrap_or(place.device());
        Ok(File::new(open, device, OFlags::from_bits_retain(how.flags as u32), policy))
    }

    /// Adds the path to an error, and to some errors an explanation or a remedy.
    pub(super) fn wrong(&self, path: &Path, error: io::Error) -> io::Error {
        let error = if self.beneath { explain_beneath(error) } else { error };
        let remedy = match Errno::from_io_error(&error) {
            Some(Errno::INVAL) if self.direct => {
                "the file system may have no direct I/O: open the file without `direct`"
            }
            Some(Errno::ROFS) => "the file system is mounted read-only",
            Some(Errno::NXIO) => {
                "it is a pipe that no process reads, a socket, or a device that does not exist"
            }
            _ => return about("opening", path, error),
        };
        let text = format!("{error}; {remedy}");
        about("opening", path, with_text(error, text))
    }

    fn how(&self) -> OpenHow {
        // The kernel refuses a mode for an open that does not create a file.
        let makes = self.create || self.create_new || self.has_flags(OFlags::TMPFILE);
        OpenHow {
            flags: 0,
            mode: if makes { u64::from(self.mode & 0o7777) } else { 0 },
            resolve: if self.beneath { OpenHow::BENEATH } else { 0 },
        }
    }

    fn has_flags(&self, flags: OFlags) -> bool {
        OFlags::from_bits_retain(self.flags as u32).contains(flags)
    }

    fn class(&self) -> Class {
        if self.create || self.create_new || self.truncate || self.has_flags(OFlags::TMPFILE) {
            Class::Create
        } else {
            Class::Open
        }
    }

    fn o_flags(&self) -> io::Result<u64> {
        let access = match (self.read, self.write || self.append) {
            (true, false) => OFlags::RDONLY,
            (false, true) => OFlags::WRONLY,
            (true, true) => OFlags::RDWR,
            (false, false) => {
                return Err(contradiction("no access mode is set; set read, write or append"));
            }
        };
        if !(self.write || self.append) && (self.create || self.create_new || self.truncate) {
            return Err(contradiction("creating or truncating a file needs write or append"));
        }
        if self.append && self.truncate && !self.create_new {
            return Err(contradiction("append and truncate cannot be combined"));
        }
        let on = |on: bool, flag: OFlags| if on { flag } else { OFlags::empty() };
        let flags = access
            | on(self.append, OFlags::APPEND)
            | on(self.truncate && !self.create_new, OFlags::TRUNC)
            | on(self.create || self.create_new, OFlags::CREATE)
            | on(self.create_new, OFlags::EXCL)
            | on(self.direct, OFlags::DIRECT)
            | OFlags::from_bits_retain(self.flags as u32).difference(NAMED_FLAGS)
            | OFlags::CLOEXEC;
        Ok(u64::from(flags.bits()))
    }
}

/// The arguments of an open, with borrowed or boxed options.
pub(super) struct OpenArgs<'a, H> {
    pub(super) path: Cow<'a, CStr>,
    pub(super) how: H,
}

impl<H: Borrow<OpenHow>> OpenArgs<'_, H> {
    fn open(&self, dir: RawFd) -> FileCall {
        FileCall::Open { at: PathAt { dir, path: self.path.as_ptr() }, how: self.how.borrow() }
    }
}

// SAFETY: the path is borrowed or on the heap, and the options are borrowed, so neither moves with
// `self`.
unsafe impl CallArgs for OpenArgs<'_, &OpenHow> {
    fn call(&mut self, dir: RawFd) -> FileCall {
        self.open(dir)
    }
}

// SAFETY: the path is borrowed or on the heap, and the options are in a box, so neither moves with
// `self`.
unsafe impl CallArgs for OpenArgs<'_, Box<OpenHow>> {
    fn call(&mut self, dir: RawFd) -> FileCall {
        self.open(dir)
    }
}

/// Returns the same options, except that the open fails for a symbolic link. Options with `O_PATH`
/// are returned unchanged, because the kernel would open the link itself.
fn without_link(how: OpenHow) -> OpenHow {
    let flags = OFlags::from_bits_retain(how.flags as u32);
    let more = if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NOFOLLOW };
    OpenHow { flags: u64::from((flags | more).bits()), ..how }
}

/// Returns true if an open may have failed because of a symbolic link that it should follow.
fn may_be_link(error: &io::Error, how: OpenHow) -> bool {
    let flags = OFlags::from_bits_retain(how.flags as u32);
    !flags.contains(OFlags::NOFOLLOW)
        && match Errno::from_io_error(error) {
            Some(Errno::LOOP) => true,
            Some(Errno::NOTDIR) => flags.contains(OFlags::DIRECTORY),
            _ => false,
        }
}

/// Returns true if an open failed because another process holds a lease on the file
/// (`F_SETLEASE`). The open succeeds only after that process has released the lease, which may take
/// any amount of time.
fn is_leased(error: &io::Error, how: OpenHow) -> bool {
    error.kind() == io::ErrorKind::WouldBlock && how.may_wait()
}

/// Opens a path on the loop or off it, without waiting for the other end of a named pipe. If a path
/// is not in memory, the ring opens it on a kernel thread, which could wait for the other end
/// forever. So the file is opened with `O_NONBLOCK`, and the caller clears that flag afterwards.
async fn open_at(site: CallSite<'_>, path: &Path, how: OpenHow) -> io::Result<Fd> {
    let how = how.without_waiting();
    let tried =
        with_c_path(path, |path| site.try_inline(&mut OpenArgs { path: path.into(), how: &how }))?;
    let answer = match tried {
        Some(answer) => answer,
        None => {
            let args = OpenArgs { path: Cow::Owned(c_path(path)?), how: Box::new(how) };
            site.offload(args).await.0
        }
    };
    // SAFETY: the kernel has just opened the descriptor for this call, and nothing else owns it.
    answer.map(|fd| unsafe { opened_fd(fd) })
}

/// Like [`open_at`], but if another process holds a lease on the file, waits for the release, on a
/// thread of a separate group.
async fn open_patiently(
    site: CallSite<'_>,
    group: Option<u64>,
    path: &Path,
    how: OpenHow,
) -> io::Result<Fd> {
    match open_at(site, path, how).await {
        Err(error) if is_leased(&error, how) => {
            let site = CallSite { policy: Policy::Offload, group: site.group.or(group), ..site };
            let args = OpenArgs { path: Cow::Owned(c_path(path)?), how: Box::new(how) };
            // SAFETY: the kernel has just opened the descriptor for this call, and nothing else
            // owns it.
            site.offload(args).await.0.map(|fd| unsafe { opened_fd(fd) })
        }
        opened => opened,
    }
}

/// Wraps the descriptor that an open has returned, for an [`OpenFile`].
///
/// # Safety
/// The number must be an open descriptor of the runtime's kernel without another owner.
unsafe fn opened_fd(fd: u32) -> Fd {
    // SAFETY: the caller guarantees that the descriptor is open and has no other owner. `OpenFile`
    // closes it.
    unsafe { Fd::from_raw(fd as RawFd) }
}

/// Explains the error of an open with `beneath`, which the system's text does not.
fn explain_beneath(error: io::Error) -> io::Error {
    const BENEATH_NEEDS: &str = "`beneath` needs the system call openat2";
    const BENEATH_REMEDY: &str = "or check the path and open it without `beneath`";
    let (kind, text) = match Errno::from_io_error(&error) {
        Some(Errno::XDEV) => {
            let text = "the path leads out of its directory, which `beneath` forbids";
            (io::ErrorKind::PermissionDenied, text.to_owned())
        }
        Some(Errno::NOSYS) => {
            let text = format!(
                "{BENEATH_NEEDS}, which Linux has since 5.6; update the kernel, {BENEATH_REMEDY}"
            );
            (io::ErrorKind::Unsupported, text)
        }
        Some(Errno::PERM) => {
            let text = format!(
                "{error}; if the file's permissions allow the open: {BENEATH_NEEDS}, which a container may forbid; allow it there, {BENEATH_REMEDY}"
            );
            (io::ErrorKind::PermissionDenied, text)
        }
        _ => return error,
    };
    io::Error::new(kind, with_text(error, text))
}

fn contradiction(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl Dir {
    pub(super) fn entry<'a>(&self, path: &'a Path) -> PathEntry<'a> {
        PathEntry::new(if path.is_absolute() { 0 } else { self.start().serial }, path)
    }

    fn start(&self) -> Start {
        match &self.open {
            Some(open) => Start { serial: open.serial, dir: Some(open.fd), group: open.group },
            None => Start { serial: 0, dir: None, group: None },
        }
    }

    /// Returns true unless files are simulated. Simulated file systems do not hang.
    pub(super) fn is_real(&self) -> bool {
        self.core().kernel.real_descriptors()
    }

    /// Returns the group of a call on a path about which nothing is known, or `None` if files are
    /// simulated.
    pub(super) fn unknown_group(&self, path: &Path) -> Option<u64> {
        self.is_real().then(|| Place::unknown(self.entry(path)).group()).flatten()
    }

    /// Records and returns the device of a simulated file that was opened by this path.
    pub(super) fn learn_simulated(&self, path: &Path, open: &OpenFile) -> Option<DeviceId> {
        if self.is_real() {
            return None;
        }
        let (policy, entry) = (&self.core().inline_policy, self.entry(path));
        let known = policy.place_of(self.start(), entry).map(Place::device);
        Some(known.unwrap_or_else(|| policy.learn_device(entry, open.device_number())))
    }

    /// Determines the place of a path, which decides where calls on it are made. If the place is
    /// not known yet, a thread opens the path's directory to find it; if that fails, the place is
    /// unknown. If files are simulated, an unknown path is on the default device.
    pub(super) async fn locate(&self, path: &Path) -> Place {
        let entry = self.entry(path);
        match self.core().inline_policy.place_of(self.start(), entry) {
            Some(place) => place,
            None if !self.is_real() => Place::Local(DeviceId::default()),
            None => self.open_parent(entry).await.unwrap_or(Place::unknown(entry)),
        }
    }

    /// Like [`locate`](Self::locate), but for the target of the path if its last component is a
    /// symbolic link. Call `locate` first.
    pub(super) fn locate_behind(&self, path: &Path) -> Place {
        let entry = self.entry(path);
        let place = self.core().inline_policy.place_behind(self.start(), entry);
        place.unwrap_or(Place::unknown(entry))
    }

    /// Opens the directory of a path and determines its place. Returns `None` if it cannot be
    /// opened.
    async fn open_parent(&self, entry: PathEntry<'_>) -> Option<Place> {
        let parent = CString::new(entry.parent_or_dot()).ok()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let how = Box::new(OpenHow { flags: u64::from(flags.bits()), ..OpenHow::default() });
        // Opens of the same directory share a group.
        let group = Some(entry.parent_group());
        let site = CallSite { group, policy: Policy::Offload, ..self.site(None) };
        let (answer, _) = site.offload(OpenArgs { path: parent.into(), how }).await;
        // Opened as a path only, so that its file system is not notified of the close. SAFETY: the
        // kernel has just opened the descriptor for this call, and no other code owns it.
        let dir = unsafe { OwnedFd::from_raw_fd(answer.ok()? as RawFd) };
        self.core().inline_policy.learn_place(entry, dir.as_fd())
    }
}

/// Returns true if a call that follows a path may hang.
///
/// # Errors
/// Outside a runtime.
pub(crate) async fn may_hang(path: &Path) -> io::Result<bool> {
    let dir = Dir::working()?;
    let may_hang = dir.locate(path).await.group().or_else(|| dir.locate_behind(path).group());
    Ok(may_hang.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_beneath_explain_a_missing_openat2() {
        let beneath = OpenOptions::new().read(true).beneath(true);
        let wrong = |options: &OpenOptions, errno: Errno| {
            let error = options.wrong(Path::new("page"), errno.into());
            (error.kind(), error.to_string())
        };
        for (errno, kind, says) in [
            (Errno::XDEV, io::ErrorKind::PermissionDenied, "leads out"),
            (Errno::NOSYS, io::ErrorKind::Unsupported, "openat2, which Linux has since 5.6"),
            (Errno::PERM, io::ErrorKind::PermissionDenied, "without `beneath`"),
        ] {
            let (is, text) = wrong(&beneath, errno);
            assert!(is == kind && text.contains("`page`") && text.contains(says), "{text}");
            assert!(!wrong(&OpenOptions::new(), errno).1.contains(says));
        }
    }
}
