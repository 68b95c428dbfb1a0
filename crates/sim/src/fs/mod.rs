//! Files on a simulated disk. They know no rings and no descriptors.

mod disk;
mod names;
mod pages;
mod tree;

pub(crate) use disk::{AnchoredPath, MemoryRanges, OpenId};
pub use disk::{Device, Disk};
