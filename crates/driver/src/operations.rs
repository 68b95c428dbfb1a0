//! The choice of kernel operations that carry the bytes of streams.

use std::fmt;
use std::str::FromStr;

/// The operations that receive and send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verbs {
    /// A multishot RECV, SEND for one chunk and SENDMSG for several.
    #[default]
    Multishot,
    /// READV and WRITEV.
    ReadvWritev,
    /// RECVMSG and SENDMSG.
    RecvmsgSendmsg,
    /// READ, WRITE for one chunk and WRITEV for several.
    ReadWrite,
    /// RECV, SEND for one chunk and SENDMSG for several.
    RecvSend,
}

impl Verbs {
    const ALL: [(&'static str, Self); 5] = [
        ("multishot", Self::Multishot),
        ("readv-writev", Self::ReadvWritev),
        ("recvmsg-sendmsg", Self::RecvmsgSendmsg),
        ("read-write", Self::ReadWrite),
        ("recv-send", Self::RecvSend),
    ];

    /// Whether they are file operations. These raise SIGPIPE if the peer has closed, unless the process ignores it, as Rust
    /// programs do.
    pub fn are_of_files(self) -> bool {
        matches!(self, Self::ReadvWritev | Self::ReadWrite)
    }

    /// Whether every send is a vector, even of one chunk.
    pub fn send_vectors_only(self) -> bool {
        matches!(self, Self::ReadvWritev | Self::RecvmsgSendmsg)
    }
}

/// How streams receive and send: by which operations, and whether a receive waits for readiness before its first try.
///
/// All of them receive into lent buffers and have the same guarantees; they differ in cost. All but [`Verbs::Multishot`] arm a
/// receive for each one that completes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// The operations.
    pub verbs: Verbs,
    /// Wait until there is something to receive, instead of trying first. RECV and RECVMSG have a flag for it (5.19). READ, READV
    /// and a multishot receive are armed after a poll, which costs a turn. With the flag, a multishot receive that finds bytes and
    /// the end of the stream together would report the bytes, then wait for more, and never report the end.
    pub poll_first: bool,
}

impl Operations {
    /// All combinations.
    pub const ALL: [Self; 10] = {
        let mut all = [Self { verbs: Verbs::Multishot, poll_first: false }; 10];
        let mut i = 0;
        while i < all.len() {
            all[i] = Self { verbs: Verbs::ALL[i % 5].1, poll_first: i >= 5 };
            i += 1;
        }
        all
    };

    /// Whether a receive is armed only after a poll.
    #[inline]
    pub fn poll_apart(self) -> bool {
        self.poll_first && (self.verbs.are_of_files() || self.verbs == Verbs::Multishot)
    }
}

/// The prefix of the name if they poll first.
const POLL: &str = "poll-";

impl fmt::Display for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Verbs::ALL.into_iter().find(|(_, verbs)| *verbs == self.verbs);
        let poll = if self.poll_first { POLL } else { "" };
        write!(f, "{poll}{}", name.map_or("", |(name, _)| name))
    }
}

impl FromStr for Operations {
    type Err = UnknownOperations;

    fn from_str(text: &str) -> Result<Self, UnknownOperations> {
        let found = Self::ALL.into_iter().find(|operations| operations.to_string() == text);
        found.ok_or_else(|| UnknownOperations(text.into()))
    }
}

/// The name is none of [`Operations::ALL`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOperations(String);

impl fmt::Display for UnknownOperations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Verbs::ALL.map(|(name, _)| name).join(", ");
        write!(
            f,
            "unknown operations `{}`; choose one of {names}, with or without the prefix {POLL}",
            self.0
        )
    }
}

impl std::error::Error for UnknownOperations {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_differ_and_parse() {
        let names: BTreeSet<String> = Operations::ALL.iter().map(Operations::to_string).collect();
        assert_eq!(names.len(), 10);
        for operations in Operations::ALL {
            assert_eq!(operations.to_string().parse(), Ok(operations));
        }
        assert_eq!(Operations::default().to_string(), "multishot");
        assert!(names.contains("poll-recvmsg-sendmsg"));
    }

    #[test]
    fn the_error_of_an_unknown_name_lists_all_names() {
        let error = "splice".parse::<Operations>().unwrap_err().to_string();
        for (name, _) in Verbs::ALL {
            assert!(error.contains("`splice`") && error.contains(name), "{error}");
        }
    }
}
