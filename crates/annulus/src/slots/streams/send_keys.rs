//! The keys with which the kernel encrypts what a socket sends: what was made with them, and what may be.

/// What is known of the keys that the kernel has.
#[derive(Debug)]
pub(super) struct SendKeys {
    /// Of the record that is sent apart from the bytes.
    pub(super) step: RecordStep,
    /// Records that were made with them: not fewer than the kernel has made.
    pub(super) records: u64,
    /// As many as may be.
    pub(super) limit: u64,
}

/// How far the record is that is sent apart from the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RecordStep {
    /// There is none.
    #[default]
    None,
    /// Waits for space, so that records in front of it that the kernel holds leave with it.
    Before,
    /// It was sent, and waits until there is space again, so that it has left the kernel's own queue.
    After,
}
