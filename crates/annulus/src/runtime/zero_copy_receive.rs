//! The settings of zero-copy receives.

use annulus_driver::{ReceiveArea, UringConfig};
use annulus_ring::DeviceQueue;
use std::io;

/// Memory that the network stack fills: see
/// [`Builder::zero_copy_receive`](crate::Builder::zero_copy_receive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroCopyReceive(pub(super) ReceiveArea);

impl ZeroCopyReceive {
    /// Creates memory of `bytes` bytes, at most 64 MiB, that the kernel copies received bytes into.
    /// Needs Linux 7.1.
    ///
    /// The copies make it no faster than usual receives. It shows, without a suitable device, that
    /// a program works with such memory.
    pub fn without_device(bytes: usize) -> Self {
        Self(ReceiveArea { bytes, queue: None })
    }

    /// Creates memory of `bytes` bytes, at most 64 MiB, for the packets of a receive queue of a
    /// network device. `device` is its index, which `/sys/class/net/NAME/ifindex` contains. Needs
    /// Linux 6.18, and a device with support for `io_uring` zero-copy receive.
    ///
    /// The queue must be configured with `ethtool`: headers split from data (`--set-ring`,
    /// `tcp-data-split on`), and the packets of the runtime's connections, but no others, steered
    /// to it (`--config-ntuple`, `--rxfh`). A connection whose packets arrive in the memory of
    /// another runtime fails with `EFAULT`. Each runtime needs a queue of its own.
    ///
    /// This follows the kernel's documentation, and has never run: there was no such device.
    pub fn from_device(device: u32, queue: u32, bytes: usize) -> Self {
        Self(ReceiveArea { bytes, queue: Some(DeviceQueue { device, queue }) })
    }
}

/// # Errors
/// `InvalidInput` if the size is out of range, or if another setting excludes zero-copy receives.
pub(super) fn check(config: &UringConfig) -> io::Result<()> {
    let Some(ReceiveArea { bytes, .. }) = config.receive_area else { return Ok(()) };
    let most = ReceiveArea::MAX_BYTES;
    let text = if !(1..=most).contains(&bytes) {
        format!("zero_copy_receive of {bytes} bytes is out of range; use 1 to {most}")
    } else if config.restricted {
        "zero_copy_receive cannot be combined with locked_down; remove one of them".into()
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}
