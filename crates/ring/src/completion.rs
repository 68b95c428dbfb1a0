//! A completion queue entry (CQE), as the kernel writes it.

use bitflags::bitflags;

bitflags! {
    /// `IORING_CQE_F_*`: the low half of a completion's flags. The high half is the buffer id.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CompletionFlags: u32 {
        /// The operation used a provided buffer, whose id is in the upper 16 bits.
        const BUFFER = 1 << 0;
        /// More completions of the same operation will follow.
        const MORE = 1 << 1;
        /// The socket had more bytes to read.
        const SOCK_NONEMPTY = 1 << 2;
        /// The notification of a zero-copy send: the memory may be reused.
        const NOTIF = 1 << 3;
        /// The completion takes 32 bytes (6.18): the next place of the queue is its second half.
        const LARGE = 1 << 15;
        const _ = !0;
    }
}

/// A completion queue entry of 16 bytes, as plain data.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The `user_data` of the entry.
    pub user_data: u64,
    /// The value that the system call would have returned, or the negated errno.
    pub result: i32,
    /// [`CompletionFlags`] and the buffer id, as bits.
    pub flags: u32,
}

impl Completion {
    /// Returns true if more completions of the operation follow. If false, this is the *terminal*
    /// one: the memory of the operation belongs to the submitter again.
    #[inline]
    pub fn more(&self) -> bool {
        self.flags & CompletionFlags::MORE.bits() != 0
    }

    /// Returns true for the second completion of a zero-copy send: the memory belongs to the
    /// submitter again. Its result is not a count; see [`was_copied`](Self::was_copied).
    #[inline]
    pub fn is_notification(&self) -> bool {
        self.flags & CompletionFlags::NOTIF.bits() != 0
    }

    /// Returns true for a notification that reports a copy of the bytes by the kernel
    /// (`IORING_NOTIF_USAGE_ZC_COPIED`).
    #[inline]
    pub fn was_copied(&self) -> bool {
        self.is_notification() && self.result < 0
    }

    /// Returns true if the next completion in the queue is not one, but the second half of this
    /// one. Its `user_data` is the first value of the half. Only rings with [mixed
    /// completions](crate::RingBuilder::mixed_completions) have such completions.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.flags & CompletionFlags::LARGE.bits() != 0
    }

    /// Returns the id of the provided buffer that was filled, if any.
    #[inline]
    pub fn buffer(&self) -> Option<u16> {
        (self.flags & CompletionFlags::BUFFER.bits() != 0).then_some((self.flags >> 16) as u16)
    }
}

const _: () = assert!(size_of::<Completion>() == 16);
