//! Descriptors of files, and files for descriptors from elsewhere.
#![allow(unsafe_code)]

use super::File;
use super::open_file::OpenFile;
use crate::runtime::current;
use crate::slots::loop_state;
use annulus_kernel::{Fd, descriptor};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

/// Exposes the descriptor for calls that this crate lacks. It stays open while it is borrowed.
/// Under a simulated kernel, it is a number that no descriptor has, so every call fails with
/// `EBADF`.
impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.open.was_lent.set(true);
        let fd = self.open.fd;
        loop_state::borrowed_fd(self.open.core.kernel.real_descriptors().then_some(fd))
    }
}

/// Returns the number of the descriptor: see `AsFd`.
impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// Takes over an open file, which need not be a regular file.
///
/// # Errors
/// Outside a runtime; `Unsupported` under a simulated kernel. The file is then closed.
impl TryFrom<OwnedFd> for File {
    type Error = io::Error;

    fn try_from(file: OwnedFd) -> io::Result<Self> {
        let core = current::get()?;
        if !core.kernel.real_descriptors() {
            let text = "a real file cannot be used in a simulation";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let flags = descriptor::flags(&file)?;
        // SAFETY: `into_raw_fd` gives up the only owner of an open descriptor.
        let fd = unsafe { Fd::from_raw(file.into_raw_fd()) };
        let place = core.inline_policy.place_of_file(fd);
        let policy = core.inline_policy.default;
        let open = OpenFile::new(core, fd, place.group());
        Ok(Self::new(open, place.device(), flags, policy))
    }
}

impl TryFrom<std::fs::File> for File {
    type Error = io::Error;

    fn try_from(file: std::fs::File) -> io::Result<Self> {
        Self::from_std(file)
    }
}
