//! The outcome of an operation.

use crate::slots::Token;
use rustix::io::Errno;

/// What a driver reports about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token of the operation.
    pub token: Token,
    /// A count, a descriptor, or an error.
    pub result: Result<u32, Errno>,
    /// Whether the operation has further events. If false, this is the *terminal* event: the
    /// operation's memory belongs to the submitter again.
    pub more: bool,
    /// The pool buffer that was filled. The code that takes the event must give the buffer back.
    pub buffer: Option<u16>,
}

impl Event {
    /// Converts the result of a completion into a value or an error.
    #[inline]
    pub(crate) fn outcome(answer: i32) -> Result<u32, Errno> {
        u32::try_from(answer).map_err(|_| Errno::from_raw_os_error(answer.wrapping_neg()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_result_is_an_errno() {
        assert_eq!(Event::outcome(0), Ok(0));
        assert_eq!(Event::outcome(i32::MAX), Ok(i32::MAX as u32));
        assert_eq!(Event::outcome(-Errno::AGAIN.raw_os_error()), Err(Errno::AGAIN));
    }
}
