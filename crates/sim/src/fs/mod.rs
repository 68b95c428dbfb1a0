//! Files on a simulated disk. They know no rings and no descriptors.

mod device;
mod disk;
mod names;
mod pages;
mod tree;

pub use device::Device;
pub use disk::Disk;
pub(crate) use disk::{OpenId, Pieces, StartedPath};
