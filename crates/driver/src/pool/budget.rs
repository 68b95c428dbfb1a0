//! How much memory the next receives may fill.

use super::{Book, Place, Pool};

/// Buffers that the kernel gets however small the budget; of datagrams, whose are not cut short.
pub(super) const LEAST: u32 = 16;
pub(super) const LEAST_WHOLE: u32 = 4;

/// How much receives may bring before the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes, more or less: some buffers are there always.
    pub bytes: usize,
    /// Memory is short: idle buffers keep none of it.
    pub is_tight: bool,
}

impl Budget {
    /// As much as turns need.
    pub const NONE: Self = Self { bytes: usize::MAX, is_tight: false };
}

impl Pool {
    /// Fits the buffers to the budget: how many of `most` the kernel may have, and how long each is. Many short ones serve
    /// more streams than a few long ones.
    #[inline]
    pub(super) fn fit(&self, book: &mut Book, most: u32) -> u32 {
        if book.budget == Budget::NONE {
            book.len = self.size.buffer;
            return most;
        }
        self.fit_to(book, most)
    }

    fn fit_to(&self, book: &mut Book, most: u32) -> u32 {
        let Budget { bytes, is_tight } = book.budget;
        let parts = |count: u32| u32::try_from(bytes / count as usize).unwrap_or(u32::MAX);
        if self.cuts {
            let (share, page) = (parts(most), self.page());
            book.len = (share - share % page).clamp(page.min(self.size.buffer), self.size.buffer);
        }
        if is_tight {
            // What is not in use keeps no more than the next receive may fill.
            let len = book.len;
            self.discard_where(book, |place, written| place == Place::Idle && written > len);
        }
        let least = if self.cuts { LEAST } else { LEAST_WHOLE };
        parts(book.len).clamp(least.min(most), most)
    }
}
