//! Newer system calls with an older equivalent. A kernel may lack the newer call, and a seccomp
//! profile written before the call existed refuses it, usually with EPERM.

use rustix::io::{Errno, Result};
use std::sync::atomic::{AtomicBool, Ordering};

/// A system call that has an older equivalent, and whether a refusal of it was seen.
pub(crate) struct NewerCall {
    refused: AtomicBool,
}

impl NewerCall {
    pub(crate) const fn new() -> Self {
        Self { refused: AtomicBool::new(false) }
    }

    /// Makes the newer call, and then the older one if the error looks like a refusal of the newer
    /// one. In that case the answer of the older call counts: a file or a firewall that refuses the
    /// request itself refuses it both times. If the answers differ, later calls of this function
    /// make only the older call.
    #[inline]
    pub(crate) fn or_older<T>(
        &self,
        newer: impl FnOnce() -> Result<T>,
        older: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        // Relaxed: the flag protects no other data, and a thread that misses it only makes a
        // needless call.
        if self.refused.load(Ordering::Relaxed) {
            return older();
        }
        match newer() {
            Err(errno) if may_be_refusal(errno) => {
                let answer = older();
                if !matches!(answer, Err(same) if same == errno) {
                    self.refused.store(true, Ordering::Relaxed);
                }
                answer
            }
            answer => answer,
        }
    }
}

/// Returns true if an error may mean that the kernel or a filter refuses a call as such. Each of
/// these errors can also be a genuine answer; only the older variant of the call can show which it
/// is.
pub fn may_be_refusal(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM
            | Errno::ACCESS
            | Errno::NOSYS
            | Errno::INVAL
            | Errno::OPNOTSUPP
            | Errno::TOOBIG
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_refused_call_is_made_once_and_then_replaced() {
        let (call, tries) = (NewerCall::new(), Cell::new(0));
        let newer = || {
            tries.set(tries.get() + 1);
            Err(Errno::PERM)
        };
        assert_eq!(call.or_older(newer, || Ok(1)), Ok(1));
        assert_eq!(call.or_older(newer, || Err(Errno::AGAIN)), Err::<i32, _>(Errno::AGAIN));
        assert_eq!(tries.get(), 1);
    }

    #[test]
    fn a_genuine_error_is_not_taken_for_a_refusal() {
        let call = NewerCall::new();
        assert_eq!(
            call.or_older(|| Err::<i32, _>(Errno::PERM), || Err(Errno::PERM)),
            Err(Errno::PERM)
        );
        assert_eq!(
            call.or_older(
                || Ok(1),
                || unreachable!("the older call was made although the newer one works")
            ),
            Ok(1)
        );
        let missing = call.or_older(
            || Err(Errno::NOENT),
            || unreachable!("the older call was made although the file is missing"),
        );
        assert_eq!(missing, Err::<i32, _>(Errno::NOENT));
    }
}
