//! Locking io_uring down: the driver restricts its ring, and this denies further rings to the process.

use annulus_kernel::Kernel;
use annulus_ring::deny_setup;
use std::io;

/// Denies every further ring to the process. Does nothing under a simulated kernel.
pub(crate) fn deny_further_rings(kernel: &dyn Kernel) -> io::Result<()> {
    if !kernel.real_descriptors() {
        return Ok(());
    }
    deny_setup().map_err(|error| {
        let text = format!(
            "locked_down: io_uring_setup can't be denied: {error}; run on a kernel with seccomp filters, or do without"
        );
        io::Error::new(error.kind(), text)
    })
}
