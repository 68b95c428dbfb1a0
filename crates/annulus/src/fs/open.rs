//! Opening files.
#![allow(unsafe_code)]

use super::dir::Dir;
use super::directories::Folder;
use super::file::{File, OpenFile};
use super::latency::{Class, Habitual};
use super::path::{CPath, about, with_c_path};
use super::perform::{Job, attempt, breathe, offload};
use super::policy::Policy;
use crate::runtime::core::Core;
use annulus_kernel::Fd;
use annulus_kernel::file::{FileCall, OpenHow, PathAt};
use rustix::fs::OFlags;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::rc::Rc;

/// Flags that options stand for.
const OWN: OFlags = OFlags::ACCMODE
    .union(OFlags::APPEND)
    .union(OFlags::TRUNC)
    .union(OFlags::CREATE)
    .union(OFlags::DIRECT);

/// How to open a file: as [`std::fs::OpenOptions`], with what this runtime adds.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    direct: bool,
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
    /// Everything off: say at least [`read`](Self::read), [`write`](Self::write) or [`append`](Self::append).
    pub fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            direct: false,
            mode: 0o666,
            flags: 0,
            policy: None,
        }
    }

    /// Lets it be read.
    pub fn read(mut self, on: bool) -> Self {
        self.read = on;
        self
    }

    /// Lets it be written.
    pub fn write(mut self, on: bool) -> Self {
        self.write = on;
        self
    }

    /// Writes go to its end, wherever that is by then.
    pub fn append(mut self, on: bool) -> Self {
        self.append = on;
        self
    }

    /// Empties it.
    pub fn truncate(mut self, on: bool) -> Self {
        self.truncate = on;
        self
    }

    /// Makes it, where it does not exist.
    pub fn create(mut self, on: bool) -> Self {
        self.create = on;
        self
    }

    /// Makes it, and fails with `AlreadyExists` where it exists.
    pub fn create_new(mut self, on: bool) -> Self {
        self.create_new = on;
        self
    }

    /// Reads and writes go past the page cache (`O_DIRECT`). Memory, offsets and lengths must then be aligned: see
    /// [`File::alignment`] and [`AlignedBuf`](super::AlignedBuf).
    pub fn direct(mut self, on: bool) -> Self {
        self.direct = on;
        self
    }

    /// Permissions of a file that is made, before the process's umask: 0o666 by default.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// More `O_*` flags. Those that the other options stand for are ignored here.
    pub fn custom_flags(mut self, flags: i32) -> Self {
        self.flags = flags;
        self
    }

    /// Where this file's calls are made; by default as the runtime was told.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Opens a file.
    ///
    /// A named pipe is opened without waiting for its other end: for writing, that fails where nobody reads.
    ///
    /// Cancel-safe: dropped early, the file may be made or emptied all the same; its descriptor is closed.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, `AlreadyExists`, …, naming the path; `InvalidInput` for options that contradict
    /// each other, or a path with a zero byte; or outside a runtime.
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.open_in(&Dir::working()?, path.as_ref()).await
    }

    pub(super) async fn open_in(&self, start: &Dir, path: &Path) -> io::Result<File> {
        let (core, dir) = (start.core(), start.fd());
        let wrong = |error| about("opening", path, error);
        let how = OpenHow { flags: self.o_flags().map_err(wrong)?, ..self.how() };
        let folder = Folder::of(dir, path);
        let device = folder.device(core);
        let policy = self.policy.unwrap_or(core.files.policy);
        let class = self.class();
        let habit = Some(Habitual { device: device.unwrap_or_default(), class, bytes: 0 });
        let job = |call| Job { call, policy, habit };
        if core.files.is_out_of_breath() {
            breathe(core, policy).await;
        }
        let tried = with_c_path(path, |path| {
            // SAFETY: path and options outlive the call.
            unsafe { attempt(core, &job(FileCall::Open { at: PathAt { dir, path }, how: &how })) }
        })?;
        let opened = match tried {
            Some(answer) => answer.map(|fd| opened_as(core, fd)),
            None => {
                let args = Args { path: CPath::new(path)?, how: Box::new(how), _dir: start.keep() };
                open_later(core, dir, args, job).await
            }
        };
        let file = opened.map_err(wrong)?;
        let device = device.unwrap_or_else(|| folder.learn(core, &file));
        Ok(File::new(file, device, self.direct, policy))
    }

    fn how(&self) -> OpenHow {
        // Of a file that is not made, no mode may be told.
        let makes = self.create || self.create_new || self.has_flags(OFlags::TMPFILE);
        OpenHow {
            flags: 0,
            mode: if makes { u64::from(self.mode & 0o7777) } else { 0 },
            resolve: 0,
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
                return Err(contradiction("open for what? say read, write or append"));
            }
        };
        if !(self.write || self.append) && (self.create || self.create_new || self.truncate) {
            return Err(contradiction("creating or truncating needs write or append"));
        }
        if self.append && self.truncate && !self.create_new {
            return Err(contradiction("append and truncate contradict each other"));
        }
        let on = |on: bool, flag: OFlags| if on { flag } else { OFlags::empty() };
        let flags = access
            | on(self.append, OFlags::APPEND)
            | on(self.truncate && !self.create_new, OFlags::TRUNC)
            | on(self.create || self.create_new, OFlags::CREATE)
            | on(self.create_new, OFlags::EXCL)
            | on(self.direct, OFlags::DIRECT)
            | OFlags::from_bits_retain(self.flags as u32).difference(OWN)
            | OFlags::CLOEXEC;
        Ok(u64::from(flags.bits()))
    }
}

