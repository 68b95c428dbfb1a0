//! What happened, as a hash that two runs can compare, and as text where asked for. No address goes in: those differ
//! from run to run.

use crate::descriptors::FIRST;
use crate::faults::Fault;
use crate::random::mix;
use crate::timeline::Nanos;
use annulus_ring::{Completion, Entry, opcode};

/// Something to remember.
#[derive(Clone, Copy)]
pub(crate) enum Note<'a> {
    /// An entry was consumed; the file is a descriptor of ours, or nothing that a trace may name.
    Submitted(&'a Entry),
    Completed(&'a Completion),
    Fault(Fault),
}

/// The run so far.
pub(crate) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(text: bool) -> Self {
        Self { hash: 0, lines: text.then(Vec::new) }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn note(&mut self, now: Nanos, note: Note<'_>) {
        self.hash = note.words().into_iter().fold(self.hash ^ now, |hash, word| mix(hash ^ word));
        if let Some(lines) = &mut self.lines {
            lines.push(format!(
                "{}.{:09} {}",
                now / 1_000_000_000,
                now % 1_000_000_000,
                note.text()
            ));
        }
    }
}

/// A descriptor as far as it is the same in every run: those of the process are not.
fn descriptor(fd: i32) -> u32 {
    if (0..FIRST).contains(&fd) { 0 } else { fd as u32 }
}

/// What an entry's address field means to a trace: only a cancel's target, which is no address.
fn target(entry: &Entry) -> u64 {
    if entry.opcode == opcode::ASYNC_CANCEL { entry.addr } else { 0 }
}

impl Note<'_> {
    #[inline]
    fn words(&self) -> [u64; 3] {
        match *self {
            Self::Submitted(entry) => {
                let what = u64::from(entry.opcode) | u64::from(entry.flags) << 8;
                let how =
                    what | u64::from(entry.ioprio) << 16 | u64::from(descriptor(entry.fd)) << 32;
                let much = u64::from(entry.len) | u64::from(entry.op_flags) << 32;
                [1 ^ how, entry.user_data ^ target(entry), much ^ u64::from(entry.file_index)]
            }
            Self::Completed(done) => {
                let outcome = u64::from(done.result as u32) | u64::from(done.flags) << 32;
                [2, done.user_data, outcome]
            }
            Self::Fault(fault) => [3, fault as u64, 0],
        }
    }

    fn text(&self) -> String {
        match *self {
            Self::Submitted(entry) => {
                let name = opcode::name(entry.opcode).unwrap_or("?");
                let mut line =
                    format!("{:x} {name} fd {} len {}", entry.user_data, entry.fd, entry.len);
                if entry.opcode == opcode::ASYNC_CANCEL {
                    line = format!("{:x} {name} of {:x}", entry.user_data, entry.addr);
                }
                line
            }
            Self::Completed(done) => {
                format!("{:x} = {} flags {:x}", done.user_data, done.result, done.flags)
            }
            Self::Fault(fault) => format!("fault {fault:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_time_and_content_count_and_addresses_do_not() {
        let hash = |notes: &[(u64, Note<'_>)]| {
            let mut trace = Trace::new(false);
            notes.iter().for_each(|(now, note)| trace.note(*now, *note));
            trace.hash()
        };
        let send = Entry { opcode: opcode::SEND, addr: 0x1000, ..Entry::default() };
        let elsewhere = Entry { addr: 0x2000, ..send };
        let done = Completion { user_data: 1, result: 5, flags: 0 };
        let (a, b) = ((1, Note::Submitted(&send)), (2, Note::Completed(&done)));
        assert_eq!(hash(&[a, b]), hash(&[(1, Note::Submitted(&elsewhere)), b]));
        assert_ne!(hash(&[a, b]), hash(&[b, a]));
        assert_ne!(hash(&[a, b]), hash(&[a, (3, b.1)]));
        assert_ne!(hash(&[a]), hash(&[(1, Note::Fault(Fault::Shuffle))]));
    }

    #[test]
    fn text_is_there_where_it_was_asked_for() {
        let mut trace = Trace::new(true);
        trace.note(
            1_000_000_002,
            Note::Completed(&Completion { user_data: 16, result: -4, flags: 2 }),
        );
        assert_eq!(trace.lines(), ["1.000000002 10 = -4 flags 2"]);
    }
}
