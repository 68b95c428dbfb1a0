//! How much one stream may hold: much while all of them hold little together, and little as soon as they hold much.
//!
//! One that receives and sends fast gains by large bounds. If many do so at once, or if peers read nothing, the sum of large bounds is what
//! the process holds. So above a mark the bounds are [`LOWERED`]: that of undelivered bytes for every stream, that of unsent ones for
//! streams whose peer makes no room, since the others pass on what they accept. A stream at a lowered bound waits for its own task or peer
//! as it would at any other, so nothing has to be looked at when the bounds rise again. Receives that were armed before they fell may
//! still bring more: those are armed anew, see `Streams::shorten_receives`.

/// Bytes in use by the sockets of a runtime above which the bounds of each stream are lowered.
pub(crate) const MARK: usize = 6 << 20;
/// The bounds above the mark.
pub(crate) const LOWERED: StreamBounds = StreamBounds { receive: 16 << 10, send: 4 << 10 };

/// How many bytes a stream may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamBounds {
    /// Undelivered.
    pub(crate) receive: u32,
    /// Accepted and unsent; beyond it a send waits.
    pub(crate) send: usize,
}

impl StreamBounds {
    /// The lesser of each.
    pub(crate) fn min(self, other: Self) -> Self {
        Self { receive: self.receive.min(other.receive), send: self.send.min(other.send) }
    }
}
