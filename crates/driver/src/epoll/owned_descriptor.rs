//! A descriptor that the driver owns.
#![allow(unsafe_code)]

use annulus_kernel::{Fd, Kernel};
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;

/// A descriptor that is closed when it is dropped.
pub(super) struct OwnedDescriptor {
    pub(super) kernel: Rc<dyn Kernel>,
    pub(super) fd: Fd,
}

impl OwnedDescriptor {
    /// Takes ownership of the descriptor that a kernel call creates.
    ///
    /// # Safety
    /// The number that the call returns must be an open descriptor of this kernel without another
    /// owner.
    pub(super) unsafe fn open(
        kernel: &Rc<dyn Kernel>,
        call: impl FnOnce(&dyn Kernel) -> io::Result<RawFd>,
    ) -> io::Result<Self> {
        let number = call(&**kernel)?;
        // SAFETY: the caller guarantees that the descriptor is open and has no other owner; the
        // driver uses it only while it holds this value, which closes it.
        Ok(Self { kernel: kernel.clone(), fd: unsafe { Fd::from_raw(number) } })
    }
}

impl Drop for OwnedDescriptor {
    fn drop(&mut self) {
        self.kernel.close(self.fd);
    }
}

impl fmt::Debug for OwnedDescriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedDescriptor({})", self.fd)
    }
}
