//! The mode, by its word.

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
    /// Whether these are operations of files, which have no flag with which a receive polls first.
    pub fn are_of_files(self) -> bool {
        matches!(self, Operations::ReadvWritev | Operations::ReadWrite)
    }
}

#[derive(Clone, Copy)]
pub struct Mode {
    pub operations: Operations,
    /// A receive waits for readiness before its first try.
    pub polls_first: bool,
    /// A kernel thread takes the submissions.
    pub kernel_polls: bool,
}

impl Mode {
    /// The mode of a word; RECV and SEND without one, and with a kernel thread too.
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
            _ => return Err(format!("'{word}' is no mode; the file `modes` lists them")),
        };
        Ok(Mode { operations, polls_first, kernel_polls: word == "sqpoll" })
    }
}
