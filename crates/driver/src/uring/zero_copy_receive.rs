//! Zero-copy receives: the network stack fills an area of the stream pool, and pieces that are no
//! longer lent go back to it through a refill ring.
#![allow(unsafe_code)]

use crate::pool::{AreaSize, Pool};
use annulus_ring::{DeviceQueue, RefillRing, Ring, SetupError};
use std::rc::Rc;

/// Pieces per page of an area that a device fills. A device may put several packets in a page.
const DEVICE_PIECES_PER_PAGE: usize = 4;
/// Maximum number of ids of buffers and pieces. The last number is no id.
const MAX_IDS: u32 = u16::MAX as u32;
/// Maximum number of entries of a refill ring.
const MAX_REFILL_ENTRIES: u32 = 32_768;

/// Memory for zero-copy receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveArea {
    /// Size in bytes, rounded up to whole pages.
    pub bytes: usize,
    /// The device queue whose packets arrive there. Without one, the kernel copies the bytes of any
    /// TCP socket there.
    pub queue: Option<DeviceQueue>,
}

impl ReceiveArea {
    /// The largest size in bytes: with small pages, the pieces of a larger area would need more ids.
    pub const MAX_BYTES: usize = 64 << 20;

    /// Returns the size of the area of a pool with this number of buffers.
    pub(super) fn size(self, buffers: u32) -> AreaSize {
        let page = rustix::param::page_size();
        let pages = self.bytes.min(Self::MAX_BYTES).div_ceil(page).max(1);
        let wanted = pages * if self.queue.is_some() { DEVICE_PIECES_PER_PAGE } else { 1 };
        let pieces = u32::try_from(wanted).unwrap_or(MAX_IDS).min(MAX_IDS - buffers);
        AreaSize { bytes: pages * page, pieces, has_whole_pages: self.queue.is_none() }
    }
}

/// The area of the stream pool, and its refill ring.
#[derive(Debug)]
pub(super) struct ZeroCopyReceive {
    refill: RefillRing,
    pool: Rc<Pool>,
    /// Whether only a flush makes the kernel take pieces back.
    flushes: bool,
    /// Number of returned pieces from which the kernel takes them back.
    flush_from: u32,
    /// Number of pieces returned since the last flush.
    unflushed: u32,
    /// Whether a receive found no free page since the last refill.
    found_none: bool,
}

impl ZeroCopyReceive {
    /// Registers the area of the pool.
    pub(super) fn new(
        ring: &Ring,
        config: ReceiveArea,
        pool: &Rc<Pool>,
    ) -> Result<Self, SetupError> {
        let size = config.size(pool.capacity());
        let entries = size.pieces.next_power_of_two().min(MAX_REFILL_ENTRIES);
        let area = pool.memory().area().expect("the pool has no area");
        // SAFETY: the pool's memory is kept until the ring has been closed, and no code uses the
        // area, except pieces between `lend_piece` and `give_back`.
        let refill = unsafe {
            RefillRing::register(ring, config.queue, area.as_ptr(), area.len(), entries)
        }?;
        Ok(Self {
            refill,
            pool: pool.clone(),
            flushes: config.queue.is_none(),
            flush_from: (size.pieces / 4).max(1),
            unflushed: 0,
            found_none: false,
        })
    }

    /// Returns the number of the refill ring, for entries.
    pub(super) fn id(&self) -> u32 {
        self.refill.id()
    }

    /// Lends a piece. If too many are lent, the piece is returned at once, and its bytes are lost.
    pub(super) fn lend(&mut self, offset: u64, len: u32) -> Option<u16> {
        let id = self.pool.lend_piece(offset, len);
        if id.is_none() && self.refill.has_space() {
            // SAFETY: a completion has just delivered the piece, and nothing else knows it.
            unsafe { self.refill.give_back(offset, len) };
        }
        id
    }

    /// Records that a receive found no free page. Returns true if a receive by copy can replace it:
    /// the kernel cannot copy packets that a device has put in the area.
    pub(super) fn record_shortage(&mut self) -> bool {
        self.found_none = true;
        self.flushes
    }

    /// Returns pieces to the kernel.
    pub(super) fn refill(&mut self, ring: &Ring) {
        let Self { refill, unflushed, .. } = self;
        self.pool.take_pieces(|offset, len| {
            let has_space = refill.has_space();
            if has_space {
                // SAFETY: the piece was lent and has been given back.
                unsafe { refill.give_back(offset, len) };
                *unflushed += 1;
            }
            has_space
        });
        refill.publish();
        let is_due = *unflushed >= self.flush_from || self.found_none && *unflushed > 0;
        self.found_none = false;
        if self.flushes && is_due && refill.flush(ring).is_ok() {
            *unflushed = 0;
        }
    }
}
