//! The mode, selected by a word.

/// The prefix of operations that poll first.
const POLL: &str = "poll-";

/// The operations that receive and send.
#[derive(Clone, Copy)]
pub enum Operations {
    ReadvWritev,
    RecvmsgSendmsg,
    ReadWrite,
    RecvSend,
}

impl Operations {
    /// Returns true for file operations, which have no flag to poll before a receive.
    pub fn are_of_files(self) -> bool {
        matches!(self, Operations::ReadvWritev | Operations::ReadWrite)
    }
}

#[derive(Clone, Copy)]
pub struct Mode {
    pub operations: Operations,
    /// Whether a receive waits for readiness before its first try.
    pub polls_first: bool,
    /// Whether a kernel thread takes the submissions.
    pub kernel_polls: bool,
}

impl Mode {
    /// Parses a mode. Without a word, and with `sqpoll`, the operations are RECV and SEND.
    pub fn of(word: Option<&str>) -> Result<Mode, String> {
        let word = word.unwrap_or("recv-send");
        let (polls_first, name) = match word.strip_prefix(POLL) {
            Some(name) => (true, name),
            None => (false, word),
        };
        let operations = match name {
            "readv-writev" => Operations::ReadvWritev,
            "recvmsg-sendmsg" => Operations::RecvmsgSendmsg,
            "read-write" => Operations::ReadWrite,
            "recv-send" | "sqpoll" => Operations::RecvSend,
            _ => return Err(format!("unknown mode '{word}': the file `modes` lists the modes")),
        };
        Ok(Mode { operations, polls_first, kernel_polls: word == "sqpoll" })
    }
}