/// What an open names.
struct Args {
    path: CPath,
    how: Box<OpenHow>,
    /// The directory it starts from, kept open.
    _dir: Option<Rc<OpenFile>>,
}

/// Opens off the loop. The ring opens what is not in memory on a thread that would wait for the other end of a named pipe,
/// for ever if there is none: the file is opened with `O_NONBLOCK`, and that is cleared here.
async fn open_later(
    core: &Rc<Core>,
    dir: RawFd,
    args: Args,
    job: impl Fn(FileCall) -> Job,
) -> io::Result<Rc<OpenFile>> {
    let how = *args.how;
    if !how.may_wait() {
        return open_off_loop(core, dir, args, &job).await.0;
    }
    let (opened, args) =
        open_off_loop(core, dir, Args { how: Box::new(how.nonblocking()), ..args }, &job).await;
    match opened {
        // A lease on the file must be given back first, and that is to be waited for.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            open_off_loop(core, dir, Args { how: Box::new(how), ..args }, &job).await.0
        }
        Ok(file) => {
            let call = FileCall::SetFlags { fd: file.fd(), flags: how.flags as u32 };
            // SAFETY: the call names no memory.
            unsafe { core.kernel.file(&call) }?;
            Ok(file)
        }
        failed => failed,
    }
}

/// Opens off the loop, as the arguments say, and gives them back.
async fn open_off_loop(
    core: &Rc<Core>,
    dir: RawFd,
    args: Args,
    job: &impl Fn(FileCall) -> Job,
) -> (io::Result<Rc<OpenFile>>, Args) {
    let at = PathAt { dir, path: args.path.as_ptr() };
    let call = FileCall::Open { at, how: &raw const *args.how };
    // SAFETY: the path and the options are in boxes of the arguments' own.
    let (answer, args) = unsafe { offload(core, job(call), args).await };
    (answer.map(|fd| opened_as(core, fd)), args)
}

/// What an open has answered.
fn opened_as(core: &Rc<Core>, fd: u32) -> Rc<OpenFile> {
    // SAFETY: opened just now, for this file alone, which closes it.
    OpenFile::new(core.clone(), unsafe { Fd::from_raw(fd as RawFd) })
}

fn contradiction(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
