//! Streams of this crate behind the trait of streams that receive.

use crate::net::StreamHandle;

/// A stream of this crate that is received from, for copies that need no task.
#[expect(missing_debug_implementations, reason = "not nameable")]
pub struct OwnSource<'a> {
    pub(crate) handle: &'a StreamHandle,
}
