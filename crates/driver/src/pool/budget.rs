//! How much memory the next receives may fill.

use super::{BufferState, Buffers, Pool};

/// Minimum number of buffers that the kernel gets, however small the budget. The minimum is smaller
/// for datagram buffers, which are never shortened.
pub(super) const MIN_KERNEL_BUFFERS: u32 = 16;
pub(super) const MIN_KERNEL_DATAGRAM_BUFFERS: u32 = 4;

/// How much may be received before the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveBudget {
    /// Approximate number of bytes: the kernel gets a minimum number of buffers even with a smaller
    /// budget.
    pub bytes: usize,
    /// Whether memory is short, so that idle buffers keep no more memory than the next receive may
    /// fill.
    pub is_tight: bool,
}

impl ReceiveBudget {
    /// No limit.
    pub const UNLIMITED: Self = Self { bytes: usize::MAX, is_tight: false };
}

impl Pool {
    /// Fits the buffers to the budget: sets their length, and returns how many of `most` buffers
    /// the kernel may have. Many short buffers serve more streams than a few long ones.
    #[inline]
    pub(super) fn fit(&self, buffers: &mut Buffers, most: u32) -> u32 {
        match buffers.fitted {
            Some((wanted, count)) if wanted == most => count,
            _ => self.fit_to(buffers, most),
        }
    }

    #[inline(never)]
    fn fit_to(&self, buffers: &mut Buffers, most: u32) -> u32 {
        let ReceiveBudget { bytes, is_tight } = buffers.budget;
        let parts = |count: u32| u32::try_from(bytes / count.max(1) as usize).unwrap_or(u32::MAX);
        if self.purpose.shortens {
            let (share, page) = (parts(most), self.page_bytes());
            buffers.len =
                (share - share % page).clamp(page.min(self.size.buffer), self.size.buffer);
        }
        if is_tight {
            // An idle buffer keeps no more memory than the next receive may fill.
            let len = buffers.len;
            self.discard_where(buffers, |state, written| {
                state == BufferState::Idle && written > len
            });
        }
        let least =
            if self.purpose.shortens { MIN_KERNEL_BUFFERS } else { MIN_KERNEL_DATAGRAM_BUFFERS };
        let count = parts(buffers.len).clamp(least.min(most), most);
        // While memory is tight, the result is not kept, because each turn has other idle buffers
        // to discard.
        buffers.fitted = (!is_tight).then_some((most, count));
        count
    }
}
