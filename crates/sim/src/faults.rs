//! Faults, and how often they occur.

use crate::random::Random;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A fault. Each of these may also happen on Linux.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// All faults.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

faults! {
    /// A wait ends with EINTR.
    Interrupt,
    /// An `enter` fails with EAGAIN and consumes nothing.
    EnterAgain,
    /// An `enter` fails with EBUSY and consumes nothing.
    EnterBusy,
    /// An `enter` consumes only some of the entries, and does not wait.
    PartialSubmit,
    /// An accept fails with EMFILE.
    AcceptLimit,
    /// A call that creates sockets fails with EMFILE.
    SocketLimit,
    /// A receive, send, accept or connect fails with ENOMEM, as an operation or as a call.
    NoMemory,
    /// A receive into a buffer group fails with ENOBUFS although the group has buffers.
    NoBuffers,
    /// A multishot receive or accept ends early, and its last completion is a success.
    EndsWell,
    /// A multishot receive or accept ends early, and its last completion is ENOMEM.
    EndsBadly,
    /// A cancelled operation completes before the cancel does.
    CancelSecond,
    /// A cancel comes too late and fails with EALREADY or ENOENT. A target that is ready completes
    /// normally first; one that is still in flight afterwards is cancelled anyway.
    CancelLost,
    /// Deferred work runs in a different order, except on the same socket. epoll reports edges in a
    /// different order.
    Shuffle,
    /// An operation that could complete at once is deferred. A non-blocking send fails with EAGAIN.
    Defer,
    /// A receive gets fewer bytes than have arrived.
    ShortRead,
    /// A send takes fewer bytes than fit.
    ShortWrite,
    /// A segmented send fails with EIO, like on a device that cannot segment.
    SegmentsRefused,
    /// A connection is reset, and bytes are lost.
    Reset,
    /// epoll reports a socket that is not ready.
    NeedlessEdge,
}

/// How often each [`Fault`] occurs, per thousand opportunities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    per_mille: [u16; Fault::ALL.len()],
}

impl Faults {
    /// Returns the settings without any faults.
    pub fn none() -> Self {
        Self { per_mille: [0; Fault::ALL.len()] }
    }

    /// Draws a random mixture: each fault is off, rare or frequent. [`Fault::Reset`] is off,
    /// because only it loses the bytes of a connection.
    pub fn mixture(random: &mut Random) -> Self {
        let mut faults = Self::none();
        for &fault in Fault::ALL {
            faults = faults.with(fault, random.pick(&[0, 0, 0, 5, 50, 200]));
        }
        faults.with(Fault::Reset, 0)
    }

    /// Sets the rate of `fault` to `per_mille` per thousand opportunities.
    #[must_use]
    pub fn with(mut self, fault: Fault, per_mille: u16) -> Self {
        self.per_mille[fault as usize] = per_mille;
        self
    }

    /// Returns the rate of `fault` per thousand opportunities.
    #[inline]
    pub fn of(&self, fault: Fault) -> u16 {
        self.per_mille[fault as usize]
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixture_depends_on_its_seed_and_has_no_resets() {
        let mixed = |seed| Faults::mixture(&mut Random::new(seed));
        assert_eq!(mixed(3), mixed(3));
        assert!((0..50).any(|seed| mixed(seed) != mixed(3)));
        assert!((0..50).all(|seed| mixed(seed).of(Fault::Reset) == 0));
        let every = |fault| (0..200).any(|seed| mixed(seed).of(fault) > 0);
        assert!(Fault::ALL.iter().all(|&fault| fault == Fault::Reset || every(fault)));
    }
}
