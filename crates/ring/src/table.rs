//! Tables of a ring, of registered memory or files: their set-up and the change of one index.

use crate::params::{TableSetup, TableUpdate};
use crate::ring::Ring;
use annulus_kernel::Register;
use std::io;

/// Registers a table with so many empty indices.
pub(crate) fn register(ring: &Ring, what: Register, count: u32) -> io::Result<()> {
    let mut setup = TableSetup { count, flags: TableSetup::SPARSE, ..TableSetup::default() };
    let size = size_of::<TableSetup>() as u32;
    ring.register(what, (&raw mut setup).cast(), size).map(drop)
}

/// Registers an element at an index: what the kernel reads for `what`.
pub(crate) fn update<T>(ring: &Ring, what: Register, index: u32, element: &T) -> io::Result<()> {
    let elements = std::ptr::from_ref(element) as u64;
    let mut update = TableUpdate { index, elements, count: 1, ..TableUpdate::default() };
    let size = size_of::<TableUpdate>() as u32;
    ring.register(what, (&raw mut update).cast(), size).map(drop)
}
