//! Compiler errors that explain why a type stays on its thread.
//!
//! The macro `stays` implements `Send` or `Sync` for the type on a condition that never holds. So
//! the compiler reports one error with the text of [`MayUse`], instead of one error per field that
//! is not `Send`.

/// The condition: no type implements this trait.
///
/// The type in question is the parameter, and not `Self`. If it were `Self`, the compiler would
/// show the standard library's message about `Send` wherever the type itself has to be `Send`, as
/// in `channel::<TcpStream>`.
#[diagnostic::on_unimplemented(
    message = "`{T}` stays on the thread of its runtime",
    label = "would use it on another thread",
    note = "move bytes to another thread by `Lease::into_shared`, and connections by `into_parts`",
    note = "the functions given to `Handle::spawn_with` and to shards run on the other thread and can open sockets and files there"
)]
pub trait MayUse<T> {}

/// The type that does not implement [`MayUse`]. It has no values.
#[expect(missing_debug_implementations, reason = "not nameable")]
pub enum AnotherThread {}

/// Implements `Send` or `Sync` for types on the condition that another thread may use them, which
/// never holds.
macro_rules! stays {
    ($($trait:ident $type:ident)+) => {$(
        // SAFETY: no type implements `MayUse`, so this makes nothing `Send` or `Sync`.
        #[allow(unsafe_code)]
        unsafe impl $trait for $type
        where
            // `for` delays the check of a condition that the compiler knows to be false.
            for<'a> $crate::bytes::thread_bound::AnotherThread:
                $crate::bytes::thread_bound::MayUse<$type>,
        {
        }
    )+};
}

pub(crate) use stays;
