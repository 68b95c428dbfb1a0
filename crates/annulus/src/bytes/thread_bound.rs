//! Compiler errors that explain why a type stays on its thread.
//!
//! The macro `stays` implements `Send` for the type on a condition that never holds. So the
//! compiler reports one error with the text of [`CrossesThreads`], instead of one error per field
//! that is not `Send`.

/// A trait that no type implements.
#[diagnostic::on_unimplemented(
    message = "`{Self}` stays on the thread of its runtime",
    label = "would move it to another thread",
    note = "move bytes to another thread by `Lease::into_shared`, and connections by `into_parts`",
    note = "the functions given to `Handle::spawn_with` and to shards run on the other thread and can create sockets there"
)]
pub trait CrossesThreads {}

/// Implements `Send` or `Sync` for types on the condition that they implement `CrossesThreads`,
/// which never holds.
macro_rules! stays {
    ($($trait:ident $type:ident)+) => {$(
        // SAFETY: no type implements `CrossesThreads`, so this makes nothing `Send` or `Sync`.
        unsafe impl $trait for $type where for<'a> $type: $crate::bytes::thread_bound::CrossesThreads {}
    )+};
}

pub(crate) use stays;
