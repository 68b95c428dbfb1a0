//! What may go wrong, and how often. Everything is off until it is asked for.

use crate::random::Random;

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One thing that can go wrong. Each is something Linux may do as well.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

faults! {
    /// A wait ends with EINTR, before anything came.
    Interrupt,
    /// An enter answers EAGAIN and consumes nothing.
    EnterAgain,
    /// An enter answers EBUSY and consumes nothing.
    EnterBusy,
    /// An enter consumes some of the entries, and does not wait.
    PartialSubmit,
    /// An accept finds no descriptor (EMFILE).
    AcceptLimit,
    /// `socket` finds no descriptor (EMFILE).
    SocketLimit,
    /// A receive, send, accept or connect answers ENOMEM.
    NoMemory,
    /// A receive from a buffer group answers ENOBUFS although there are buffers.
    NoBuffers,
    /// A multishot ends early, and its last completion is a success.
    EndsWell,
    /// A multishot ends early, with ENOMEM behind what it brought.
    EndsBadly,
    /// A cancelled operation completes before its cancel does.
    CancelSecond,
    /// A cancel comes too late: EALREADY or ENOENT, and its target does what it would have done.
    CancelLost,
    /// Deferred work runs out of turn; the order on one socket stays.
    Shuffle,
    /// An operation that could be done at once is deferred.
    Defer,
    /// A receive brings less than there is.
    ShortRead,
    /// A send takes less than there is room for.
    ShortWrite,
    /// A send that asks to be cut into segments answers EIO, as where the device cannot.
    SegmentsRefused,
    /// A connection is reset in mid-stream. Bytes are lost.
    Reset,
}

/// How often each [`Fault`] strikes, in thousandths of its occasions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    per_mille: [u16; Fault::ALL.len()],
}

impl Faults {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self { per_mille: [0; Fault::ALL.len()] }
    }

    /// A mixture: each fault is off, rare or frequent, as `random` has it. [`Fault::Reset`] stays off, because it alone
    /// changes what arrives.
    pub fn mixture(random: &mut Random) -> Self {
        let mut faults = Self::none();
        for &fault in Fault::ALL {
            faults = faults.with(fault, random.pick(&[0, 0, 0, 5, 50, 200]));
        }
        faults.with(Fault::Reset, 0)
    }

    /// The same faults, but `fault` strikes `per_mille` times in a thousand.
    #[must_use]
    pub fn with(mut self, fault: Fault, per_mille: u16) -> Self {
        self.per_mille[fault as usize] = per_mille;
        self
    }

    /// How often `fault` strikes, in thousandths.
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
    fn a_mixture_is_its_seed_and_never_resets() {
        let mixed = |seed| Faults::mixture(&mut Random::new(seed));
        assert_eq!(mixed(3), mixed(3));
        assert!((0..50).any(|seed| mixed(seed) != mixed(3)));
        assert!((0..50).all(|seed| mixed(seed).of(Fault::Reset) == 0));
        let every = |fault| (0..200).any(|seed| mixed(seed).of(fault) > 0);
        assert!(Fault::ALL.iter().all(|&fault| fault == Fault::Reset || every(fault)));
    }
}
