//! Why a type stays on its thread, in the words of the compiler.
//!
//! Such a type is `Send` on a condition that never holds: so there is one error for it, with this trait's text, and not one for each
//! thing in it that is not `Send`.

/// No type implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` stays on the thread of its runtime",
    label = "would take it to another thread",
    note = "bytes go to other threads by `Lease::into_shared`, connections by `into_parts`",
    note = "what `Handle::spawn_with` is given, and a shard runs, makes its sockets over there"
)]
pub trait CrossesThreads {}

/// The types that are `Send`, or `Sync`, if they cross threads. They never do.
macro_rules! stays {
    ($($trait:ident $type:ident)+) => {$(
        // SAFETY: no type implements the trait of the condition, so this makes nothing `Send` or `Sync`.
        unsafe impl $trait for $type where for<'a> $type: $crate::bytes::thread_bound::CrossesThreads {}
    )+};
}

pub(crate) use stays;
