//! Ends of pipes from elsewhere, by descriptor or by name.

use super::{Receiver, Sender};
use crate::fs::path::about;
use crate::runtime::current;
use annulus_kernel::{descriptor, pipe};
use rustix::fs::{FileType, OFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{ChildStderr, ChildStdin, ChildStdout};

/// Takes over an end of a pipe, which becomes non-blocking, even for other processes that share it
/// (`dup`, `fork`).
///
/// # Errors
/// `InvalidInput` if it is not a pipe or not open for writing. Outside a runtime; `Unsupported`
/// under a simulated kernel. The descriptor is then closed.
impl TryFrom<OwnedFd> for Sender {
    type Error = io::Error;

    fn try_from(pipe: OwnedFd) -> io::Result<Self> {
        current::get()?;
        prepare(&pipe, OFlags::WRONLY, "writing")?;
        Self::of_pipe(pipe)
    }
}

/// Like the conversion to [`Sender`], but for an end that is open for reading.
impl TryFrom<OwnedFd> for Receiver {
    type Error = io::Error;

    fn try_from(pipe: OwnedFd) -> io::Result<Self> {
        current::get()?;
        prepare(&pipe, OFlags::RDONLY, "reading")?;
        Self::of_pipe(pipe)
    }
}

/// Conversions from ends of the standard library.
macro_rules! from_std {
    ($($end:ident: $std:ty;)+) => {$(
        impl TryFrom<$std> for $end {
            type Error = io::Error;

            fn try_from(end: $std) -> io::Result<Self> {
                Self::try_from(OwnedFd::from(end))
            }
        }
    )+};
}

from_std! {
    Sender: io::PipeWriter;
    Sender: ChildStdin;
    Receiver: io::PipeReader;
    Receiver: ChildStdout;
    Receiver: ChildStderr;
}

/// How to open a named pipe, such as one created by `mkfifo`. Opening does not wait for the other
/// end.
///
/// ```
/// use annulus::pipe::OpenOptions;
///
/// # annulus::run(async {
/// let path = std::env::temp_dir().join(format!("annulus-doc-{}.pipe", std::process::id()));
/// std::process::Command::new("mkfifo").arg(&path).status()?;
/// let mut receiver = OpenOptions::new().open_receiver(&path)?;
/// let mut sender = OpenOptions::new().open_sender(&path)?;
/// sender.send("by name").await?;
/// assert_eq!(receiver.recv().await?.as_deref(), Some(&b"by name"[..]));
/// # std::fs::remove_file(&path)?;
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    read_write: bool,
}

impl OpenOptions {
    /// Returns the default options: the receiver opens for reading, the sender for writing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the pipe for reading and writing. A sender can then open it while there is no reader,
    /// and a receiver does not see the end of the stream while there is no writer. Off by default.
    pub fn read_write(mut self, on: bool) -> Self {
        self.read_write = on;
        self
    }

    /// Opens the receiving end. Receives wait until the first writer opens the other end. Once the
    /// last writer has closed it, they return the end of the stream.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied`, …, with the path in the message; `InvalidInput` if it is not
    /// a pipe. Outside a runtime; `Unsupported` under a simulated kernel.
    pub fn open_receiver(&self, path: impl AsRef<Path>) -> io::Result<Receiver> {
        let open = |pipe: OwnedFd| {
            prepare(&pipe, OFlags::RDONLY, "reading")?;
            Receiver::of_pipe(pipe)
        };
        self.open(path.as_ref(), OFlags::RDONLY, open)
    }

    /// Opens the sending end.
    ///
    /// # Errors
    /// The errors of [`open_receiver`](Self::open_receiver); and a system error (`ENXIO`, by
    /// [`os_error`](crate::io::os_error)) if no reader has opened the other end.
    pub fn open_sender(&self, path: impl AsRef<Path>) -> io::Result<Sender> {
        let open = |pipe: OwnedFd| {
            prepare(&pipe, OFlags::WRONLY, "writing")?;
            Sender::of_pipe(pipe)
        };
        self.open(path.as_ref(), OFlags::WRONLY, open)
    }

    fn open<T>(
        &self,
        path: &Path,
        access: OFlags,
        adopt: impl FnOnce(OwnedFd) -> io::Result<T>,
    ) -> io::Result<T> {
        current::get()?;
        let access = if self.read_write { OFlags::RDWR } else { access };
        let opened = pipe::open(path, access).map_err(io::Error::from);
        opened.and_then(adopt).map_err(|error| about("opening the pipe", path, error))
    }
}

/// Checks that the descriptor is a pipe with this access, and makes it non-blocking.
fn prepare(end: &OwnedFd, access: OFlags, what: &str) -> io::Result<()> {
    let refused = |why: &str| {
        let text = format!("descriptor {} is {why}", end.as_raw_fd());
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    };
    if descriptor::file_type(end)? != FileType::Fifo {
        return refused("not a pipe");
    }
    let open_for = descriptor::flags(end)? & OFlags::RWMODE;
    if open_for != access && open_for != OFlags::RDWR {
        return refused(&format!("a pipe that is not open for {what}"));
    }
    descriptor::set_nonblocking(end, true)
}
