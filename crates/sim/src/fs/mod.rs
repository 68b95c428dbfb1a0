//! Files on a simulated disk. This module is independent of rings and descriptors.

mod disk;
mod disks;
mod names;
mod pages;
mod tree;

pub(crate) use disk::{AnchoredPath, DeviceUse, Lock, MemoryRanges, OpenId};
pub use disk::{Device, Disk};
pub(crate) use disks::{DiskId, Disks};
