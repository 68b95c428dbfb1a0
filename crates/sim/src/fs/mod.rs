//! Files on a simulated disk. This module is independent of rings and descriptors.

mod disk;
mod names;
mod pages;
mod tree;

pub(crate) use disk::{AnchoredPath, MemoryRanges, OpenId};
pub use disk::{Device, Disk};
