//! The outcome of an operation.

use crate::slots::Token;
use rustix::io::Errno;

/// One completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token of the operation.
    pub token: Token,
    /// A count, a descriptor, or an error. The sign of the errno is handled only in this type.
    pub result: Result<u32, Errno>,
    /// Whether more events of the same operation follow. If false, this is the *terminal* event:
    /// the memory of the operation belongs to the submitter again.
    pub more: bool,
    /// The pool buffer that was filled. Whoever takes the event must give it back.
    pub buffer: Option<u16>,
}

impl Event {
    /// Splits the result of a completion into a value or an error.
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
