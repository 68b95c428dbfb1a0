//! Ids of operations.

/// The id of an operation: its slot, and its position in the order of submission, which is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpId {
    pub(crate) order: u64,
    pub(crate) slot: u32,
}
