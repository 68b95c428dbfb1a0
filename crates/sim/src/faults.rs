//! Faults, and how often they occur. All are off by default.

use crate::random::Random;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A fault. Each is something that Linux may do, too.
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
    /// An enter fails with EAGAIN and consumes nothing.
    EnterAgain,
    /// An enter fails with EBUSY and consumes nothing.
    EnterBusy,
    /// An enter consumes some of the entries, and does not wait.
    PartialSubmit,
    /// An accept finds no descriptor (EMFILE).
    AcceptLimit,
    /// `socket` finds no descriptor (EMFILE).
    SocketLimit,
    /// A receive, send, accept or connect fails with ENOMEM, also if it is a system call.
    NoMemory,
    /// A receive into a buffer group fails with ENOBUFS although there are buffers.
    NoBuffers,
    /// A multishot operation ends early, with a success as its last completion.
    EndsWell,
    /// A multishot operation ends early, with ENOMEM as its last completion.
    EndsBadly,
    /// A cancelled operation completes before its cancel does.
    CancelSecond,
    /// A cancel comes too late: EALREADY or ENOENT, and the target completes without it.
    CancelLost,
    /// Deferred work runs in another order, except on one socket; edges of epoll come in another order.
    Shuffle,
    /// An operation that could complete at once is deferred; a send that is not to wait fails with EAGAIN.
    Defer,
    /// A receive gets less than there is.
    ShortRead,
    /// A send takes less than there is space for.
    ShortWrite,
    /// A segmented send fails with EIO, as on a device that cannot segment.
    SegmentsRefused,
    /// A connection is reset. Bytes are lost.
    Reset,
    /// epoll reports a socket that is not ready.
    NeedlessEdge,
}

/// How often each [`Fault`] occurs, in thousandths of its opportunities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    per_mille: [u16; Fault::ALL.len()],
}

impl Faults {
    /// No faults.
    pub fn none() -> Self {
        Self { per_mille: [0; Fault::ALL.len()] }
    }

    /// A random mixture: each fault is off, rare or frequent. [`Fault::Reset`] is off, because it alone loses bytes.
    pub fn mixture(random: &mut Random) -> Self {
        let mut faults = Self::none();
        for &fault in Fault::ALL {
            faults = faults.with(fault, random.pick(&[0, 0, 0, 5, 50, 200]));
        }
        faults.with(Fault::Reset, 0)
    }

    /// The same faults, with `fault` occurring `per_mille` times in a thousand.
    #[must_use]
    pub fn with(mut self, fault: Fault, per_mille: u16) -> Self {
        self.per_mille[fault as usize] = per_mille;
        self
    }

    /// How often `fault` occurs, in thousandths.
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
