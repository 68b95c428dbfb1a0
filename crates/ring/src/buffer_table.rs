//! Memory that the kernel holds on to, so that a read or write of it has no pages to look up.
#![allow(unsafe_code)]

use crate::params::{BufferTableSetup, BufferTableUpdate};
use crate::ring::Ring;
use annulus_kernel::{IoVec, Register};
use std::io;

/// A ring's table of registered memory (5.19): places that [`Entry::registered`](crate::Entry::of_place) names. A ring has one.
///
/// What was set in a place stays pinned, whatever becomes of the mapping, until the place is cleared or the ring has gone.
#[derive(Debug)]
pub struct BufferTable(());

impl BufferTable {
    /// Most bytes in a place.
    pub const MOST: usize = 1 << 30;

    /// Registers a table of empty places.
    ///
    /// # Errors
    /// Whatever the kernel says: EBUSY where there is a table, EACCES for a restricted ring, EINVAL before 5.19.
    pub fn register(ring: &Ring, places: u32) -> io::Result<Self> {
        let flags = BufferTableSetup::SPARSE;
        let mut setup = BufferTableSetup { places, flags, ..BufferTableSetup::default() };
        let size = size_of::<BufferTableSetup>() as u32;
        ring.register(Register::Buffers, (&raw mut setup).cast(), size)?;
        Ok(Self(()))
    }

    /// Puts memory into a place.
    ///
    /// # Errors
    /// Whatever the kernel says: ENOMEM where that is more than the process may lock, EINVAL for a place that is not in the
    /// table, EFAULT for memory that is none, or for more than [`MOST`](Self::MOST).
    ///
    /// # Safety
    /// As long as entries name the place, the memory must stay mapped: they would reach the pages that were there.
    pub unsafe fn set(&self, ring: &Ring, place: u32, memory: IoVec) -> io::Result<()> {
        update(ring, place, memory)
    }

    /// Empties a place. Operations that named it before run on.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn clear(&self, ring: &Ring, place: u32) -> io::Result<()> {
        update(ring, place, IoVec { base: std::ptr::null(), len: 0 })
    }
}

fn update(ring: &Ring, place: u32, memory: IoVec) -> io::Result<()> {
    let mut update = BufferTableUpdate {
        place,
        vectors: &raw const memory as u64,
        count: 1,
        ..BufferTableUpdate::default()
    };
    let size = size_of::<BufferTableUpdate>() as u32;
    ring.register(Register::BuffersUpdate, (&raw mut update).cast(), size).map(drop)
}
