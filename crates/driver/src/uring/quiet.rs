//! Some time after receives, receive memory that is not needed goes back to the system: all that is not in use if nothing
//! has happened since, else what turns have not needed.
//!
//! A timeout inside every wait would cost every turn; one timer in the kernel, set anew only while receives go on, costs
//! nothing. An idle ring has none.

use crate::pool::Trim;
use crate::token::{Kind, Token};
use annulus_ring::SafeEntry;
use annulus_ring::op::{TimeSpec, Timeout};
use rustix::io::Errno;

/// After so long, memory goes back.
static QUIET: TimeSpec = TimeSpec { seconds: 10, nanoseconds: 0 };

/// The timer, and what it remembers.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    /// Completions counted when it was set; `None` while it is not.
    set_at: Option<u64>,
    /// The kernel has no timers.
    useless: bool,
}

impl Alarm {
    /// What its completion carries: nobody else's token has a slot without a kind.
    const TOKEN: Token = Token::ignored(1);

    pub(super) fn is_due(&self) -> bool {
        self.set_at.is_none() && !self.useless
    }

    /// Sets the timer: the entry to submit.
    pub(super) fn set(&mut self, completions: u64) -> SafeEntry {
        self.set_at = Some(completions);
        Timeout { after: &QUIET }.entry().user_data(Self::TOKEN.bits())
    }

    /// Whether a completion is the timer's.
    #[inline]
    pub(super) fn is_mine(user_data: u64) -> bool {
        user_data == Self::TOKEN.bits()
    }

    /// The timer went off: tells what is to go back, by whether anything else has come since it was set.
    pub(super) fn goes_off(
        &mut self,
        result: Result<u32, Errno>,
        completions: u64,
    ) -> Option<Trim> {
        self.useless = result != Err(Errno::TIME);
        let set_at = self.set_at.take().filter(|_| !self.useless)?;
        // Its own completion is one of those counted.
        Some(if completions == set_at + 1 { Trim::Everything } else { Trim::Surplus })
    }
}

const _: () = assert!(matches!(Alarm::TOKEN.kind(), Kind::Ignored));
