//! Ends of pipes from elsewhere.

use super::{Receiver, Sender};
use crate::runtime::current;
use annulus_kernel::descriptor;
use rustix::fs::{FileType, OFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{ChildStderr, ChildStdin, ChildStdout};

/// Takes an end of a pipe over, which becomes non-blocking, also for others that share it (`dup`, `fork`).
///
/// # Errors
/// `InvalidInput` if it is no pipe, or not open for writing. Outside a runtime; `Unsupported` under a simulated kernel. The
/// descriptor is then closed.
impl TryFrom<OwnedFd> for Sender {
    type Error = io::Error;

    fn try_from(pipe: OwnedFd) -> io::Result<Self> {
        current::get()?;
        prepare(&pipe, OFlags::WRONLY, "writing")?;
        Self::of_pipe(pipe)
    }
}

/// As for [`Sender`], of an end that is open for reading.
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

/// Checks that it is a pipe with this access, and makes it non-blocking.
pub(super) fn prepare(pipe: &OwnedFd, access: OFlags, what: &str) -> io::Result<()> {
    let refused = |why: &str| {
        let text = format!("descriptor {} is {why}", pipe.as_raw_fd());
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    };
    if descriptor::file_type(pipe)? != FileType::Fifo {
        return refused("no pipe");
    }
    let open_for = descriptor::flags(pipe)? & OFlags::RWMODE;
    if open_for != access && open_for != OFlags::RDWR {
        return refused(&format!("a pipe that is not open for {what}"));
    }
    descriptor::set_nonblocking(pipe)
}
