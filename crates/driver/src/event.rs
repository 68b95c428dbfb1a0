//! What came of an operation.

use crate::token::Token;
use rustix::io::Errno;

/// One completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The operation's.
    pub token: Token,
    /// A count, a descriptor, or why not. The errno's sign is handled here, once.
    pub result: Result<u32, Errno>,
    /// More events of the same operation will follow. False makes this the *terminal* one: the operation's memory is
    /// the submitter's again.
    pub more: bool,
    /// The pool's buffer that was filled. Whoever takes the event owes the pool its return.
    pub buffer: Option<u16>,
}

impl Event {
    /// Splits a system call's answer into value and error.
    #[inline]
    pub(crate) fn outcome(answer: i32) -> Result<u32, Errno> {
        u32::try_from(answer).map_err(|_| Errno::from_raw_os_error(answer.wrapping_neg()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_are_told_apart() {
        assert_eq!(Event::outcome(0), Ok(0));
        assert_eq!(Event::outcome(i32::MAX), Ok(i32::MAX as u32));
        assert_eq!(Event::outcome(-Errno::AGAIN.raw_os_error()), Err(Errno::AGAIN));
    }
}
