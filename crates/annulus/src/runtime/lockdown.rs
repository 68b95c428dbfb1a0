//! Locking io_uring down. The driver restricts its own ring; what is left is to see that the process makes no other one.

use annulus_kernel::Kernel;
use annulus_ring::deny_setup;
use std::io;

/// Denies every further ring to the process. A simulated kernel has no process to lock down.
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
