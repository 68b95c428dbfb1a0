//! Compiler errors that explain why a type stays on its thread.
//!
//! Such a type is `Send` on a condition that never holds. So the compiler reports one error with
//! this trait's text, instead of one error per field that is not `Send`.

/// A trait that no type implements.
#[diagnostic::on_unimplemented(
    message = "`{Self}` stays on the thread of its runtime",
    label = "would take it to another thread",
    note = "bytes go to other threads by `Lease::into_shared`, connections by `into_parts`",
    note = "what `Handle::spawn_with` is given, and a shard runs, makes its sockets over there"
)]
pub trait CrossesThreads {}

/// Makes types `Send` or `Sync` on the condition that they cross threads, which never holds.
macro_rules! stays {
    ($($trait:ident $type:ident)+) => {$(
        // SAFETY: no type implements `CrossesThreads`, so this makes nothing `Send` or `Sync`.
        unsafe impl $trait for $type where for<'a> $type: $crate::bytes::thread_bound::CrossesThreads {}
    )+};
}

pub(crate) use stays;
